"""Guidelines: what is said of them, as a record for the file and as cells for the table.

A call of 12 us is its guidelines' left side.  One that takes 10 us and could stand in its place violates one: the ratio
is 1.2, if its interval is above 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from mpicoll.bench.contestants.contestant import Way
from mpicoll.bench.measure.race import Runner
from mpicoll.bench.measure.statistics import FEWEST, Statistics
from mpicoll.bench.output.columns import Column, micro
from mpicoll.bench.output.rows import MeasuredCall, Record, quantity, summary

#: part of a median by which another may be above it: nobody would notice, and two runs of one call differ by as much
TOLERANCE = 0.05
#: how many times as long as ours a rival's call must take to be slower by few rounds: it left the race
SURE = 1.5
#: name of the side that all guidelines of a call have
OURS = "mpicoll"
HOLDS, VIOLATED, UNCLEAR = "holds", "violated", "unclear"

COLUMNS = (
    Column("time", "(us)", 8),
    Column("holds", "of", 5),
    Column("unclear", "", 7, spare=4),
    Column("slower than", "", 26, "left"),
    Column("time", "(us)", 8, spare=2),
    Column("ratio", "", 5),
    Column("±", "(%)", 4, spare=3),
    Column("way", "", 12, "left", spare=5),
)


class Side(NamedTuple):
    """One side of a guideline.

    Attributes:
        name: what it is.
        way: how it is carried out.
        call: carries it out.
    """

    name: str
    way: Way
    call: Callable[[], object]


def verdict(ratio: Statistics) -> str:
    """Return whether a guideline holds, is violated, or whether that is unclear.

    Args:
        ratio: of the right side's time to the left side's, of each round.
    """
    if ratio.number < FEWEST:
        return HOLDS if ratio.median >= SURE else UNCLEAR
    if (1 + TOLERANCE) * ratio.median >= 1:
        return HOLDS
    return VIOLATED if ratio.high < 1 else UNCLEAR


@dataclass(frozen=True)
class Guidelines:
    """The guidelines of one call, which is the left side of all of them.

    Attributes:
        call: what was measured.
        ours: what the race says of it.
        rivals: the right sides, and what it says of each; their ratios are those to ours.
        wrong: wrong elements of all ranks in the validated calls.
    """

    call: MeasuredCall
    ours: Runner
    rivals: tuple[tuple[Side, Runner], ...]
    wrong: int

    @cached_property
    def verdicts(self) -> dict[str, str]:
        """The verdict on each guideline, by the rival's name."""
        return {side.name: verdict(runner.ratio) for side, runner in self.rivals}

    @property
    def violations(self) -> int:
        """Number of those that are violated."""
        return list(self.verdicts.values()).count(VIOLATED)

    def record(self) -> Record:
        """Return them for the file."""
        times = {OURS: summary(self.ours.seconds)} | {s.name: summary(runner.seconds) for s, runner in self.rivals}
        ratios = {f"ratio {side.name}": quantity(1 / runner.ratio.median, "") for side, runner in self.rivals}
        found = {side.name: self._said(side, runner) for side, runner in self.rivals}
        return self.call.record(times, ratios, self.wrong) | {"guidelines": found}

    def _said(self, side: Side, runner: Runner) -> Record:
        ends = {"ratio_low": round(1 / runner.ratio.high, 4), "ratio_high": round(1 / runner.ratio.low, 4)}
        return {"verdict": self.verdicts[side.name], "way": str(side.way), **ends}

    def cells(self) -> Iterator[tuple[str, ...]]:
        """Yield the cells of a line for each rival that the call is slower than, or of one line."""
        counts = Counter(self.verdicts.values())
        ours = micro(self.ours.seconds.median), f"{counts[HOLDS]}/{len(self.rivals)}", str(counts[UNCLEAR] or "")
        slower = [(side, runner) for side, runner in self.rivals if self.verdicts[side.name] == VIOLATED]
        for side, runner in slower:
            ratio = f"{1 / runner.ratio.median:.2f}", f"{100 * runner.ratio.half_width:.1f}"
            yield (*ours, side.name, micro(runner.seconds.median), *ratio, str(side.way))
        if not slower:
            yield (*ours, *[""] * (len(COLUMNS) - len(ours)))
