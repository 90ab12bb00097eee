"""A race: calls that do the same are timed in turn, and those that are slower for sure leave it.

In each round every call that is left has a block of timed calls.  What slows the machine for a while slows all calls of
a round, so the calls of one round are compared: a call's ratio is the median of its block over that of the reference's
block.  A machine that is now fast and now slow would otherwise have medians of the one or the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpicoll.bench.measure.clock import Clock
from mpicoll.bench.measure.statistics import FEWEST, Statistics

Call = Callable[[], object]
#: calls of each before the first round, in which kernels are compiled and memory is mapped
WARMUP = 4
#: ratios to the fastest call's from which a call leaves after so many rounds, if not one of them was below: a block or
#: two may have met a disturbance
HOPELESS = {1: math.inf, 2: 8.0, 3: 4.0, 5: 2.0}
#: how many times the upper end of the fastest one's interval the lower end of a call's must be for it to leave, from
#: FEWEST rounds on
SLOWER = 1.03
#: seconds of a block of one call, and timed calls in it at most
BLOCK, MOST = 0.002, 20
#: rounds at least before the half-widths may end the race, and rounds at most
LEAST_ROUNDS, MOST_ROUNDS = 8, 400


@dataclass(frozen=True)
class Goal:
    """When a race ends.

    Attributes:
        half_width: of the intervals of the ratios of those that are left, as a part of them.
        seconds: that it takes at most, warm-up and first round aside.
        reference: place of a call that never leaves, to whose time all others' are compared; None for the fastest one
            of the first round.
    """

    half_width: float
    seconds: float
    reference: int | None = None


@dataclass(frozen=True)
class Runner:
    """The result of a race for one call.

    Attributes:
        seconds: of its blocks' medians.
        ratio: of its blocks to those of the reference in the same round.
        reference: median of the reference's blocks, in seconds.
    """

    seconds: Statistics
    ratio: Statistics
    reference: float

    @classmethod
    def of_visits(cls, visits: Sequence[Runner]) -> Runner:
        """Return what several races say of the same call, far apart in time."""
        seconds = Statistics.of_visits([one.seconds for one in visits])
        ratio = Statistics.of_visits([one.ratio for one in visits])
        return cls(seconds, ratio, geometric_mean([one.reference for one in visits]))

    @property
    def estimate(self) -> float:
        """Seconds that it takes where the reference ran: its own blocks may have had a faster machine."""
        return self.ratio.median * self.reference


class Race:
    """The blocks of all calls, one after the other.

    Args:
        calls: what to time.
        clock: takes the times, those of the slowest rank.
        goal: when the race ends.
    """

    def __init__(self, calls: Sequence[Call], clock: Clock, goal: Goal) -> None:
        self.calls, self.clock, self.goal = calls, clock, goal
        self.blocks: list[list[float]] = [[] for _ in calls]
        self.left = list(range(len(calls)))
        self.reference = goal.reference or 0
        self.rounds = 0

    def round(self) -> None:
        """Time a block of each call that is left, and let go those that are slower for sure."""
        self.clock.affinity.deal()
        for place in self.left:
            self.blocks[place].append(self._block(place))
        self.rounds += 1
        if self.rounds == 1 and self.goal.reference is None:
            self.reference = min(self.left, key=lambda place: self.blocks[place][0])
        self.left = self._staying()
        self.left = self.left[1:] + self.left[:1]

    def _block(self, place: int) -> float:
        """Return the median of a block; its first call finds the caches as another call left them, and is not timed."""
        before, call = self.blocks[place], self.calls[place]
        for _ in range(1 if before else WARMUP):
            call()
        number = int(np.clip(BLOCK / before[-1], 1, MOST)) if before else 3
        return float(np.median(self.clock.take(call, number)))

    def ratios(self, place: int) -> NDArray[np.float64]:
        """Return a call's ratios to the reference, of all its rounds."""
        mine = self.blocks[place]
        return np.array([a / b for a, b in zip(mine, self.blocks[self.reference], strict=False)])

    def _staying(self) -> list[int]:
        found = {place: Statistics.of(self.ratios(place)) for place in self.left}
        best = min(found.values(), key=lambda one: one.median)
        hopeless = [ratio for rounds, ratio in HOPELESS.items() if self.rounds >= rounds][-1]

        def stays(one: Statistics) -> bool:
            sure = self.rounds >= FEWEST and one.low > SLOWER * best.high
            return not sure and one.least <= hopeless * best.median

        return [place for place, one in found.items() if place == self.reference or stays(one)]

    @property
    def done(self) -> bool:
        """True where nothing more is to be learnt."""
        if self.rounds < LEAST_ROUNDS:
            return False
        others = [place for place in self.left if place != self.reference]
        exact = all(Statistics.of(self.ratios(place)).half_width <= self.goal.half_width for place in others)
        return exact or self.rounds >= MOST_ROUNDS

    def runners(self) -> list[Runner]:
        """Return what was found of each call."""
        seconds = [Statistics.of(np.array(blocks)) for blocks in self.blocks]
        ratios = [Statistics.of(self.ratios(place)) for place in range(len(self.calls))]
        reference = seconds[self.reference].median
        return [Runner(own, ratio, reference) for own, ratio in zip(seconds, ratios, strict=True)]


def race(calls: Sequence[Call], clock: Clock, world: Any, goal: Goal, now: Callable[[], float]) -> list[Runner]:
    """Return what a race says of each call; the same on all ranks.

    Args:
        calls: what to time.
        clock: takes the times.
        world: tells what rank 0 decides.
        goal: when it ends.
        now: seconds on some clock.
    """
    run = Race(calls, clock, goal)
    with clock.affinity:
        run.round()
        start, over = now(), False
        while not over:
            run.left, over = world.bcast((run.left, run.done or now() - start >= goal.seconds), root=0)
            if not over:
                run.round()
    return run.runners()
