"""Order of calls on CUDA streams: of a communicator's calls with each other, and with the caller's stream."""

from __future__ import annotations

import cupy

from mpicoll.runtime.cuda.streams import is_open

_runtime = cupy.cuda.runtime


class Fence:
    """Orders a communicator's calls on one device: scratch is not reused while the last call still needs it."""

    def __init__(self) -> None:
        """Start before the first call."""
        self.event = cupy.cuda.Event(disable_timing=True)
        self.stream: int | None = None

    def drain(self, stream: int) -> None:
        """Wait for the last call, if it was on another stream."""
        if self.stream is not None and self.stream != stream:
            _runtime.eventSynchronize(self.event.ptr)

    def is_drained(self, stream: int) -> bool:
        """Tell whether drain would return at once."""
        return self.stream in (None, stream) or bool(_runtime.eventQuery(self.event.ptr) == 0)

    def enter(self, stream: int) -> None:
        """Wait until what comes before this call on the stream, and the last call, are complete."""
        _runtime.streamSynchronize(stream)
        self.drain(stream)

    def is_open(self, stream: int) -> bool:
        """Tell whether enter would return at once."""
        return self.is_drained(stream) and bool(_runtime.streamQuery(stream) == 0)

    def leave(self, stream: int) -> None:
        """Mark the end of a call."""
        _runtime.eventRecord(self.event.ptr, stream)
        self.stream = stream


class Handover:
    """Orders a call that does not block: after what is on the caller's stream at its start, before what comes later.

    Attributes:
        ptr: address of the caller's stream.
        side: address of the stream that the call works on, known before it begins.
    """

    def __init__(self, device: int, caller: int, side: int = 0) -> None:
        """Mark the place on the caller's stream after which the call comes."""
        self.device, self.side = device, side
        self.ptr = caller
        with cupy.cuda.Device(device):
            self.begin = cupy.cuda.Event(disable_timing=True)
            self.end = cupy.cuda.Event(disable_timing=True)
        _runtime.eventRecord(self.begin.ptr, caller)

    def ready(self) -> bool:
        """Tell whether what comes before the call is complete."""
        return bool(_runtime.eventQuery(self.begin.ptr) == 0)

    def synchronize(self) -> None:
        """Wait on the host for what the call enqueued."""
        _runtime.eventSynchronize(self.end.ptr)

    def synchronize_caller(self) -> None:
        """Wait on the host for all that is on the caller's stream."""
        _runtime.streamSynchronize(self.ptr)

    def finish(self) -> None:
        """Let the caller's stream wait for what the call enqueued; the host, if that stream is captured by now."""
        _runtime.eventRecord(self.end.ptr, self.side)
        if is_open(self.ptr):
            _runtime.streamWaitEvent(self.ptr, self.end.ptr)
        else:
            _runtime.eventSynchronize(self.end.ptr)
