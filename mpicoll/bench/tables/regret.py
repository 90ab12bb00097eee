"""`--regret`: how much slower mpicoll's choice is than the fastest of all choices, all of them timed in turn.

    regret = 100 % * (t(chosen) / min t - 1)

A cell is a call of one message size on one number of ranks.  Times are compared within rounds (`measure/race.py`).
Where the interval of their ratio has 1 in it, nobody knows which one is faster: those regrets count as they are, and
once more as 0.  A cell is uncertain where the ratio is known less well than to 5 %.  The model's error is that of the
predicted time of each choice that is known to 5 %.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpicoll.bench.contestants.contestant import Way
from mpicoll.bench.measure.arrays import Arrays
from mpicoll.bench.measure.race import Goal, Runner, race
from mpicoll.bench.output.columns import Column, Columns
from mpicoll.bench.output.rows import MeasuredCall, quantity, summary
from mpicoll.bench.request.jobs import Job
from mpicoll.bench.tables.bench import Bench
from mpicoll.dispatch.rules import Choice
from mpicoll.dispatch.select import Candidate

#: half-width of an interval from which on a cell is uncertain
CERTAIN = 0.05
#: message sizes in bytes where none are given: those between what a tuner measures
SIZES = (24, 1_500, 12_000, 100_000, 700_000, 3_000_000)
#: goals of the project: regret in percent, in the mean, of 95 % of the cells, and of the worst
GOALS = (3.0, 10.0, 25.0)

COLUMNS = Columns(
    Column("# op", "#", 21, "left"),
    Column("size", "(B)", 10),
    Column("ranks", "", 5),
    Column(" chosen", "", 30, "left"),
    Column("time", "(us)", 10),
    Column(" fastest", "", 30, "left"),
    Column("time", "(us)", 10),
    Column("regret", "(%)", 7),
    Column("", "", 0, "left"),
)


@dataclass(frozen=True)
class Regret:
    """One cell.

    Attributes:
        call: with mpicoll's choice.
        chosen: the choice.
        runners: what the race says of each choice; the chosen one is the reference.
        errors: by choice, the relative error of the predicted time.
    """

    call: MeasuredCall
    chosen: Choice
    runners: dict[Choice, Runner]
    errors: dict[Choice, float]

    @property
    def fastest(self) -> Choice:
        """The choice with the least time."""
        return min(self.runners, key=lambda choice: self.runners[choice].ratio.median)

    @property
    def percent(self) -> float:
        """The regret."""
        return 100 * (1 / self.runners[self.fastest].ratio.median - 1)

    @property
    def tied(self) -> bool:
        """True where the interval of the ratio has 1 in it."""
        return self.runners[self.fastest].ratio.high >= 1

    @property
    def half_width(self) -> float:
        """The half-width of the ratio's interval, 0 where the chosen one is the fastest."""
        return self.runners[self.fastest].ratio.half_width

    @property
    def _fastest_seconds(self) -> float:
        """The fastest one's time, if it had run as long as the chosen one."""
        return self.runners[self.chosen].seconds.median * self.runners[self.fastest].ratio.median

    def record(self) -> dict[str, Any]:
        """Return it for the file."""
        figures = {
            "regret": quantity(self.percent, "%"),
            "regret, ties as 0": quantity(0.0 if self.tied else self.percent, "%"),
            "half-width": quantity(100 * self.half_width if self.half_width < math.inf else None, "%"),
        }
        figures |= {f"error {choice}": quantity(100 * error, "%") for choice, error in self.errors.items()}
        return self.call.record({str(choice): summary(one.seconds) for choice, one in self.runners.items()}, figures)

    def cells(self) -> Iterator[tuple[str, ...]]:
        """Yield its cells."""
        case = self.call.case
        note = " uncertain" if self.half_width > CERTAIN else ""
        yield (
            *(case.call.name, str(case.nbytes), str(case.size)),
            *(f" {self.chosen}", f"{self.runners[self.chosen].seconds.median * 1e6:.2f}"),
            *(f" {self.fastest}", f"{self._fastest_seconds * 1e6:.2f}"),
            f"{self.percent:.1f}",
            (" tied" if self.tied and self.percent else "") + note,
        )


def table(bench: Bench, jobs: Iterable[Job]) -> None:
    """Measure the regret of each job, and sum up; collective."""
    bench.report.head(COLUMNS, "#")
    for job, arrays, way in bench.prepared(jobs):
        bench.budget.begin()
        bench.report.add(_measured(bench, job, arrays, way))


def _measured(bench: Bench, job: Job, arrays: Arrays, way: Way) -> Regret:
    chosen = Choice(way.algorithm, way.segments, way.path)
    plan = bench.contestant.comm.Get_plan(job.case.call.method, *arrays.arguments)
    able: dict[Choice, Candidate | None] = {chosen: None}
    able |= {one.choice: one for one in plan.candidates() if not one.why_not}
    calls = [bench.contestant.bind(arrays, str(choice)) for choice in able]
    seconds = max(bench.world.bcast(bench.budget.until - bench.budget.now()), 0.0)
    goal = Goal(bench.options.ci, seconds, 0)
    found = dict(zip(able, race(calls, bench.clock, bench.world, goal, bench.budget.now), strict=True))
    errors = {
        choice: abs(one.seconds / (found[choice].ratio.median * found[chosen].seconds.median) - 1)
        for choice, one in able.items()
        if one and one.seconds and found[choice].ratio.half_width <= CERTAIN
    }
    memory = plan.key.facts.memory
    return Regret(MeasuredCall(job.case, way, arrays.in_place, "auto", memory), chosen, found, errors)


def summed_up(rows: Sequence[Regret]) -> list[str]:
    """Return lines on all cells: mean, 95 % and worst regret, the cells that are uncertain, and the model's error."""
    if not rows:
        return []
    goals = ", ".join(f"{goal:g}" for goal in GOALS)
    lines = [f"# {len(rows)} cells; regret in %: mean, 95 % of the cells, worst (goals {goals})"]
    for name, values in (
        ("as measured", [row.percent for row in rows]),
        ("overlapping intervals as 0", [0.0 if row.tied else row.percent for row in rows]),
    ):
        mean, most, worst = float(np.mean(values)), float(np.percentile(values, 95)), max(values)
        lines.append(f"#   {name}: {mean:.2f}, {most:.2f}, {worst:.2f}")
    doubtful = [row for row in rows if row.half_width > CERTAIN]
    lines.append(f"# {len(doubtful)} cells ({100 * len(doubtful) / len(rows):.1f} %) are uncertain")
    for row in doubtful:
        case = row.call.case
        lines.append(f"#   {case.call.name} {case.nbytes} B on {case.size} ranks: ±{100 * row.half_width:.1f} %")
    errors = [100 * error for row in rows for error in row.errors.values()]
    if errors:
        half, most = np.percentile(errors, [50, 95])
        lines.append(f"# {len(errors)} predicted times are off by {half:.1f} % (half of them), {most:.1f} % (95 %)")
    return lines
