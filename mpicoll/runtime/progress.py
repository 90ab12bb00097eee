"""Operations in flight: who makes progress, and when.

Every call that waits advances all operations of this process in turn, so that no order of
waiting can make two ranks wait for each other.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from mpicoll.runtime.bound import Bound
from mpicoll.settings import settings

if TYPE_CHECKING:
    from mpicoll.runtime.channel import Channel

#: seconds that the helper thread leaves to others between two looks
PAUSE = 20e-6

_lock = threading.RLock()
#: the operations in flight; always the same list
in_flight: list[Operation] = []


class Operation:
    """One bound program on its way.

    Attributes:
        bound: the program.
        done: it has ended.
    """

    def __init__(
        self,
        bind: Callable[[], Bound],
        channel: Channel,
        *,
        keep: object = None,
        finish: Callable[[], object] | None = None,
        gate: Callable[[], bool] | None = None,
        device: int = -1,
    ) -> None:
        """Bind and start it once `gate` says so; `keep` lives until it ends, then `finish` is called."""
        self.bind: Callable[[], Bound] | None = bind
        self.bound = Bound()
        self.keep, self.finish, self.gate = keep, finish, gate
        self.channel, self.device = channel, device
        self.number = channel.calls
        self.position = 0
        self.done = False
        self.error: BaseException | None = None
        with _lock:
            in_flight.append(self)
            self._advance()
        if settings.progress == "thread" and not self.done:
            _Helper.wake()

    def ended(self) -> bool:
        """Go on as far as possible without waiting; True if it has ended."""
        with _lock:
            return self._advance()

    def check(self) -> None:
        """Raise what the operation has met, once."""
        error, self.error = self.error, None
        if error is not None:
            raise error

    def _advance(self) -> bool:
        if self.done:
            return True
        try:
            with _current(self.device):
                if self._go_on():
                    self._end()
        except BaseException as error:  # kept for the one who waits for this operation
            self.error = error
            self.channel.spoiled(self.bound, self.position, error)
            self._end(failed=True)
        return self.done

    def _go_on(self) -> bool:
        if self.bind is not None:
            if self.gate is not None and not self.gate():
                return False
            self.bound, self.bind, self.gate = self.bind(), None, None
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
        wait_for(self.ended, [self])
        self.check()

    def _stall(self, limit: float) -> None:
        """Give up this and all other operations of its communicator: raise what is known about why."""
        what = self.bound.pending(self.position)
        name = self.bound.name.format(self.number)
        error = self.channel.stalled(f"{name}: rank {self.channel.rank}, {what} for {limit:g} s")
        with _lock:
            for operation in [o for o in in_flight if o.channel is self.channel]:
                operation.error = None if operation is self else error
                operation._end(failed=True)
        raise error

    def _end(self, failed: bool = False) -> None:
        if self in in_flight:
            in_flight.remove(self)
        self.done = True
        finish, self.keep, self.finish = self.finish, None, None
        if finish is not None and not failed:
            finish()


class _Helper(threading.Thread):
    """Makes progress while the program does something else; costs it the interpreter's lock now and then."""

    _only: _Helper | None = None

    def __init__(self) -> None:
        super().__init__(name="mpicoll-progress", daemon=True)
        self.work = threading.Event()

    @classmethod
    def wake(cls) -> None:
        """Go on making progress until nothing is in flight."""
        if cls._only is None or not cls._only.is_alive():
            cls._only = cls()
            cls._only.start()
        cls._only.work.set()

    def run(self) -> None:
        """Advance all operations, and sleep while there are none."""
        while True:
            self.work.wait()
            while in_flight:
                advance_all()
                time.sleep(PAUSE)
            self.work.clear()


def advance_all() -> None:
    """Advance all operations in flight."""
    with _lock:
        for operation in tuple(in_flight):
            operation._advance()


def wait_for(done: Callable[[], bool], operations: list[Operation]) -> None:
    """Make progress until done() is true; raises StalledError if none of the operations goes on in time."""
    places, since = [o.position for o in operations], time.monotonic()
    while not done():
        advance_all()
        os.sched_yield()
        limited = [o for o in operations if not o.done and o.channel.watch is not None]
        for operation in limited:
            operation.channel.watch.look()  # type: ignore[union-attr]  # `limited` has only those with one
        limit = settings.timeout
        if not limited or limit <= 0:
            continue
        now = [o.position for o in operations]
        if now != places or any(o.gate is not None for o in limited):  # the caller's own work may take its time
            places, since = now, time.monotonic()
        elif time.monotonic() - since > limit:
            limited[0]._stall(limit)


def drain(seconds: float) -> None:
    """Go on for so long, or until nothing is in flight: for the end of a program."""
    end = time.monotonic() + seconds
    while in_flight and time.monotonic() < end:
        advance_all()
        os.sched_yield()


def run(bound: Bound, channel: Channel) -> None:
    """Run a program to its end; with others in flight, advancing them too.

    A program that only launches ends on the device.  Its end is awaited where messages are in flight: the
    caller may wait for the device next, and nobody would advance what other ranks wait for before they launch.
    """
    if in_flight or channel.watch is not None:
        messages = any(o.bind is not None or o.bound.requests for o in in_flight)
        Operation(lambda: bound, channel, device=bound.device).wait()
        if messages and bound.mark is not None:
            wait_for(bound.mark(), [])
        return
    try:
        bound.run()
    except BaseException as error:
        channel.spoiled(bound, bound.reached, error)
        raise


def _current(device: int) -> AbstractContextManager[object]:
    """Make a device current for this thread."""
    if device < 0:
        return nullcontext()
    from mpicoll.runtime.device import on_device

    return on_device(device)
