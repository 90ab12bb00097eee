"""Straight operations: a program of host memory on its way, without a routine around it.

A call that was made before, on arrays in host memory, has nothing left to decide, to pack or to order with a
stream: it is its program.  So its operation steps through the actions itself, in a third of the time.
"""

from __future__ import annotations

import os
from time import monotonic
from typing import Any

from mpicoll.recorder.entry import Decision
from mpicoll.recorder.recent import MASK, Recent
from mpicoll.runtime.program.bound import Bound
from mpicoll.runtime.progress.modes import modes
from mpicoll.runtime.progress.operations import COMMON, Operation
from mpicoll.runtime.progress.traffic import Traffic
from mpicoll.runtime.progress.turns import advance_all, in_flight, lock, looks


def goes_straight(device: int) -> bool:
    """Tell whether calls on a device, -1 for the host, may go straight: no errors of other ranks, and no trace."""
    return device < 0 and modes().are_plain


class Straight(Operation):
    """A program on its way.

    Attributes:
        acting: an action is under way, and cannot be done again.
        slot: that it gives back at its end, None if it keeps it.
        kept: (calls made last, its place among them, when it began), None if it is not among them.
    """

    acting = False
    kept: tuple[Recent, int, float] | None = None

    def __init__(
        self,
        traffic: Traffic,
        bound: Bound,
        keep: object,
        *,
        lane: int = COMMON,
        slot: Any = None,
        recent: Recent | None = None,
        number: int = 0,
        what: Decision | None = None,
    ) -> None:
        """Begin, as far as that goes without waiting.

        Args:
            traffic: of the communicator whose operation it is.
            bound: the program.
            keep: lives until the operation ends.
            lane: as in `Operation`.
            slot: see above.
            recent: calls made last, of which it is one; None for none.
            number: of the call among them.
            what: is kept of it there.
        """
        self.traffic, self.bound, self.keep, self.lane, self.slot = traffic, bound, keep, lane, slot
        self.number = traffic.calls
        if recent is not None:
            place, began = number & MASK, monotonic()
            recent.what[place], recent.began[place], self.kept = what, began, (recent, place, began)
        bound.running = self.ran = True
        self.started = bound.last_start < 0
        self._begin()

    def advance(self) -> None:
        """Go on as far as possible without waiting; an error is kept for the one who waits for this operation."""
        if self.done:
            return
        try:
            if self._goes_to_the_end():
                self.bound.running = False
                self._end()
                if self.bound.retired:
                    self.bound.free()
            elif self.patience or self.traffic.barred:
                self._wait_on()
        except BaseException as error:
            if not isinstance(error, Exception) and not self.acting:
                raise  # interrupted while it waited: nothing is lost, it can be waited for again
            self._fail(error)
            if not isinstance(error, Exception):
                raise

    def _wait_on(self) -> None:
        """Give up where this waits in vain, or where it has waited for too long."""
        self._heed_notices()
        if self.patience and self.patience.is_over(self.position):
            self._give_up(self._stall(self.patience))

    def wait(self) -> None:
        """Return once it has ended, having advanced all operations meanwhile."""
        while not self.done:
            if len(in_flight) > 1:
                advance_all()
            else:
                with lock:
                    self.advance()
            if not self.done:
                looks[0] += 1
                os.sched_yield()
        self.check()

    def _goes_to_the_end(self) -> bool:
        if self.condition is not None:
            if not self.condition():
                return False
            self.condition = None
        if not self.position:
            self.traffic.check()
        bound, traffic = self.bound, self.traffic
        actions, polls, end = bound.actions, bound.polls, len(bound.actions)
        while self.position < end:
            poll = polls[self.position]
            if poll is not None and not poll():
                self.condition = poll
                return False
            self.acting = traffic.busy = True
            try:
                actions[self.position]()
            finally:
                traffic.busy = False
            self.acting = False
            traffic.moved += 1
            if self.position == bound.last_start:
                self.started = True
            self.position += 1
        return True

    def _end(self) -> None:
        super()._end()
        if self.kept is not None:
            recent, place, began = self.kept
            if recent.began[place] is began:  # no later call has the place
                recent.ended[place] = self.traffic.ended
                if self.error is not None:
                    recent.fail(place, self.number, self.error)
        if self.slot is not None:
            self.slot.taken = False
