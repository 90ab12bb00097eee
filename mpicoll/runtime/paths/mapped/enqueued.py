"""Calls that do not block and are nothing but launches: over for the host once they are enqueued.

A mark on the caller's stream comes before the kernel on the side stream, and the kernel before a mark behind it, for
which the caller's stream waits where `Wait` is called.
"""

from __future__ import annotations

from typing import Any

import cupy

from mpicoll.runtime.context.context import Context
from mpicoll.runtime.cuda.streams import is_open
from mpicoll.runtime.program.bound import Bound
from mpicoll.runtime.progress.turns import in_flight, wait_for

_runtime, _current_stream = cupy.cuda.runtime, cupy.cuda.get_current_stream


class HandoverEvents:
    """The events that order calls on a side stream with their callers' streams.

    Attributes:
        side: address of the side stream.
        begin: recorded on the caller's stream; the side stream has been told to wait before it is recorded again.
        unused: events for ends of calls.
        lingering: (event, what must live until then) of calls that nobody waits for.
    """

    def __init__(self, side: int) -> None:
        self.side, self.begin = side, _event()
        self.unused: list[Any] = []
        self.lingering: list[tuple[Any, object]] = []

    def end(self) -> Any:
        """Return an event for the end of a call."""
        if self.lingering:
            self.look()
        return self.unused.pop() if self.unused else _event()

    def look(self) -> None:
        """Let go of what was needed until the ends of calls that have come."""
        self.lingering, before = [], self.lingering
        for event, keep in before:
            if _runtime.eventQuery(event.ptr) == 0:
                self.unused.append(event)
            else:
                self.lingering.append((event, keep))


class EnqueuedCall:
    """A call that is enqueued.

    Attributes:
        traffic: of the communicator whose call it is.
    """

    device = 0  # for those who ask whether it is a call on a device
    __slots__ = "_caller", "_device", "_end", "_hand", "_keep", "traffic"

    def __init__(self, traffic: Context, bound: Bound, hand: HandoverEvents, caller: int, keep: object) -> None:
        """Enqueue a program on the side stream, after what is on the caller's stream; its device is current.

        Args:
            traffic: see above.
            bound: the program.
            hand: events, and the side stream.
            caller: address of the caller's stream.
            keep: lives until the end of the call, as the caller's stream must.
        """
        self.traffic, self._hand, self._caller, self._keep = traffic, hand, caller, keep
        self._device = bound.device
        self._end: Any = None
        side, begin, end = hand.side, hand.begin.ptr, hand.end()
        _runtime.eventRecord(begin, caller)
        _runtime.streamWaitEvent(side, begin)
        for action in bound.actions:  # where one raises, nothing is on its way that the others wait for
            action()
        _runtime.eventRecord(end.ptr, side)
        self._end = end

    @property
    def done(self) -> bool:
        """True once its work is complete, or other work waits for it."""
        if self._end is not None and _runtime.eventQuery(self._end.ptr) == 0:
            self._give_back()
        return self._end is None

    def check(self) -> None:
        """Raise StalledError if a rank did not come to a kernel within the time limit."""
        self.traffic.look()

    def wait(self) -> None:
        """Let the caller's stream wait for its end, and the current stream; the host where these cannot."""
        if self._end is None:
            return
        caller, end, current = self._caller, self._end.ptr, _current_stream().ptr
        same = _runtime.getDevice() == self._device
        if same:
            _let_wait(caller, end)
        else:  # a stream of address 0 is the current device's
            with cupy.cuda.Device(self._device):
                _let_wait(caller, end)
        if current != caller or not same:
            _let_wait(current, end)
        self._give_back()

    def synchronize(self) -> None:
        """Return when its work is complete; meanwhile all calls in flight go on."""
        if self._end is not None:
            await_event(self._end)
            self._give_back()
        self.check()

    def let_go(self) -> bool:
        """Leave it alone, and tell whether it may not have ended; what it needs lives until its end."""
        if self._end is None:
            return False
        self._hand.lingering.append((self._end, self._keep))
        self._end = self._keep = None
        return True

    def _give_back(self) -> None:
        """Let others have the event: a stream that was told to wait for it does not look at it again."""
        self._hand.unused.append(self._end)
        self._end = self._keep = None


def await_event(event: Any) -> None:
    """Return when an event has come; calls in flight go on, for other ranks may wait for their messages first."""
    if in_flight:
        wait_for(lambda: bool(_runtime.eventQuery(event.ptr) == 0))
    _runtime.eventSynchronize(event.ptr)


def _let_wait(stream: int, event: int) -> None:
    """Let a stream wait for an event; the host, where nothing can be enqueued on the stream."""
    if is_open(stream):
        _runtime.streamWaitEvent(stream, event)
    else:
        _runtime.eventSynchronize(event)


def _event() -> Any:
    return cupy.cuda.Event(disable_timing=True)
