"""Operations in flight: who makes progress, and when.

Every call that waits advances all operations of this process in turn, so that no order of
waiting can make two ranks wait for each other.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from mpicoll.runtime.bound import Bound
from mpicoll.settings import settings

if TYPE_CHECKING:
    from mpicoll.runtime.channel import Channel

_lock = threading.RLock()
_active: list[Operation] = []


class Operation:
    """One bound program on its way.

    Attributes:
        bound: the program.
        done: it has ended.
    """

    def __init__(
        self,
        bound: Bound,
        keep: object = None,
        finish: Callable[[], object] | None = None,
        gate: Callable[[], bool] | None = None,
        channel: Channel | None = None,
    ) -> None:
        """Start it once `gate` says so; `keep` lives until it ends, then `finish` is called."""
        self.bound, self.keep, self.finish, self.gate = bound, keep, finish, gate
        self.channel = channel
        self.name = bound.name.format(channel.calls if channel else "")
        self.position = 0
        self.done = False
        with _lock:
            _active.append(self)
            self.advance()

    def advance(self) -> bool:
        """Go on as far as possible without waiting; True if it has ended."""
        with _lock:
            if self.done:
                return True
            try:
                if not self._go_on():
                    return False
            except BaseException:
                self._end()
                raise
            self._end()
            return True

    def _go_on(self) -> bool:
        if self.gate is not None:
            if not self.gate():
                return False
            self.gate = None
        calls, polls = self.bound.calls, self.bound.polls
        while self.position < len(calls):
            poll = polls[self.position]
            if poll is not None and not poll():
                return False
            calls[self.position]()
            self.position += 1
        return True

    def wait(self) -> None:
        """Go on until it has ended, advancing all others in between."""
        channel, limit = self.channel, settings.timeout
        watch = channel.watch if channel else None
        place, since = self.position, time.monotonic()
        while not self.advance():
            advance_all()
            os.sched_yield()
            if watch is None:
                continue
            watch.look()
            if self.position != place or self.gate is not None:  # the caller's own work may take its time
                place, since = self.position, time.monotonic()
            elif time.monotonic() - since > limit:
                self._stall(limit)

    def _stall(self, limit: float) -> None:
        """Give up: raise what is known about why nothing goes on."""
        assert self.channel is not None
        with _lock:
            _active.remove(self)
            self.done = True
        what = self.bound.pending(self.position)
        raise self.channel.stalled(f"{self.name}: rank {self.channel.rank}, {what} for {limit:g} s")

    def _end(self) -> None:
        _active.remove(self)
        self.done = True
        finish, self.keep, self.finish = self.finish, None, None
        if finish is not None:
            finish()


def advance_all() -> None:
    """Advance all operations in flight."""
    with _lock:
        for operation in _active:
            operation.advance()


def active() -> int:
    """Return how many operations are in flight."""
    return len(_active)


def run(bound: Bound, channel: Channel) -> None:
    """Run a program to its end; with others in flight, advancing them too."""
    if _active or channel.watch is not None:
        Operation(bound, channel=channel).wait()
    else:
        bound.run()
