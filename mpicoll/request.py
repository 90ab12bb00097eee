"""Requests of nonblocking and persistent calls."""

from __future__ import annotations

import sys
import warnings
from typing import Any, Literal, NoReturn, Protocol

from mpi4py import MPI

from mpicoll.dispatch.plan import Plan
from mpicoll.errors import UnsupportedError
from mpicoll.runtime.call.decision import Call
from mpicoll.runtime.call.flight import Prepared
from mpicoll.runtime.progress.traffic import Traffic
from mpicoll.runtime.progress.turns import advance_all, wait_for
from mpicoll.several import Several, check_status, clear


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


class Request(Several):
    """A call that was started and goes on inside `Test`, `Wait` and every other waiting call of mpicoll.

    It holds the arrays until the call is complete.  On each rank, calls on one communicator must be
    started in the same order; they may complete in any.  That of a call on host arrays is an MPI.Request, too,
    where MPI allows threads; `Waitall` and its siblings here take all kinds.  A call that has failed raises
    its error whenever it is asked for.
    """

    __slots__ = ()
    _kind = "Request"
    _call: Call
    _operation: Begun | None
    _freed: bool

    def __repr__(self) -> str:
        return f"{self._kind}({self._called()}, {self._state()})"

    def _called(self) -> str:
        return f"I{self._call.method.lower()}"

    def _state(self) -> str:
        """Return in words how far the call is, without making progress."""
        operation = self._operation
        if operation is None:
            return "freed" if getattr(self, "_freed", False) else "complete"
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

    def Get_status(self, status: MPI.Status | None = None) -> bool:
        """Make progress on all calls; True once this one is complete, which stays what it is.

        Args:
            status: becomes the empty status, once it is.
        """
        if status is not None:
            check_status(f"{self._call.method}: Get_status", status)
        operation = self._operation
        if operation is not None:
            if not operation.done:
                advance_all()
            if not operation.done:
                return False
            try:
                operation.check()
            except Exception:
                self._fail()
                raise
        clear(status)
        return True

    def Test(self, status: MPI.Status | None = None) -> bool:
        """Make progress on all calls; True once this one is complete; `status` as in `Get_status`."""
        if not self.Get_status(status):
            return False
        self._finish()
        return True

    def Wait(self, status: MPI.Status | None = None, *, synchronize: bool = False) -> Literal[True]:
        """Return when the result is safe for work on the call's stream.

        On the path mapped that stream waits for the call, and the current one, and the host goes on.
        What interrupts it (a signal's handler that raises) leaves the call as it is: it can be waited for again.

        Args:
            status: becomes the empty status.
            synchronize: return when the call is complete on the device, too.

        Raises:
            StalledError: a rank did not come within the time limit; of a call on the path mapped it is raised
                here with `synchronize`, else by `Test` or the next call.
        """
        if status is not None:
            check_status(f"{self._call.method}: Wait", status)
        if self._operation is not None:
            try:
                if synchronize:
                    self._operation.synchronize()
                else:
                    self._operation.wait()
            except Exception:
                if self._operation.done:
                    self._fail()
                raise
            self._finish()
        if status is not None:
            clear(status)
        return True

    test, wait, get_status = Test, Wait, Get_status

    def _finish(self) -> None:
        """Forget the call."""
        self._operation = None  # type: ignore[misc]  # a slot of the subclasses, which are of two layouts

    def _fail(self) -> None:
        """Note that the call's error was raised."""

    def __bool__(self) -> bool:
        """False once the call is known to be complete, as MPI.REQUEST_NULL."""
        return self._operation is not None

    def __del__(self) -> None:
        operation = getattr(self, "_operation", None)
        if operation is None or sys.is_finalizing():
            return
        if operation.let_go() and not operation.traffic.broken:  # it lives on
            warnings.warn(f"unfinished {self._call.method.lower()} request was dropped", ResourceWarning, stacklevel=2)
        self._finish()

    def Free(self) -> None:
        """Let go of the request; the call goes on, and the arrays are held until it is complete."""
        self._freed = True  # type: ignore[misc]
        if self._operation is not None:
            self._operation.let_go()
        self._finish()

    def free(self) -> None:
        """Let go of the request, as `Free`."""
        self.Free()

    def Cancel(self) -> NoReturn:
        """Refuse to cancel the call.

        Raises:
            UnsupportedError: always; MPI cancels no collective either.
        """
        raise UnsupportedError(f"{self._call.method}: Cancel: a collective cannot be cancelled; Wait for it or Free it")

    cancel = Cancel


class PersistentRequest(Request):
    """A call that is planned and bound once and can be started many times.

    On each rank, persistent calls on one communicator must be made in the same order.  It is no MPI.Prequest, whose
    `Startall` starts without a word to mpicoll; its own `Startall` takes both kinds.
    """

    __slots__ = ()
    _kind = "PersistentRequest"
    _prepared: Prepared | None

    def _called(self) -> str:
        return f"{self._call.method}_init"

    def _state(self) -> str:
        if self._operation is not None:
            return super()._state()
        return "freed" if self._prepared is None else "not active"

    def Start(self) -> None:
        """Start the call (again)."""
        if self._operation is not None and self:
            raise RuntimeError(f"{self._call.method.lower()}: the persistent request is still active")
        if self._prepared is None:
            raise RuntimeError(f"{self._call.method.lower()}: the persistent request was freed")
        self._operation = self._prepared.start()  # type: ignore[misc]

    def Free(self) -> None:
        """Give everything back; an active call is completed first."""
        if self._operation is None or not self._operation.done:
            self.Wait()
        self._finish()
        prepared, self._prepared = self._prepared, None  # type: ignore[misc]
        if prepared is not None:
            prepared.free()


class PlainRequest(Request):
    """A request that MPI knows nothing of."""

    __slots__ = "__weakref__", "_call", "_freed", "_operation"

    def __init__(self, call: Call, operation: Begun) -> None:
        """Belong to a call that was started."""
        self._call, self._operation = call, operation


class PlainPersistentRequest(PersistentRequest):
    """A persistent request that MPI knows nothing of."""

    __slots__ = "__weakref__", "_call", "_freed", "_operation", "_prepared"

    def __init__(self, prepared: Prepared) -> None:
        """Belong to a call that is planned and bound; it is not started."""
        self._call, self._operation, self._prepared = prepared.call, None, prepared
