"""Methods on lists of requests, mpicoll's and mpi4py's together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from mpi4py import MPI

from mpicoll.runtime.progress.turns import advance_all, in_flight, wait_for


class Several:
    """The methods of mpi4py's requests on lists, for lists of both kinds.

    Statuses are as mpi4py's: a list that grows to what is needed.  A collective's status is the empty one.
    """

    __slots__ = ()

    @staticmethod
    def Waitall(
        requests: Sequence[Any], statuses: list[MPI.Status] | None = None, *, synchronize: bool = False
    ) -> Literal[True]:
        """Wait for all requests, mpicoll's and mpi4py's; `synchronize` as in `Wait`."""
        for request in requests:
            if isinstance(request, Several):
                request.Wait(synchronize=synchronize)  # type: ignore[attr-defined]
        wait_for(lambda: _are_complete(requests))
        return _end(requests, statuses)

    @staticmethod
    def Testall(requests: Sequence[Any], statuses: list[MPI.Status] | None = None) -> bool:
        """Make progress on all requests, mpicoll's and mpi4py's; True once all are complete."""
        return _are_complete(requests) and _end(requests, statuses)

    @staticmethod
    def Testany(requests: Sequence[Any], status: MPI.Status | None = None) -> tuple[int, bool]:
        """Return (index of a complete request, True), or (MPI.UNDEFINED, False).

        Null requests, and persistent ones that are not started, do not count; (MPI.UNDEFINED, True) if all are such.
        """
        mine, others = _sorted(requests)
        for k in mine:
            if requests[k].Test(status):
                return k, True
        if not others:
            if not mine:
                clear(status)
            return MPI.UNDEFINED, not mine
        found, done = MPI.Request.Testany([requests[k] for k in others], status)
        if found != MPI.UNDEFINED:
            return others[found], True
        return MPI.UNDEFINED, done and not mine

    @staticmethod
    def Waitany(requests: Sequence[Any], status: MPI.Status | None = None) -> int:
        """Return the index of a complete request; MPI.UNDEFINED if there is none to wait for."""
        found: list[int] = []

        def look() -> bool:
            index, done = Several.Testany(requests, status)
            found[:] = [index]
            return done

        wait_for(look)
        return found[0]

    @staticmethod
    def Testsome(requests: Sequence[Any], statuses: list[MPI.Status] | None = None) -> list[int] | None:
        """Return the indices of complete requests, in order; None if there is none to wait for, as in `Testany`."""
        mine, others = _sorted(requests)
        ended: dict[int, MPI.Status | None] = {k: None for k in mine if requests[k].Test()}
        told: list[MPI.Status] = []
        some = MPI.Request.Testsome([requests[k] for k in others], told) if others else None
        if some is None and not mine:
            return None
        ended |= {others[k]: status for k, status in zip(some or (), told, strict=False)}
        indices = sorted(ended)
        for k, status in zip(indices, _room(statuses, len(indices)), strict=True):
            _write(status, ended[k])
        return indices

    @staticmethod
    def Waitsome(requests: Sequence[Any], statuses: list[MPI.Status] | None = None) -> list[int] | None:
        """Return the indices of complete requests once there is one; None if there is none to wait for."""
        found: list[list[int] | None] = []

        def look() -> bool:
            found[:] = [Several.Testsome(requests, statuses)]
            return found[0] is None or bool(found[0])

        wait_for(look)
        return found[0]

    @staticmethod
    def Startall(requests: Sequence[Any]) -> None:
        """Start all persistent requests in order, mpicoll's and mpi4py's."""
        for request in requests:
            request.Start()


def clear(status: MPI.Status | None) -> None:
    """Make a status the empty one: of any source and tag, with no element, not cancelled."""
    if status is not None:
        MPI.Request.Wait(MPI.Request(), status)


def check_status(name: str, status: object) -> None:
    """Refuse what is no status, before anything is waited for.

    Raises:
        TypeError: with the call's name.
    """
    if not (status is None or isinstance(status, MPI.Status)):
        raise TypeError(f"{name}: status is a {type(status).__name__}, not an MPI.Status")


def _sorted(requests: Sequence[Any]) -> tuple[list[int], list[int]]:
    """Return the indices of mpicoll's active requests, and of all of mpi4py's."""
    mine = [k for k, request in enumerate(requests) if isinstance(request, Several) and request]
    return mine, [k for k, request in enumerate(requests) if not isinstance(request, Several)]


def _are_complete(requests: Sequence[Any]) -> bool:
    """Make progress on all requests, and tell whether all are complete; they stay what they are."""
    if in_flight:
        advance_all()
    return all([_is_complete(request) for request in requests])


def _is_complete(request: Any) -> bool:
    look = getattr(request, "Get_status", None) or request.Test  # a persistent message has no status until its end
    return bool(look())


def _end(requests: Sequence[Any], statuses: list[MPI.Status] | None) -> Literal[True]:
    """End requests that are complete, and fill their statuses."""
    for request, status in zip(requests, _room(statuses, len(requests)), strict=True):
        request.Wait(status)
    return True


def _room(statuses: list[MPI.Status] | None, count: int) -> list[MPI.Status | None]:
    """Return so many statuses of a list, which grows to that, as mpi4py's."""
    if statuses is None:
        return [None] * count
    if isinstance(statuses, list):
        statuses += [MPI.Status() for _ in range(len(statuses), count)]
    return [*statuses, *[None] * count][:count]


def _write(status: MPI.Status | None, told: MPI.Status | None) -> None:
    """Make a status equal to another one, or the empty one."""
    if status is None or told is None:
        clear(status)
        return
    size = MPI._sizeof(MPI.Status)
    target, source = (MPI.buffer.fromaddress(MPI._addressof(one), size) for one in (status, told))
    target[:] = source
