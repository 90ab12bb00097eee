"""Requests of nonblocking and persistent calls."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal

from mpi4py import MPI

from mpicoll.dispatch.plan import Plan
from mpicoll.runtime.progress import Operation, wait_for


class Request:
    """A call that was started and goes on inside `Test`, `Wait` and every other waiting call of mpicoll.

    It holds the arrays until the call is complete.  On each rank, calls on one communicator must be
    started in the same order; they may complete in any.  It is no MPI.Request, but `Waitall` and its
    siblings here take both kinds.

    Attributes:
        plan: what runs, and why.
    """

    def __init__(self, plan: Plan, start: Callable[[], Operation]) -> None:
        """Start the call."""
        self.plan = plan
        self._operation: Operation | None = start()

    def Test(self) -> bool:
        """Make progress; True once the call is complete."""
        operation = self._operation
        if operation is not None and operation.ended():
            self._operation = None
            operation.check()
        return self._operation is None

    def Wait(self) -> Literal[True]:
        """Return when the call is complete and the result is safe for work on the call's stream."""
        operation, self._operation = self._operation, None
        if operation is not None:
            operation.wait()
        return True

    test, wait = Test, Wait

    def __bool__(self) -> bool:
        """False once the call is known to be complete, as MPI.REQUEST_NULL."""
        return self._operation is not None

    def __del__(self) -> None:
        operation = getattr(self, "_operation", None)
        if (
            operation is not None and not operation.done and not operation.channel.broken
        ):  # it lives on among the operations in flight
            warnings.warn(
                f"unfinished {self.plan.key.facts.collective} request was dropped", ResourceWarning, stacklevel=2
            )

    @staticmethod
    def Waitall(requests: Sequence[Any]) -> Literal[True]:
        """Wait for all requests, mpicoll's and mpi4py's."""
        for request in requests:
            if isinstance(request, Request):
                request.Wait()
        wait_for(lambda: Request.Testall(requests), [])
        return True

    @staticmethod
    def Testall(requests: Sequence[Any]) -> bool:
        """Make progress on all requests, mpicoll's and mpi4py's; True once all are complete."""
        return all([request.Test() for request in requests])

    @staticmethod
    def Testany(requests: Sequence[Any]) -> tuple[int, bool]:
        """Return (index of a complete request, True), or (MPI.UNDEFINED, False); null requests do not count."""
        alive = [k for k, request in enumerate(requests) if request]
        for k in alive:
            if requests[k].Test():
                return k, True
        return MPI.UNDEFINED, not alive

    @staticmethod
    def Waitany(requests: Sequence[Any]) -> int:
        """Return the index of a complete request; MPI.UNDEFINED if all are null."""
        found: list[int] = []

        def look() -> bool:
            index, done = Request.Testany(requests)
            found[:] = [index]
            return done

        wait_for(look, [r._operation for r in requests if isinstance(r, Request) and r._operation is not None])
        return found[0]


class PersistentRequest(Request):
    """A call that is planned and bound once and can be started many times.

    On each rank, persistent calls on one communicator must be made and started in the same order.
    """

    def __init__(self, plan: Plan, start: Callable[[], Operation], free: Callable[[], object]) -> None:
        """Keep how to start and to free the call; it is not started."""
        self.plan = plan
        self._operation = None
        self._start: Callable[[], Operation] | None = start
        self._free = free

    def Start(self) -> None:
        """Start the call (again)."""
        if self._operation is not None:
            raise RuntimeError(f"{self.plan.key.facts.collective}: the persistent request is still active")
        if self._start is None:
            raise RuntimeError(f"{self.plan.key.facts.collective}: the persistent request was freed")
        self._operation = self._start()

    def Free(self) -> None:
        """Give everything back; an active call is completed first."""
        self.Wait()
        if self._start is not None:
            self._start = None
            self._free()

    @staticmethod
    def Startall(requests: Sequence[PersistentRequest]) -> None:
        """Start all requests in order."""
        for request in requests:
            request.Start()
