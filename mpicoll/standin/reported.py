"""`ReportedCommunicator`: the stand-in that counts its calls, for a report; without one there is none."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache, wraps
from time import perf_counter
from typing import Any

from mpi4py import MPI

from mpicoll.blocking import Blocking
from mpicoll.communicator import KINDS, Communicator
from mpicoll.neighbours import Neighbours
from mpicoll.nonblocking import Nonblocking
from mpicoll.persistent import Persistent
from mpicoll.point_to_point import PointToPoint
from mpicoll.recorder.recent import MASK
from mpicoll.request import PersistentRequest, Request
from mpicoll.standin.tally import tally
from mpicoll.typed import Typed

#: methods that mpicoll serves
SERVED = [name for room in (Blocking, Nonblocking, Persistent, Typed) for name in vars(room) if name[0].isupper()]
#: the same of communicators with a topology
NEIGHBOURS = [name for name in vars(Neighbours) if "eighbor" in name]
#: messages, but no probes, which programs repeat
MESSAGES = [name for name in vars(PointToPoint) if name[0] != "_" and "probe" not in name.lower()]
_OBJECTS = "mpi4py pickles Python objects; arrays take the method with a capital"
_OTHERS = "makes an intercommunicator, whose calls are mpi4py's own"
#: methods that are mpi4py's own, and why
PASSED = {
    **dict.fromkeys(("bcast", "gather", "scatter", "allgather", "alltoall"), _OBJECTS),
    **dict.fromkeys(("reduce", "allreduce", "scan", "exscan", "barrier"), _OBJECTS),
    **dict.fromkeys(("Create_intercomm", "Spawn", "Spawn_multiple", "Accept", "Connect"), _OTHERS),
}


#: has `call` while this thread is in a call that is counted: those that it makes itself are not
_inside = threading.local()


class _Reported:
    """Mixin of requests whose waiting is counted."""

    __slots__ = ()

    def Wait(self: Any, *arguments: Any, **named: Any) -> Any:
        """Wait, as `Request.Wait` does."""
        waits, began = self._operation is not None, perf_counter()
        done = Request.Wait(self, *arguments, **named)
        if waits:
            tally.add(("served", "Wait", "of calls that do not block"), perf_counter() - began)
        return done

    wait = Wait


class _ReportedStarts(_Reported):
    """Mixin of persistent requests, whose starts are counted, too."""

    __slots__ = ()

    def Start(self: Any) -> None:
        """Start the call (again)."""
        began = perf_counter()
        super().Start()  # type: ignore[misc]  # of the request's own class
        starts = self._call.context.recorder.starts
        tally.serve(f"{self._call.method}.Start", starts.what[starts.number & MASK], perf_counter() - began)


@cache
def _counting(kind: type) -> type:
    """Return the class of requests that are of some class, and are counted."""
    mixin = _ReportedStarts if issubclass(kind, PersistentRequest) else _Reported
    return type(f"Reported{kind.__name__}", (mixin, kind), {"__slots__": ()})


class ReportedCommunicator(Communicator):
    """A communicator whose calls are counted, as are those of communicators that are made from it."""

    @classmethod
    def _kind_for(cls, comm: MPI.Intracomm) -> type[Communicator]:
        return next(kind for own, kind in _REPORTED.items() if isinstance(comm, own))

    def _begin(self, method: str, arguments: tuple[Any, ...], algorithm: Any, stream: Any) -> Request:
        request = super()._begin(method, arguments, algorithm, stream)
        kind: Any = type(request)
        request.__class__ = _counting(kind)
        return request

    def _prepare(self, method: str, arguments: tuple[Any, ...], algorithm: Any, stream: Any) -> PersistentRequest:
        request = super()._prepare(method, arguments, algorithm, stream)
        kind: Any = type(request)
        request.__class__ = _counting(kind)
        return request

    def _made(self) -> int:
        """Return the number of calls made so far."""
        return self._context.calls if self._context is not None else 0

    def _latest(self, before: int) -> Any:
        """Return what the recorder has of the latest call, None if there is none after so many."""
        context = self._context
        if context is None or context.calls == before:
            return None
        return context.recent[context.calls & MASK]


class _ReportedNeighbours(ReportedCommunicator):
    """Mixin of communicators with a topology, whose neighbour collectives are counted, too."""


#: the class whose calls are counted for each of mpi4py's
_REPORTED: dict[type, type[ReportedCommunicator]] = {
    own: kind if kind is ReportedCommunicator else type(f"Reported{kind.__name__}", (_ReportedNeighbours, kind), {})
    for own, kind in {**KINDS, MPI.Intracomm: ReportedCommunicator}.items()
}


def counted(
    name: str, count: Callable[[Any, int, float], None], room: type[Any] = Communicator
) -> Callable[..., Any]:
    """Return a communicator's method with a count behind it.

    Args:
        name: of the method.
        count: takes the communicator, the number of its calls before this one, and the seconds of this one.
        room: the class that has the method.
    """
    own = getattr(room, name)

    @wraps(own)
    def method(self: Any, /, *arguments: Any, **named: Any) -> Any:
        if getattr(_inside, "call", False):
            return own(self, *arguments, **named)
        _inside.call, before, began = True, self._made(), perf_counter()
        try:
            result = own(self, *arguments, **named)
        except Exception as error:
            tally.refuse(name, error, perf_counter() - began)
            raise
        finally:
            _inside.call = False
        count(self, before, perf_counter() - began)
        return result

    return method


def _served(name: str) -> Callable[[Any, int, float], None]:
    return lambda comm, before, seconds: tally.serve(name, comm._latest(before), seconds)


def _passed(kind: str, name: str, why: str) -> Callable[[Any, int, float], None]:
    return lambda comm, before, seconds: tally.add((kind, name, why), seconds)


for _name in SERVED:
    setattr(ReportedCommunicator, _name, counted(_name, _served(_name)))
for _name in NEIGHBOURS:
    setattr(_ReportedNeighbours, _name, counted(_name, _served(_name), Neighbours))
for _name, _why in PASSED.items():
    setattr(ReportedCommunicator, _name, counted(_name, _passed("passed", _name, _why)))
for _name in MESSAGES:
    setattr(ReportedCommunicator, _name, counted(_name, _passed("messages", "Send, Recv ...", "between two ranks")))
