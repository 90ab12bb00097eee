"""Sentences about the times of the ways to all-reduce, made of measured times and of the terms of costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from mpicoll.bench.measure.statistics import Statistics, noise
from mpicoll.bench.puzzles.factors import Prediction
from mpicoll.bench.request.options import FEWEST
from mpicoll.settings import format_bytes

#: the way with which others are compared, and the half of an all-reduce that is measured alone
DIRECT, ALONE = "direct", "reduce_scatter alone"
#: times are equal where they differ by less than this part, or by less than their spreads
EQUAL = 0.05
#: an all-reduce takes twice the time of a reduce-scatter where the ratio is between these: 2, or 25 % off
TWICE = (1.6, 2.5)
#: whether it does, as far as the times tell
HOLDS, FAILS, OPEN = "it holds", "it does not hold", "the spread is too large to say"


@dataclass(frozen=True)
class Outcome:
    """All ways at one size.

    Attributes:
        nbytes: bytes of the vector, which has equal blocks: 12 on 3 ranks where 8 were asked for.
        times: in seconds, by way.
        predicted: the same from the costs.
    """

    nbytes: int
    times: Mapping[str, Statistics]
    predicted: Mapping[str, Prediction]

    def ratio(self, way: str) -> float:
        """Return a way's time over that of the direct one."""
        return self.times[way].median / self.times[DIRECT].median

    def equal(self, way: str) -> bool:
        """Tell whether a way's time cannot be told apart from that of the direct one; a spread needs some calls."""
        one, other = self.times[way], self.times[DIRECT]
        differ = abs(one.median - other.median)
        return min(one.number, other.number) < FEWEST or differ <= max(EQUAL * other.median, noise(one, other))

    def expected(self, way: str) -> float:
        """Return the ratio as the costs predict it."""
        return self.predicted[way].total / self.predicted[DIRECT].total

    def verdict(self, way: str) -> tuple[str, str]:
        """Return (slower, faster or equal to the direct way, what decides as the costs say; "" if they do not)."""
        if self.equal(way):
            return "equal", ""
        slow, fast = (way, DIRECT) if self.ratio(way) > 1 else (DIRECT, way)
        return "slower" if slow == way else "faster", self.predicted[slow].beyond(self.predicted[fast])


def runs(found: Sequence[Outcome], key: Callable[[Outcome], object]) -> list[list[Outcome]]:
    """Return outcomes in runs of consecutive sizes with the same key."""
    return [list(group) for _, group in groupby(found, key)]


def between(found: Sequence[Outcome]) -> str:
    """Return the sizes of a run in words."""
    first, last = (format_bytes(found[at].nbytes) for at in (0, -1))
    return f"at {first} B" if first == last else f"from {first} to {last} B"


def against_direct(found: Sequence[Outcome]) -> list[str]:
    """Return a sentence for each way but the direct one: how much slower or faster it is where, and what decides."""
    return [_against(found, way) for way in found[0].times if way not in (DIRECT, ALONE)]


def _against(found: Sequence[Outcome], way: str) -> str:
    parts = []
    for run in runs(found, lambda one: one.verdict(way)):
        verdict, factor = run[0].verdict(way)
        expected = f"predicted {_range(one.expected(way) for one in run)} x"
        if verdict == "equal":
            parts.append(f"cannot be told apart from it {between(run)} ({expected})")
            continue
        why = f"{factor} decides" if factor else "the costs do not say why"
        parts.append(f"takes {_range(one.ratio(way) for one in run)} x its time {between(run)} ({expected}; {why})")
    return f"{way}, beside direct: {'; '.join(parts)}."


def of_reduce_scatter(found: Sequence[Outcome]) -> list[str]:
    """Return whether a reduce_scatter is twice as efficient as an allreduce, as a document says, and where."""
    verdicts = {twice(one) for one in found}
    if HOLDS in verdicts:
        says = "holds at some sizes" if len(verdicts) > 1 else "holds at every size"
    else:
        says = "is shown at no size" if FAILS in verdicts else "cannot be told"
    parts = [_measured(run) for run in runs(found, lambda one: (twice(one), one.predicted[ALONE].largest[0]))]
    return [f'"reduce-scatter is 2x more efficient than all-reduce" {says}:', *(f"  {part}" for part in parts)]


def twice(one: Outcome) -> str:
    """Return whether an allreduce takes twice the time of a reduce_scatter, as far as the spreads allow to say."""
    ratio, (low, high) = 1 / one.ratio(ALONE), TWICE
    spread = ratio * math.hypot(*(time.spread / time.median for time in (one.times[DIRECT], one.times[ALONE])))
    if low <= ratio - spread and ratio + spread <= high:
        return HOLDS
    return FAILS if ratio + spread < low or high < ratio - spread else OPEN


def _measured(run: Sequence[Outcome]) -> str:
    """Return the measured and the predicted ratio of a run of sizes, and what takes most of the reduce_scatter."""
    ratios = _range(1 / one.ratio(ALONE) for one in run)
    expected = _range(1 / one.expected(ALONE) for one in run)
    factor = run[0].predicted[ALONE].largest[0]
    return (
        f"{twice(run[0])} {between(run)}: {ratios}x, predicted {expected}x; {factor} takes most of the reduce_scatter"
    )


def _range(ratios: Iterable[float]) -> str:
    """Return the least and the largest of some ratios in words, one if they look alike."""
    ordered = [f"{ratio:.1f}" for ratio in sorted(ratios)]
    return ordered[0] if ordered[0] == ordered[-1] else f"{ordered[0]} to {ordered[-1]}"
