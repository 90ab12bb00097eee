"""Calls that do not block and are nothing but launches: over for the host once they are enqueued.

A mark on the caller's stream comes before the kernel on the side stream, and the kernel before a mark behind it, for
which the caller's stream waits where `Wait` is called.
"""

from __future__ import annotations

import sys
from typing import Any

import cupy

from mpicoll.runtime.context.context import Context
from mpicoll.runtime.cuda.streams import is_open
from mpicoll.runtime.program.bound import Bound
from mpicoll.runtime.progress import running

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
            self.lingering, before = [], self.lingering
            for event, keep in before:
                self.leave(event, keep)
        return self.unused.pop() if self.unused else _event()

    def leave(self, event: Any, keep: object) -> None:
        """Keep what a call needs until its end."""
        if _runtime.eventQuery(event.ptr) == 0:
            self.unused.append(event)
        else:
            self.lingering.append((event, keep))


class EnqueuedCall:
    """A call that is enqueued.

    Attributes:
        traffic: of the communicator whose call it is.
    """

    __slots__ = "_caller", "_end", "_hand", "_keep", "traffic"

    def __init__(self, traffic: Context, bound: Bound, hand: HandoverEvents, caller: int, keep: object) -> None:
        """Enqueue a program on the side stream, after what is on the caller's stream.

        Args:
            traffic: see above.
            bound: the program.
            hand: events, and the side stream.
            caller: address of the caller's stream.
            keep: lives until the end of the call.
        """
        self.traffic, self._hand, self._caller, self._keep = traffic, hand, caller, keep
        side, begin = hand.side, hand.begin.ptr
        self._end: Any = hand.end()
        _runtime.eventRecord(begin, caller)
        _runtime.streamWaitEvent(side, begin)
        try:
            for action in bound.actions:
                action()
        except BaseException as error:
            running.failed(bound, traffic, error)
            raise
        _runtime.eventRecord(self._end.ptr, side)

    @property
    def done(self) -> bool:
        """True once its work is complete, or other work waits for it."""
        if self._end is not None and _runtime.eventQuery(self._end.ptr) == 0:
            self._give_back()
        return self._end is None

    def check(self) -> None:
        """Raise StalledError if a rank did not come to a kernel within the time limit."""
        self.traffic.check()

    def wait(self) -> None:
        """Let the caller's stream wait for its end, and the current stream; the host where these cannot."""
        if self._end is None:
            return
        end = self._end.ptr
        caller, current = self._caller, _current_stream().ptr
        _let_wait(caller, end)
        if current != caller:
            _let_wait(current, end)
        self._give_back()

    def synchronize(self) -> None:
        """Return when its work is complete."""
        if self._end is not None:
            _runtime.eventSynchronize(self._end.ptr)
            self._give_back()
        self.check()

    def let_go(self) -> None:
        """Leave it alone; what it needs lives until its end."""
        if self._end is not None and not sys.is_finalizing():
            self._hand.leave(self._end, self._keep)
            self._end = self._keep = None

    def _give_back(self) -> None:
        """Let others have the event: a stream that was told to wait for it does not look at it again."""
        self._hand.unused.append(self._end)
        self._end = self._keep = None


def _let_wait(stream: int, event: int) -> None:
    """Let a stream wait for an event; the host, where nothing can be enqueued on the stream."""
    if is_open(stream):
        _runtime.streamWaitEvent(stream, event)
    else:
        _runtime.eventSynchronize(event)


def _event() -> Any:
    return cupy.cuda.Event(disable_timing=True)
