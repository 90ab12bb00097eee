"""`--regret`: how much slower mpicoll's choice is than the fastest of all choices, all of them timed in turn.

    regret = 100 % * (t(chosen) / min t - 1)

A cell is a call of one message size on one number of ranks.  Where the intervals of the chosen one's and of the fastest
one's median overlap, nobody knows which one is faster: those regrets count as they are, and once more as 0.  A cell is
uncertain where one of the two medians is known less well than to 5 %.  The model's error is that of the predicted time
of each choice that stayed in the race.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpicoll.bench.contestants.contestant import Way
from mpicoll.bench.measure.arrays import Arrays
from mpicoll.bench.measure.race import Goal, race
from mpicoll.bench.measure.statistics import Statistics
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
        times: of each choice, in seconds.
        errors: by choice that stayed in the race, the relative error of the predicted time.
    """

    call: MeasuredCall
    chosen: Choice
    times: dict[Choice, Statistics]
    errors: dict[Choice, float]

    @property
    def fastest(self) -> Choice:
        """The choice with the least median."""
        return min(self.times, key=lambda choice: self.times[choice].median)

    @property
    def percent(self) -> float:
        """The regret."""
        return 100 * (self.times[self.chosen].median / self.times[self.fastest].median - 1)

    @property
    def tied(self) -> bool:
        """True where the intervals overlap."""
        return self.times[self.chosen].low <= self.times[self.fastest].high

    @property
    def half_width(self) -> float:
        """The larger half-width of the two intervals."""
        return max(self.times[choice].half_width for choice in (self.chosen, self.fastest))

    def record(self) -> dict[str, Any]:
        """Return it for the file."""
        figures = {
            "regret": quantity(self.percent, "%"),
            "regret, ties as 0": quantity(0.0 if self.tied else self.percent, "%"),
            "half-width": quantity(100 * self.half_width, "%"),
        }
        figures |= {f"error {choice}": quantity(100 * error, "%") for choice, error in self.errors.items()}
        return self.call.record({str(choice): summary(one) for choice, one in self.times.items()}, figures)

    def cells(self) -> Iterator[tuple[str, ...]]:
        """Yield its cells."""
        case = self.call.case
        note = " uncertain" if self.half_width > CERTAIN else ""
        yield (
            *(case.call.name, str(case.nbytes), str(case.size)),
            *(f" {self.chosen}", f"{self.times[self.chosen].median * 1e6:.2f}"),
            *(f" {self.fastest}", f"{self.times[self.fastest].median * 1e6:.2f}"),
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
    goal = Goal(bench.options.ci, seconds, frozenset({0}))
    found = dict(zip(able, race(calls, bench.clock, bench.world, goal, bench.budget.now), strict=True))
    errors = {
        choice: abs(one.seconds / found[choice].median - 1)
        for choice, one in able.items()
        if one and one.seconds and found[choice].half_width <= CERTAIN
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
