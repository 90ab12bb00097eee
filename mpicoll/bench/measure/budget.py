"""The budget: the number of times that a call is timed, the same on all ranks.

A measurement gets an equal share of what is left, and ends before if all of its medians are certain.  What is short
leaves its time to the others; what is long takes its least, of which a part of the budget is kept for all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpicoll.bench.errors import RefusedError
from mpicoll.bench.measure.clock import Clock
from mpicoll.bench.measure.statistics import Statistics
from mpicoll.schedule.partition import split

#: timed calls that decide how many follow
FIRST = 3
#: timed calls from which a median can be certain
ENOUGH = 12
#: timed calls at most, where their number is not given
MOST = 1000
#: seconds that a measurement gets if warm-up and the first timed calls fit into them, however long it took to prepare
GRACE = 0.1
#: blocks into which the timed calls are divided where several calls are timed in turn, or ranks are dealt onto cores
ROUNDS = 5
#: part of a run's time that is not shared: measurements that take longer than their share do so at its cost
RESERVE = 0.2

#: seconds of every timed call, of each of some calls
Samples = list[NDArray[np.float64]]


class Budget:
    """Shares the time of a run among its measurements; rank 0 decides, so that all ranks agree.

    Args:
        world: the ranks that measure; others may follow.
        seconds: for the whole run, counted from now.
        measurements: how many there will be.
        now: seconds on some clock.
    """

    def __init__(
        self, world: Any, seconds: float, measurements: int, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.world, self.now, self.left = world, now, measurements
        self.end = now() + seconds
        self.deadline = now() + (1 - RESERVE) * seconds
        self.until = self.deadline

    def begin(self) -> None:
        """Start the next measurement: it gets an equal share of what is left."""
        start = self.now()
        self.until = start + max(0.0, self.deadline - start) / max(self.left, 1)
        self.left -= 1

    def spent(self) -> bool:
        """Tell whether the run must end."""
        return bool(self.world.bcast(self.now() >= self.end, root=0))

    def late(self) -> bool:
        """Tell whether the share is spent before the first call is timed."""
        return bool(self.world.bcast(self.now() >= self.until, root=0))

    def grace(self, seconds: float) -> bool:
        """Tell whether so many seconds are little enough to be given beyond the share, and give them."""
        given = bool(self.world.bcast(seconds <= GRACE, root=0))
        self.until = max(self.until, self.now() + GRACE) if given else self.until
        return given

    def calls(self, seconds: float, most: int) -> int:
        """Return the number of further calls, of so many seconds each with all about them, that fit into the share."""
        fit = (self.until - self.now()) / max(seconds, 1e-9)
        return int(self.world.bcast(max(0, min(int(fit), most)), root=0))

    def number(self, seconds: float, least: int, most: int) -> int:
        """Return the number of calls, of so many seconds each, that fit into the share: between the least and the most.

        Args:
            seconds: of a call, with all about it.
            least: calls, however long they take.
            most: calls.
        """
        return max(least, self.calls(seconds, most))


def measure(
    calls: Sequence[Callable[[], object]],
    clock: Clock,
    budget: Budget,
    *,
    iterations: int | None,
    warmup: int,
    width: float = 0.0,
    most: int = MOST,
) -> Samples:
    """Return the seconds of every timed call of each of the calls.

    Args:
        calls: what to time, in turn; each has been called before.
        clock: takes the times.
        budget: says how many, where that is not given.
        iterations: number of timed calls of each, None leaves it to the budget.
        warmup: calls before them; left out where the budget is late and calls take long, which then allows
            one timed call.
        width: half of the median's interval, in parts of the median, with which a call has been timed enough.
        most: timed calls of each at most, where their number is not given.

    Raises:
        RefusedError: on all ranks, if every sample of a call is invalid.
    """
    if iterations is None and budget.late():
        start = budget.now()
        once = _in_turn(calls, clock, 1)
        if not budget.grace((budget.now() - start) * (warmup + FIRST)):
            return valid(once)
    for call in calls:
        for _ in range(warmup):
            call()
    if iterations is not None:
        return valid(_in_turn(calls, clock, iterations))
    return valid(_until_certain(calls, clock, budget, width, most))


def valid(found: Samples) -> Samples:
    """Return the samples; raise RefusedError on all ranks where those of a call are all invalid."""
    if not all(np.isfinite(samples).any() for samples in found):
        raise RefusedError("a rank came late to every start; take --sync barrier")
    return found


def _until_certain(
    calls: Sequence[Callable[[], object]], clock: Clock, budget: Budget, width: float, most: int
) -> Samples:
    """Time calls until their medians are certain, or the share is spent; arguments as those of `measure`."""
    found, number, start = [np.empty(0)] * len(calls), FIRST, budget.now()
    while number:
        found = [np.concatenate(pair) for pair in zip(found, _in_turn(calls, clock, number), strict=True)]
        done = found[0].size
        each = (budget.now() - start) / done
        number = 0 if certain(found, width) else budget.calls(each, min(done, most - done))
    return found


def certain(found: Samples, width: float) -> bool:
    """Tell whether the medians of all samples are certain; the same on all ranks, as the samples are."""
    return found[0].size >= ENOUGH and all(
        np.isfinite(samples).any() and Statistics.of(samples).half_width < width for samples in found
    )


def _in_turn(calls: Sequence[Callable[[], object]], clock: Clock, number: int) -> Samples:
    """Time a block of one call, then one of the next, so that what changes meanwhile changes for all.

    The first call of a block finds the caches as the other call left them, and is not timed.
    """
    if len(calls) == 1 and not clock.affinity.dealt:
        return [clock.take(calls[0], number)]
    taken: list[Samples] = [[] for _ in calls]
    with clock.affinity as ranks:
        for block in split(number, min(ROUNDS, number)):
            ranks.deal()
            for call, found in zip(calls, taken, strict=True):
                call()
                found.append(clock.take(call, block))
    return [np.concatenate(blocks) for blocks in taken]
