"""Requests that are MPI's, too: each has a handle, which a thread completes where MPI itself waits."""

from __future__ import annotations

from typing import Any

from mpi4py import MPI

from mpicoll.request import PersistentRequest, PlainPersistentRequest, PlainRequest, Request
from mpicoll.runtime.call.decision import Call
from mpicoll.runtime.call.flight import Prepared
from mpicoll.runtime.progress.handles import (
    NULL,
    Attendant,
    Handle,
    leave_completed,
    open_calls,
    place_of,
    places,
    possible,
    rests,
    unused,
)


class NativeRequest(Request, MPI.Request):  # type: ignore[misc]  # more arguments than mpi4py's
    """A request with a handle of MPI's, so that MPI's own `Waitall` and its siblings take it."""

    __slots__ = "_call", "_freed", "_handle", "_operation"
    _handle: Handle | None

    def _finish(self) -> None:
        handle, self._handle, self._operation = self._handle, None, None
        if handle is None:
            return
        if open_calls.pop(handle, None) is None:
            leave_completed(self)
            return
        unused.append(handle)
        try:
            places[id(self)].value = NULL
        except KeyError:
            place_of(self).value = NULL

    def _fail(self) -> None:
        if self._handle is not None:
            self._handle.fail()

    def __bool__(self) -> bool:
        """False once the call is known to be complete, also by what MPI's own methods have waited for."""
        operation = self._operation
        if operation is None:
            return False
        if operation.done and not MPI.Request.__bool__(self) and operation.error is None:  # type: ignore[attr-defined]
            self._finish()
        return self._operation is not None

    __hash__ = object.__hash__


class NativePersistentRequest(PersistentRequest, NativeRequest):  # type: ignore[misc]
    """A persistent request with a handle of MPI's, which it keeps, and shows while it is active."""

    __slots__ = "_place", "_prepared"
    _place: Any

    def Start(self) -> None:
        """Start the call (again)."""
        super().Start()
        handle = self._handle
        if handle is None:
            handle = self._handle = unused.pop() if unused else Handle()
        open_calls[handle] = self._operation
        self._place.value = handle.value
        if rests[0]:
            Attendant.wake()

    def _finish(self) -> None:
        operation, self._operation = self._operation, None
        if operation is None or self._handle is None:  # it is not active
            return
        if open_calls.pop(self._handle, None) is not None:
            self._place.value = NULL
        else:
            self._handle = None
            leave_completed(self)

    def Free(self) -> None:
        """Give everything back; an active call is completed first."""
        super().Free()
        self._let_go_of_handle()

    def __del__(self) -> None:
        super().__del__()
        self._let_go_of_handle()

    def _let_go_of_handle(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            unused.append(handle)


_new, _new_persistent = NativeRequest.__new__, NativePersistentRequest.__new__


def begun(call: Call, operation: Any) -> Request:
    """Return the request of a call that was started.

    Device calls have no handle: a thread that asks a device disturbs what another one captures.
    """
    if operation.device >= 0 or not possible[0]:
        return PlainRequest(call, operation)
    try:
        handle = unused.pop()
    except IndexError:
        handle = Handle()
    open_calls[handle] = operation
    if rests[0]:
        Attendant.wake()
    self = _new(NativeRequest, handle.request)
    self._call, self._operation, self._handle = call, operation, handle
    return self


def made(prepared: Prepared) -> PersistentRequest:
    """Return the request of a persistent call that is planned and bound; as in `begun`."""
    if prepared.operands.device >= 0 or not possible[0]:
        return PlainPersistentRequest(prepared)
    self = _new_persistent(NativePersistentRequest)
    self._call, self._operation, self._prepared, self._handle = prepared.call, None, prepared, None
    self._place = place_of(self)
    return self
