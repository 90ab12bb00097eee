"""The budget: the number of times that a call is timed, the same on all ranks."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpicoll.bench.measure.clock import Clock
from mpicoll.bench.request.options import PATIENCE
from mpicoll.schedule.partition import split

#: timed calls that decide how many follow
FIRST = 3
#: timed calls at most, where their number is not given
MOST = 200
#: seconds that a measurement gets if warm-up and the first timed calls fit into them, however long it took to prepare
GRACE = 0.1
#: blocks into which the timed calls are divided where several calls are timed in turn
ROUNDS = 5


class Budget:
    """Shares the time of a run among its measurements; rank 0 decides, so that all ranks agree.

    Args:
        world: all ranks.
        seconds: for the whole run, counted from now.
        measurements: how many there will be.
        now: seconds on some clock.
    """

    def __init__(
        self, world: Any, seconds: float, measurements: int, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.world, self.now, self.left = world, now, measurements
        self.deadline = now() + seconds
        self.end = now() + PATIENCE * seconds
        self.until = self.deadline

    def begin(self) -> None:
        """Start the next measurement: it gets an equal share of what is left."""
        start = self.now()
        self.until = start + max(0.0, self.deadline - start) / max(self.left, 1)
        self.left -= 1

    def overrun(self) -> bool:
        """Tell whether the run must end."""
        return bool(self.world.bcast(self.now() > self.end, root=0))

    def late(self) -> bool:
        """Tell whether the share is spent before the first call is timed."""
        return bool(self.world.bcast(self.now() >= self.until, root=0))

    def grace(self, seconds: float) -> bool:
        """Tell whether so many seconds are little enough to be given beyond the share, and give them."""
        given = bool(self.world.bcast(seconds <= GRACE, root=0))
        self.until = max(self.until, self.now() + GRACE) if given else self.until
        return given

    def calls(self, seconds: float) -> int:
        """Return the number of further calls, of so many seconds each with all about them, that fit into the share."""
        fit = (self.until - self.now()) / max(seconds, 1e-9)
        return int(self.world.bcast(max(0, min(int(fit), MOST - FIRST)), root=0))


def measure(
    calls: Sequence[Callable[[], object]], clock: Clock, budget: Budget, *, iterations: int | None, warmup: int
) -> list[NDArray[np.float64]]:
    """Return the seconds of every timed call of each of the calls.

    Args:
        calls: what to time, in turn; each has been called before.
        clock: takes the times.
        budget: says how many, where that is not given.
        iterations: number of timed calls of each, None leaves it to the budget.
        warmup: calls before them; left out where the budget is late and calls take long, which then allows
            one timed call.
    """
    if iterations is None and budget.late():
        start = budget.now()
        once = _in_turn(calls, clock, 1)
        if not budget.grace((budget.now() - start) * (warmup + FIRST)):
            return once
    for call in calls:
        for _ in range(warmup):
            call()
    if iterations is not None:
        return _in_turn(calls, clock, iterations)
    start = budget.now()
    first = _in_turn(calls, clock, FIRST)
    more = budget.calls((budget.now() - start) / FIRST)
    if not more:
        return first
    return [np.concatenate(pair) for pair in zip(first, _in_turn(calls, clock, more), strict=True)]


def _in_turn(calls: Sequence[Callable[[], object]], clock: Clock, number: int) -> list[NDArray[np.float64]]:
    """Time a block of one call, then one of the next, so that what changes meanwhile changes for all.

    The first call of a block finds the caches as the other call left them, and is not timed.
    """
    if len(calls) == 1:
        return [clock.take(calls[0], number)]
    taken: list[list[NDArray[np.float64]]] = [[] for _ in calls]
    for block in split(number, min(ROUNDS, number)):
        for call, found in zip(calls, taken, strict=True):
            call()
            found.append(clock.take(call, block))
    return [np.concatenate(blocks) for blocks in taken]
