"""A race: calls that do the same are timed in turn, and those that are slower for sure leave it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpicoll.bench.measure.clock import Clock
from mpicoll.bench.measure.statistics import FEWEST, Statistics

Call = Callable[[], object]
#: timed calls of the first round
FIRST = 3
#: how many times the fastest call's time a call must take to leave after the first round
HOPELESS = 2.0
#: how many times the upper end of the fastest one's interval the lower end of a call's must be for it to leave
SLOWER = 1.1
#: seconds of a block of one call, and timed calls in it at most
BLOCK, MOST = 0.02, 50
#: timed calls of each at most
ENOUGH = 2000


@dataclass(frozen=True)
class Goal:
    """When a race ends.

    Attributes:
        half_width: of the intervals of those that are left, as a part of their medians.
        seconds: that it takes at most, the first round aside.
        keep: places of calls that never leave.
    """

    half_width: float
    seconds: float
    keep: frozenset[int] = frozenset()


def race(calls: Sequence[Call], clock: Clock, world: Any, goal: Goal, now: Callable[[], float]) -> list[Statistics]:
    """Return the statistics of each call, in seconds; the same on all ranks.

    In each round every call that is left has a block of timed calls; which one is first changes.  The first call of a
    block finds the caches as another call left them, and is not timed.

    Args:
        calls: what to time.
        clock: takes the times.
        world: decides on rank 0 whether time is up.
        goal: when it ends.
        now: seconds on some clock.
    """
    samples = [np.empty(0)] * len(calls)
    left, first, start = list(range(len(calls))), True, now()
    while True:
        for place in left:
            samples[place] = np.append(samples[place], _block(calls[place], clock, samples[place]))
        found = [Statistics.of(one) for one in samples]
        left = _left(left, found, goal.keep, first)
        start = now() if first else start
        first = False
        if _done([found[place] for place in left], goal) or world.bcast(now() - start > goal.seconds, root=0):
            return found
        left = left[1:] + left[:1]


def _block(call: Call, clock: Clock, before: NDArray[np.float64]) -> NDArray[np.float64]:
    call()
    if not before.size:
        return clock.take(call, FIRST)
    return clock.take(call, int(np.clip(BLOCK / np.median(before), 1, MOST)))


def _left(places: list[int], found: list[Statistics], keep: frozenset[int], first: bool) -> list[int]:
    best = min((found[place] for place in places), key=lambda one: one.median)

    def stays(one: Statistics) -> bool:
        if one.number < FEWEST or best.number < FEWEST:
            return not first or one.median <= HOPELESS * best.median
        return one.low <= SLOWER * best.high

    return [place for place in places if place in keep or stays(found[place])]


def _done(left: list[Statistics], goal: Goal) -> bool:
    if len(left) == 1 and not goal.keep:
        return left[0].number >= FEWEST
    return all(one.half_width <= goal.half_width or one.number >= ENOUGH for one in left)
