"""Operations in flight: who makes progress, and when.

Every call that waits advances all operations of this process in turn, so that no order of
waiting can make two ranks wait for each other.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from inspect import GEN_CLOSED, getgeneratorstate
from typing import TYPE_CHECKING, Any

from mpicoll.runtime import faults
from mpicoll.runtime.bound import Bound
from mpicoll.runtime.exchange import Condition, Routine
from mpicoll.settings import settings

if TYPE_CHECKING:
    from mpicoll.runtime.channel import Channel

#: seconds that the helper thread leaves to others between two looks
PAUSE = 20e-6
#: lane of calls whose messages follow each other; persistent requests have others
COMMON = 0

_lock = threading.RLock()
#: the operations in flight; always the same list
in_flight: list[Operation] = []


class Operation:
    """A routine on its way: it goes on whenever somebody looks, until it has ended.

    Operations of one lane of a communicator begin in the order in which they are made, each as soon as the one
    before has started all of its messages, so that messages of equal tags come in the order of the calls.

    Attributes:
        result: of the routine, if it sets one.
        bound: the program that runs, an empty one before.
        number: of the call on its communicator.
        started: all of its messages are started, or it has ended.
        done: it has ended.
        own: what it waits for is this rank's own work, which may take its time.
        ran: its program has begun.
        refused: another rank's call has raised.
        error: the error with which it has ended.
    """

    def __init__(
        self,
        channel: Channel,
        make: Callable[[Operation], Routine[Any]],
        *,
        name: str = "",
        keep: object = None,
        device: int = -1,
        lane: int = COMMON,
    ) -> None:
        """Begin, as far as that goes without waiting.

        Args:
            channel: whose operation it is.
            make: returns the routine.
            name: for messages, before a program runs that has a name.
            keep: lives until the operation ends.
            device: current device while it goes on, -1 for none.
            lane: see above.
        """
        self.channel, self.keep, self.device, self.lane = channel, keep, device, lane
        self.bound, self.number, self.name = Bound(), channel.calls, name
        self.position = self.moved = 0
        self.condition: Condition | None = None
        self.started = self.done = self.own = self.ran = self.refused = False
        self.error: BaseException | None = None
        self.result: Any = None
        self.routine = make(self)
        self.shares_errors, limit = bool(settings.errors), settings.timeout
        self.patience = faults.Patience(limit) if limit > 0 else None
        with _lock:
            before, channel.last[lane] = channel.last.get(lane), self
            if before is not None and not before.started:
                self.condition = lambda: before.started
            in_flight.append(self)
            self._advance()
        if settings.progress == "thread" and not self.done:
            _Helper.wake()

    def check(self) -> None:
        """Raise the error with which it has ended, if there is one."""
        if self.error is not None:
            raise self.error

    def wait(self) -> Any:
        """Return the result, having advanced all operations until this one has ended."""
        wait_for(lambda: self.done)
        self.check()
        return self.result

    def pending(self) -> str:
        """Say what it waits for."""
        if self.bound.program is not None:
            return self.bound.pending(self.position)
        return "waiting for all ranks to make the call"

    def pending_bytes(self) -> int:
        """Return the bytes of the messages that it waits for."""
        return self.bound.pending_bytes(self.position)

    def _advance(self) -> None:
        if self.done:
            return
        try:
            with _current(self.device):
                if self._goes_to_the_end():
                    self._end()
                    return
                if self.shares_errors:
                    self._heed_refusals()
                if self.patience and not self.own and self.patience.is_over(self.moved):
                    self._give_up(faults.stall(self, self.patience))
        except BaseException as error:
            if not isinstance(error, Exception) and getgeneratorstate(self.routine) != GEN_CLOSED:
                raise  # interrupted while it waited: nothing is lost, it can be waited for again
            self._fail(error)
            if not isinstance(error, Exception):
                raise

    def _heed_refusals(self) -> None:
        """Raise what another rank's call has raised, where ranks share their errors."""
        refusals = self.channel.refusals
        error = refusals.look(self.number, self.title()) if refusals else None
        if error is not None:
            self.refused = True
            raise error

    def title(self) -> str:
        """Return the call with its number, for messages."""
        return self.bound.name.format(self.number) or self.name or f"call #{self.number}"

    def _goes_to_the_end(self) -> bool:
        if self.condition is not None and not self.condition():
            return False
        if not self.moved:
            self.channel.check()
        routine = self.routine
        for self.condition in routine:  # an interrupt cannot come between the two, and lose a condition
            self.moved += 1
            self.channel.moved += 1
            if not self.condition():
                return False
        return True

    def _fail(self, error: BaseException) -> None:
        name = self.title()
        self.error = faults.explained(error, name, self.channel.rank, self.pending())
        if not isinstance(error, Exception):
            self.error = RuntimeError(f"{name}: rank {self.channel.rank}: {error!r} came in the middle of a step")
        self.channel.spoiled(self.bound, self.position, error)
        if self.shares_errors and self.ran and not self.refused and self.channel.refusals:
            self.channel.refusals.post(self.number, error, final=bool(self.channel.broken))
        self._end()

    def _give_up(self, error: BaseException | None) -> None:
        """End this and all other operations of its communicator with an error, if there is one."""
        if error is not None:
            for operation in [o for o in in_flight if o.channel is self.channel]:
                operation.error = error
                operation._end()

    def _end(self) -> None:
        if self in in_flight:
            in_flight.remove(self)
        if self.channel.last.get(self.lane) is self:
            del self.channel.last[self.lane]
        self.keep = self.condition = None
        self.started = self.done = True
        with suppress(ValueError):  # it is running now
            self.routine.close()


def steps(operation: Operation, bound: Bound) -> Routine[None]:
    """Run a program within an operation."""
    channel, polls = operation.channel, bound.polls
    operation.bound, operation.ran = bound, True
    operation.started = bound.last_start < 0
    for operation.position, call in enumerate(bound.calls):
        poll = polls[operation.position]
        if poll is not None:
            operation.own = operation.position not in bound.waits
            yield poll
            operation.own = False
        channel.busy = True
        try:
            call()
        finally:
            channel.busy = False
        if operation.position == bound.last_start:
            operation.started = True


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


def wait_for(done: Callable[[], bool]) -> None:
    """Make progress until done() is true."""
    while not done():
        advance_all()
        os.sched_yield()


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
    if in_flight or bound.limited:
        messages = any(not o.started or o.bound.requests for o in in_flight)
        Operation(channel, lambda operation: steps(operation, bound), device=bound.device).wait()
        if messages and bound.mark is not None:
            wait_for(bound.mark())
        return
    try:
        bound.run()
    except BaseException as error:
        raised = faults.explained(error, bound.name.format(channel.calls), channel.rank, bound.pending(bound.reached))
        channel.spoiled(bound, bound.reached, error)
        if raised is error:
            raise
        raise raised from error


def _current(device: int) -> AbstractContextManager[object]:
    """Make a device current for this thread."""
    if device < 0:
        return nullcontext()
    from mpicoll.runtime.device import on_device

    return on_device(device)
