"""The methods that make communicators from one: mpi4py's, but what they make is of the same type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast, overload

from mpi4py import MPI

from mpicoll.forms import like
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
    """Return mpi4py's method that makes a communicator, which is of this type.

    Args:
        own: mpi4py's method.
        waits: all ranks wait for each other in it, so that the calls in flight must end first.
    """

    @like(own, "as mpi4py's, but of this type")
    def method(self: Any, /, *arguments: P.args, **named: P.kwargs) -> Any:
        made = own(self._settled() if waits else self._plain(), *arguments, **named)
        if isinstance(made, tuple):
            return self._wrap(made[0]), MessageRequest(made[1])
        return self._wrap(cast(MPI.Comm, made))

    return cast("Maker[P]", method)


def started(own: Callable[Concatenate[Any, P], object]) -> Starter[P]:
    """Return mpi4py's method that makes a communicator and returns a request, too."""
    return cast("Starter[P]", same_type(own, waits=False))


class Derived:
    """Mixin of the methods that make communicators."""

    def _wrap(self: Any, comm: MPI.Comm) -> Any:
        """Return a derived communicator as this type; the null communicator as it is."""
        if comm == MPI.COMM_NULL or not isinstance(comm, MPI.Intracomm):
            return comm
        return type(self)(comm, algorithms=self._rules)

    def _plain(self: Any) -> MPI.Intracomm:
        """Return the communicator as mpi4py's; refuse it after MPI's end, which would end the process."""
        refuse_after_finalize()
        return MPI.Intracomm(self)

    def _settled(self: Any) -> MPI.Intracomm:
        """Return the communicator as mpi4py's, once the calls in flight have ended: MPI's waiting would stop them."""
        self._settle()
        return MPI.Intracomm(self)

    Dup = same_type(MPI.Intracomm.Dup)
    Dup_with_info = same_type(MPI.Intracomm.Dup_with_info)
    Idup = started(MPI.Intracomm.Idup)
    Idup_with_info = started(MPI.Intracomm.Idup_with_info)
    Clone = same_type(MPI.Intracomm.Clone)
    Split = same_type(MPI.Intracomm.Split)
    Split_type = same_type(MPI.Intracomm.Split_type)
    Create = same_type(MPI.Intracomm.Create)
    Create_group = same_type(MPI.Intracomm.Create_group, waits=False)
