"""Operations: a call's routine on its way, and a program's run."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from inspect import GEN_CLOSED, GEN_SUSPENDED, getgeneratorstate
from typing import Any

from mpicoll.errors import StalledError
from mpicoll.recorder.entry import Entry
from mpicoll.runtime.cuda.streams import on_device
from mpicoll.runtime.program.bound import Bound
from mpicoll.runtime.progress import faults
from mpicoll.runtime.progress.exchange import Condition, Routine
from mpicoll.runtime.progress.modes import modes
from mpicoll.runtime.progress.traffic import Traffic
from mpicoll.runtime.progress.turns import Helper, in_flight, lock, of, wait_for
from mpicoll.runtime.progress.watch import UNWATCHED
from mpicoll.settings import settings

#: lane of calls whose messages follow each other; persistent requests have others
COMMON = 0


#: the program of an operation that has none yet
NOTHING = Bound()


class Operation:
    """A routine on its way: it goes on whenever somebody looks, until it has ended.

    Operations of one tag lane begin in the order in which they are made, each as soon as the one before has
    started all of its messages.  So messages of equal tags come in the order of the calls.

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
        complete: waits on the host for what it has enqueued on a device.
        entry: of its call among those made last, None where there is none.
    """

    name = ""
    bound = NOTHING
    position = moved = 0
    device = -1
    condition: Condition | None = None
    started = done = own = ran = refused = False
    result: Any = None
    error: BaseException | None = None
    complete: Callable[[], None] | None = None
    patience: faults.Patience | None = None
    routine: Routine[Any] | None = None
    shares_errors = False
    entry: Entry | None = None

    def __init__(
        self,
        traffic: Traffic,
        make: Callable[[Operation], Routine[Any]],
        *,
        name: str = "",
        keep: object = None,
        device: int = -1,
        lane: int = COMMON,
        entry: Entry | None = None,
    ) -> None:
        """Begin, as far as that goes without waiting.

        Args:
            traffic: of the communicator whose operation it is.
            make: returns the routine.
            name: for messages, before a program runs that has a name.
            keep: lives until the operation ends.
            device: current device while it goes on, -1 for none.
            lane: see above.
            entry: see above.
        """
        self.entry = entry
        self.traffic, self.keep, self.device, self.lane = traffic, keep, device, lane
        self.number, self.scope = traffic.calls, settings.scope()
        if name:
            self.name = name
        self.routine = make(self)
        self._begin()

    def _begin(self) -> None:
        """Take its place behind the last operation of its lane, and go on as far as that goes without waiting."""
        traffic, lane = self.traffic, self.lane
        limit, self.shares_errors, threaded, _, _ = modes()
        if limit > 0:
            self.patience = faults.Patience(limit)
        with lock:
            before, traffic.last[lane] = traffic.last.get(lane), self
            if before is not None and not before.started:
                self.condition = lambda: before.started
            in_flight.append(self)
            self.advance()
        if threaded and not self.done:
            Helper.wake()

    def check(self) -> None:
        """Raise the error with which it has ended, if there is one."""
        if self.error is not None:
            raise self.error

    def wait(self) -> Any:
        """Return the result, having advanced all operations until this one has ended."""
        wait_for(lambda: self.done)
        self.check()
        return self.result

    def synchronize(self) -> None:
        """Return when it has ended, and what it has enqueued on a device, too."""
        self.wait()
        if self.complete is not None:
            self.complete()

    def let_go(self) -> bool:
        """Leave it alone, and tell whether it lives on among the operations in flight."""
        return not self.done

    def pending(self) -> str:
        """Return in words what it waits for."""
        if self.bound.program is not None or (self.ran and self.device < 0):
            return self.bound.pending(self.position)
        return "waiting for all ranks to make the call"

    def pending_bytes(self) -> int:
        """Return the bytes of the messages that it waits for."""
        return self.bound.pending_bytes(self.position)

    def advance(self) -> None:
        """Go on as far as possible without waiting; an error is kept for the one who waits for this operation."""
        if self.done:
            return
        if settings.scope() is not self.scope:  # planning must see what was overridden at the call
            with settings.within(self.scope):
                self._go_on()
        else:
            self._go_on()

    def _go_on(self) -> None:
        routine = self.routine
        assert routine is not None
        try:
            with on_device(self.device):
                if self._goes_through(routine):
                    self._end()
                    return
                if self.shares_errors:
                    self._heed_refusals()
                self._heed_notices()
                if self.patience and not self.own and self.patience.is_over(self.moved):
                    self._give_up(self._stall(self.patience))
        except BaseException as error:
            if not isinstance(error, Exception) and getgeneratorstate(routine) != GEN_CLOSED:
                raise  # interrupted while it waited: nothing is lost, it can be waited for again
            self._fail(error)
            if not isinstance(error, Exception):
                raise

    def _heed_refusals(self) -> None:
        """Raise what another rank's call has raised, where ranks share their errors."""
        refusals = self.traffic.refusals
        error = refusals.look(self.number, self.title()) if refusals else None
        if error is not None:
            self.refused = True
            raise error

    def _heed_notices(self) -> None:
        """Give up where another rank's notice says that this one waits in vain."""
        vain = self.traffic.vain
        if vain is not None:
            self._give_up(vain.raised(self.title()))

    def title(self) -> str:
        """Return the call with its number, for messages."""
        return self.bound.name.format(self.number) or self.name or f"call #{self.number}"

    def _goes_through(self, routine: Routine[Any]) -> bool:
        if self.condition is not None and not self.condition():
            return False
        if not self.moved:
            self.traffic.check()
        for self.condition in routine:  # an interrupt cannot come between the two, and lose a condition
            self.moved += 1
            self.traffic.moved += 1
            if not self.condition():
                return False
        return True

    def _fail(self, error: BaseException) -> None:
        name = self.title()
        self.error = faults.explained(error, name, self.traffic.rank, self.pending())
        if not isinstance(error, Exception):
            self.error = RuntimeError(f"{name}: rank {self.traffic.rank}: {error!r} came in the middle of a step")
        self.traffic.spoiled(self.bound, self.position, error)
        if self.shares_errors and self.ran and not self.refused and self.traffic.refusals:
            self.traffic.refusals.post(self.number, error, final=bool(self.traffic.broken))
        self._end()

    def _stall(self, patience: faults.Patience) -> StalledError | None:
        """Return the error of having waited for too long, None if there is reason to go on waiting."""
        traffic, watch = self.traffic, self.traffic.watch
        what = f"{self.title()}: rank {traffic.rank}, {self.pending()} for {patience.limit:g} s"
        why = watch.verdict(self.number, self.pending_bytes(), patience) if watch else UNWATCHED
        if why is None or (self.condition is not None and self.condition()):  # it came while others were asked
            patience.extend()
            return None
        return traffic.stalled(what, why, watch.last_calls(again=False) if watch else {})

    def _give_up(self, error: BaseException | None) -> None:
        """End this and all other operations of its communicator with an error, if there is one."""
        if error is not None:
            for operation in of(self.traffic):
                operation.error = error
                operation._end()

    def _end(self) -> None:
        if self in in_flight:
            in_flight.remove(self)
        if self.traffic.last.get(self.lane) is self:
            del self.traffic.last[self.lane]
        self.started = self.done = True
        self.traffic.ended = time.monotonic()
        if self.entry is not None:
            self.entry.end(self.error)
        if self._may_be_written():
            faults.abandoned.append((self.traffic, self.keep, self.routine, self.condition))
        elif self.routine is not None:
            with suppress(ValueError):  # it is running now
                self.routine.close()
        self.keep = self.condition = None

    def _may_be_written(self) -> bool:
        """Tell whether messages may still come into its memory: of a program that failed, or of ranks' words."""
        if self.error is None:
            return False
        exchanging = self.routine is not None and not self.ran and getgeneratorstate(self.routine) == GEN_SUSPENDED
        return bool(self.traffic.broken) or exchanging


def steps(operation: Operation, bound: Bound, first: int = 0) -> Routine[None]:
    """Return the run of a program within an operation, from a position on; nobody frees it from now on to its end."""
    bound.running = True
    return _actions(operation, bound, first)


def _actions(operation: Operation, bound: Bound, first: int) -> Routine[None]:
    """Do a program's actions, each once it would return at once."""
    operation.bound, operation.ran = bound, True
    operation.started = bound.last_start < first
    traffic, polls = operation.traffic, bound.polls
    for operation.position, action in enumerate(bound.actions[first:], first):
        poll = polls[operation.position]
        if poll is not None:
            operation.own = operation.position not in bound.waits
            yield poll
            operation.own = False
        traffic.busy = True
        try:
            action()
        finally:
            traffic.busy = False
        if operation.position == bound.last_start:
            operation.started = True
    bound.running = False  # where an action raises, `Traffic.spoiled` sees to the messages
    if bound.retired:
        bound.free()
