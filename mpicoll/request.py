"""Requests of nonblocking and persistent calls."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from typing import Any, Literal, Protocol

from mpi4py import MPI

from mpicoll.dispatch.plan import Plan
from mpicoll.runtime.call.decision import Call
from mpicoll.runtime.call.flight import Prepared
from mpicoll.runtime.progress.traffic import Traffic
from mpicoll.runtime.progress.turns import advance_all, wait_for


class Begun(Protocol):
    """A call on its way: an operation, which goes on when somebody looks, or one that is enqueued on a device."""

    traffic: Traffic

    @property
    def done(self) -> bool:
        """True once it has ended."""

    def wait(self) -> Any:
        """Return when its result is safe for work on the call's stream."""

    def synchronize(self) -> None:
        """Return when its result is there."""

    def check(self) -> None:
        """Raise the error with which it has ended, if there is one."""

    def let_go(self) -> bool:
        """Leave it alone, and tell whether it goes on."""


class Request:
    """A call that was started and goes on inside `Test`, `Wait` and every other waiting call of mpicoll.

    It holds the arrays until the call is complete.  On each rank, calls on one communicator must be
    started in the same order; they may complete in any.  It is no MPI.Request, but `Waitall` and its
    siblings here take both kinds.  A call that has failed raises its error whenever it is asked for.
    """

    _freed = False

    def __init__(self, call: Call, operation: Begun | None) -> None:
        """Belong to a call that was started, or was not yet."""
        self._call = call
        self._operation = operation

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._called()}, {self._state()})"

    def _called(self) -> str:
        return f"I{self._call.method.lower()}"

    def _state(self) -> str:
        """Return in words how far the call is, without making progress."""
        operation = self._operation
        if operation is None:
            return "freed" if self._freed else "complete"
        if not operation.done:
            return "in flight"
        try:
            operation.check()
        except Exception as error:
            return f"failed: {type(error).__name__}"
        return "complete"

    @property
    def plan(self) -> Plan:
        """Plan of the call; waits until it is decided, for a communicator's first call."""
        if self._call.plan is None and self._operation is not None:
            operation = self._operation
            wait_for(lambda: self._call.plan is not None or operation.done)
            operation.check()
        assert self._call.plan is not None
        return self._call.plan

    def Test(self) -> bool:
        """Make progress on all calls; True once this one is complete."""
        operation = self._operation
        if operation is not None:
            if not operation.done:
                advance_all()
            if operation.done:
                operation.check()
                self._operation = None
        return self._operation is None

    def Wait(self, *, synchronize: bool = False) -> Literal[True]:
        """Return when the result is safe for work on the call's stream.

        On the path mapped that stream waits for the call, and the current one, and the host goes on.
        What interrupts it (a signal's handler that raises) leaves the call as it is: it can be waited for again.

        Args:
            synchronize: return when the call is complete on the device, too.

        Raises:
            StalledError: a rank did not come within the time limit; of a call on the path mapped it is raised
                here with `synchronize`, else by `Test` or the next call.
        """
        if self._operation is not None:
            if synchronize:
                self._operation.synchronize()
            else:
                self._operation.wait()
            self._operation = None
        return True

    test, wait = Test, Wait

    def __bool__(self) -> bool:
        """False once the call is known to be complete, as MPI.REQUEST_NULL."""
        return self._operation is not None

    def __del__(self) -> None:
        operation = getattr(self, "_operation", None)
        if operation is None or sys.is_finalizing():
            return
        if operation.let_go() and not operation.traffic.broken:  # it lives on
            warnings.warn(f"unfinished {self._call.method.lower()} request was dropped", ResourceWarning, stacklevel=2)

    def Free(self) -> None:
        """Let go of the request; the call goes on, and the arrays are held until it is complete."""
        self._freed = True
        if self._operation is not None:
            self._operation.let_go()
        self._operation = None

    @staticmethod
    def Waitall(requests: Sequence[Any], *, synchronize: bool = False) -> Literal[True]:
        """Wait for all requests, mpicoll's and mpi4py's; `synchronize` as in `Wait`."""
        for request in requests:
            if isinstance(request, Request):
                request.Wait(synchronize=synchronize)
        wait_for(lambda: Request.Testall(requests))
        return True

    @staticmethod
    def Testall(requests: Sequence[Any]) -> bool:
        """Make progress on all requests, mpicoll's and mpi4py's; True once all are complete."""
        return all([request.Test() for request in requests])

    @staticmethod
    def Testany(requests: Sequence[Any]) -> tuple[int, bool]:
        """Return (index of a complete request, True), or (MPI.UNDEFINED, False).

        Null requests, and persistent ones that are not started, do not count; (MPI.UNDEFINED, True) if all are such.
        """
        mine = [k for k, request in enumerate(requests) if isinstance(request, Request) and request]
        for k in mine:
            if requests[k].Test():
                return k, True
        others = [k for k, request in enumerate(requests) if not isinstance(request, Request)]
        if not others:
            return MPI.UNDEFINED, not mine
        found, done = MPI.Request.Testany([requests[k] for k in others])
        if found != MPI.UNDEFINED:
            return others[found], True
        return MPI.UNDEFINED, done and not mine

    @staticmethod
    def Waitany(requests: Sequence[Any]) -> int:
        """Return the index of a complete request; MPI.UNDEFINED if there is none to wait for."""
        found: list[int] = []

        def look() -> bool:
            index, done = Request.Testany(requests)
            found[:] = [index]
            return done

        wait_for(look)
        return found[0]


class PersistentRequest(Request):
    """A call that is planned and bound once and can be started many times.

    On each rank, persistent calls on one communicator must be made in the same order.
    """

    def __init__(self, prepared: Prepared) -> None:
        """Belong to a call that is planned and bound; it is not started."""
        super().__init__(prepared.call, None)
        self._prepared: Prepared | None = prepared

    def _called(self) -> str:
        return f"{self._call.method}_init"

    def _state(self) -> str:
        if self._operation is not None:
            return super()._state()
        return "freed" if self._prepared is None else "not active"

    def Start(self) -> None:
        """Start the call (again)."""
        if self._operation is not None:
            raise RuntimeError(f"{self._call.method.lower()}: the persistent request is still active")
        if self._prepared is None:
            raise RuntimeError(f"{self._call.method.lower()}: the persistent request was freed")
        self._operation = self._prepared.start()

    def Free(self) -> None:
        """Give everything back; an active call is completed first."""
        if self._operation is None or not self._operation.done:
            self.Wait()
        prepared, self._prepared, self._operation = self._prepared, None, None
        if prepared is not None:
            prepared.free()

    @staticmethod
    def Startall(requests: Sequence[PersistentRequest]) -> None:
        """Start all requests in order."""
        for request in requests:
            request.Start()
