"""The life of communicators: how they are made from one, copied and freed; mpi4py's methods, but of mpicoll's types.

What is made has the topology that mpi4py's method gives it, and the rules of the communicator that it is made from:

    Communicator.Create_cart -> CartCommunicator        CartCommunicator.Sub, Dup -> CartCommunicator
    Communicator.Create_graph -> GraphCommunicator      CartCommunicator.Split -> Communicator
    Communicator.Create_intercomm -> Intercommunicator  Intercommunicator.Merge -> Communicator

A class made from one of these stays itself where what is made has its topology, or as it has none; else
it is mpicoll's own class of that topology.  Of a handle, as in `fromhandle`, no rules are known.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, ClassVar, Concatenate, ParamSpec, Protocol, TypeVar, cast, overload

from mpi4py import MPI

from mpicoll.forms import like
from mpicoll.runtime.context.contexts import free_context_of
from mpicoll.runtime.point_to_point.requests import MessageRequest
from mpicoll.runtime.progress.traffic import refuse_after_finalize

P = ParamSpec("P")
C = TypeVar("C")


class Maker(Protocol[P]):
    """A method that returns a communicator, as type checkers see it: of the type of the one that it is called on."""

    @overload
    def __get__(self, comm: None, owner: object = None) -> Callable[Concatenate[Any, P], Any]: ...
    @overload
    def __get__(self, comm: C, owner: object = None) -> Callable[P, C]: ...


class Starter(Protocol[P]):
    """The same of a method that returns such a communicator and a request."""

    @overload
    def __get__(self, comm: None, owner: object = None) -> Callable[Concatenate[Any, P], Any]: ...
    @overload
    def __get__(self, comm: C, owner: object = None) -> Callable[P, tuple[C, MessageRequest]]: ...


def same_type(own: Callable[Concatenate[Any, P], object], waits: bool = True) -> Maker[P]:
    """Return mpi4py's method that makes a communicator, which is of mpicoll's type.

    Args:
        own: mpi4py's method.
        waits: all ranks wait for each other in it, so that the calls in flight must end first.
    """

    @like(own, "as mpi4py's, but of mpicoll's type")
    def method(self: Any, /, *arguments: P.args, **named: P.kwargs) -> Any:
        made = own(self._settled() if waits else self._plain(), *arguments, **named)
        if isinstance(made, tuple):
            return self._wrap(made[0]), MessageRequest(made[1])
        return self._wrap(cast(MPI.Comm, made))

    return cast("Maker[P]", method)


def started(own: Callable[Concatenate[Any, P], object]) -> Starter[P]:
    """Return mpi4py's method that makes a communicator and returns a request, too."""
    return cast("Starter[P]", same_type(own, waits=False))


def other_type(own: Callable[Concatenate[Any, P], object]) -> Callable[Concatenate[Any, P], Any]:
    """Return the same for a method whose communicator has another topology than this one, or none."""
    return cast("Callable[Concatenate[Any, P], Any]", same_type(own))


def copied(made: C, comm: MPI.Comm) -> C:
    """Return a null communicator with the handle of another one; mpi4py would ask MPI, which has not started."""
    ctypes.memmove(MPI._addressof(cast(MPI.Comm, made)), MPI._addressof(comm), MPI._sizeof(comm))
    return made


class Derived:
    """Mixin of the methods that make communicators, and end them."""

    #: mpi4py's class with the same topology
    _own: ClassVar[type[MPI.Intracomm]] = MPI.Intracomm

    @classmethod
    def _kind_for(cls, comm: MPI.Intracomm) -> type[Any]:
        """Return the class of what is made: this one where it is for the topology that a communicator has."""
        raise NotImplementedError

    @classmethod
    def _of(cls, comm: MPI.Comm, rules: str = "") -> Any:
        """Return mpi4py's communicator as mpicoll's, with rules; the null communicator as it is."""
        if comm == MPI.COMM_NULL:
            return comm
        if isinstance(comm, MPI.Intracomm):
            return cls._kind_for(comm)(comm, algorithms=rules)
        return Intercommunicator.of(cast(MPI.Intercomm, comm), cls, rules)

    def _wrap(self: Any, comm: MPI.Comm) -> Any:
        """Return what was made from this communicator."""
        return self._of(comm, self._rules)

    def _plain(self: Any) -> Any:
        """Return the communicator as mpi4py's; refuse it after MPI's end, which would end the process."""
        refuse_after_finalize()
        return self._own(self)

    def _settled(self: Any) -> Any:
        """Return the communicator as mpi4py's, once the calls in flight have ended: MPI's waiting would stop them."""
        self._settle()
        return self._own(self)

    def _settle(self: Any) -> None:
        refuse_after_finalize()
        if self._context is not None and not self._context.freed:
            self._context.settle()

    Dup = same_type(MPI.Intracomm.Dup)
    Dup_with_info = same_type(MPI.Intracomm.Dup_with_info)
    Idup = started(MPI.Intracomm.Idup)
    Idup_with_info = started(MPI.Intracomm.Idup_with_info)
    Clone = same_type(MPI.Intracomm.Clone)
    Split = same_type(MPI.Intracomm.Split)
    Split_type = same_type(MPI.Intracomm.Split_type)
    Create = same_type(MPI.Intracomm.Create)
    Create_group = same_type(MPI.Intracomm.Create_group, waits=False)
    Create_cart = other_type(MPI.Intracomm.Create_cart)
    Create_graph = other_type(MPI.Intracomm.Create_graph)
    Create_dist_graph = other_type(MPI.Intracomm.Create_dist_graph)
    Create_dist_graph_adjacent = other_type(MPI.Intracomm.Create_dist_graph_adjacent)
    Create_intercomm = other_type(MPI.Intracomm.Create_intercomm)

    @classmethod
    def Create_from_group(
        cls,
        group: MPI.Group,
        stringtag: str = "org.mpi4py",
        info: MPI.Info = MPI.INFO_NULL,
        errhandler: MPI.Errhandler | None = None,
    ) -> Any:
        """Create a communicator from a group; as mpi4py's, but of mpicoll's type."""
        refuse_after_finalize()
        return cls._of(MPI.Intracomm.Create_from_group(group, stringtag, info, errhandler))

    @classmethod
    def fromhandle(cls, handle: int) -> Any:
        """Return the communicator with a handle; as mpi4py's, but of mpicoll's type."""
        refuse_after_finalize()
        return cls._of(MPI.Comm.fromhandle(handle))

    @classmethod
    def f2py(cls, arg: int) -> Any:
        """Return the communicator with a handle of Fortran's; as mpi4py's, but of mpicoll's type."""
        refuse_after_finalize()
        return cls._of(MPI.Comm.f2py(arg))

    def Free(self: Any) -> None:
        """Free the communicator, once the calls in flight on it have ended; collective."""
        self._settle()
        free_context_of(self)
        MPI.Comm.Free(self)

    def Disconnect(self: Any) -> None:
        """Disconnect, once the calls in flight have ended; collective."""
        self._settle()
        free_context_of(self)
        MPI.Comm.Disconnect(self)

    def __reduce__(self: Any) -> tuple[Any, ...]:
        return _again, (type(self), self._plain(), self._rules)


def _again(kind: type[Any], comm: MPI.Intracomm, rules: str) -> Any:
    """Return a copied or unpickled communicator."""
    return kind(comm, algorithms=rules)


class Intercommunicator(MPI.Intercomm):
    """mpi4py's intercommunicator; only what is made from it is of mpicoll's types.

    Collectives and messages on it are mpi4py's own, which take no device arrays unless the MPI library does.  So is
    waiting in the methods here: calls in flight do not go on in them.
    """

    _kind: type[Derived]
    _rules: str

    @classmethod
    def of(cls, comm: MPI.Intercomm, kind: type[Derived], rules: str) -> Intercommunicator:
        """Return mpi4py's intercommunicator as this type.

        Args:
            comm: the intercommunicator.
            kind: class of the communicator that it is made from, which `Merge` gives.
            rules: of that communicator.
        """
        self = cls(comm)
        self._kind, self._rules = kind, rules
        return self

    def _plain(self) -> MPI.Intercomm:
        refuse_after_finalize()
        return MPI.Intercomm(self)

    _settled = _plain

    def _wrap(self, comm: MPI.Comm) -> Any:
        return self._kind._of(comm, self._rules)

    Dup = same_type(MPI.Intercomm.Dup)
    Dup_with_info = same_type(MPI.Intercomm.Dup_with_info)
    Idup = started(MPI.Intercomm.Idup)
    Idup_with_info = started(MPI.Intercomm.Idup_with_info)
    Clone = same_type(MPI.Intercomm.Clone)
    Split = same_type(MPI.Intercomm.Split)
    Create = same_type(MPI.Intercomm.Create)
    Merge = other_type(MPI.Intercomm.Merge)

    def __reduce__(self) -> tuple[Any, ...]:
        return Intercommunicator.of, (self._plain(), self._kind, self._rules)
