"""`--regret`: how much slower mpicoll's choice is than the fastest of all choices, all of them timed in turn.

    regret = 100 % * (t(chosen) / min t - 1)

A cell is a call of one message size on one number of ranks.  Times are compared within rounds (`measure/race.py`), in
several visits to all cells (`measure/visits.py`).
Where the interval of their ratio has 1 in it, nobody knows which one is faster: those regrets count as they are, and
once more as 0.  A cell is uncertain where the ratio is known less well than to 5 %.  The model's error is that of the
predicted time of each choice that is known to 5 %.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from mpicoll.bench.contestants.contestant import Way
from mpicoll.bench.measure.arrays import Arrays
from mpicoll.bench.measure.race import Goal, Runner, race
from mpicoll.bench.measure.visits import VISITS, Visits
from mpicoll.bench.output.columns import Column, micro
from mpicoll.bench.output.rows import MeasuredCall, Record, quantity, summary
from mpicoll.bench.request.jobs import Job
from mpicoll.bench.tables.bench import Bench
from mpicoll.dispatch.rules import Choice
from mpicoll.dispatch.select import Candidate

#: half-width of an interval from which on a cell is uncertain
CERTAIN = 0.05
#: goals of the project: regret in percent, in the mean, of 95 % of the cells, and of the worst
GOALS = (3.0, 10.0, 25.0)

COLUMNS = (
    Column("time", "(us)", 8),
    Column("fastest", "", 26, "left"),
    Column("time", "(us)", 8, spare=2),
    Column("regret", "(%)", 6),
    Column("±", "(%)", 4, spare=3),
    Column("", "", 14, "left"),
)


@dataclass(frozen=True)
class Regret:
    """One cell.

    Attributes:
        call: with mpicoll's choice.
        chosen: the choice.
        visits: what races say of each choice; the chosen one is the reference.
        errors: by choice, the relative error of the predicted time.
    """

    call: MeasuredCall
    chosen: Choice
    visits: Visits[Choice]
    errors: dict[Choice, float]

    @cached_property
    def runners(self) -> dict[Choice, Runner]:
        """Runners of each choice, over all visits."""
        return self.visits.runners()

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

    def record(self) -> Record:
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
        notes = {"tied": self.tied and self.percent, "uncertain": self.half_width > CERTAIN}
        yield (
            *(micro(self.runners[self.chosen].seconds.median), str(self.fastest)),
            micro(self.runners[self.fastest].estimate),
            *(f"{self.percent:.1f}", _percent(100 * self.half_width)),
            " ".join(note for note, true in notes.items() if true),
        )


def _percent(half_width: float | None) -> str:
    """Write percents; "?" where there are too few rounds for an interval."""
    return "?" if half_width is None or half_width == math.inf else f"{half_width:.1f}"


def table(bench: Bench, jobs: Iterable[Job]) -> None:
    """Visit each job's cell; in the last visit, write their rows. Collective."""
    last = bench.visit == VISITS
    if last:
        bench.head(*COLUMNS)
    for key, row in bench.measured(jobs, partial(_visited, bench)):
        bench.met[key] = row
        if last:
            bench.add(bench.met.pop(key))


def write_rest(bench: Bench) -> None:
    """Write the rows of cells without a last visit: the budget was spent; none in other modes."""
    if bench.met and bench.visit < VISITS:
        bench.head(*COLUMNS)
    for row in bench.met.values():
        bench.add(row)


def _visited(bench: Bench, job: Job, arrays: Arrays, way: Way) -> tuple[Hashable, Regret]:
    """Race the choices of a cell; return (its key, its row after this visit)."""
    chosen = Choice(way.algorithm, way.segments, way.path)
    plan = bench.contestant.comm.Get_plan(job.case.call.method, *arrays.arguments)
    able: dict[Choice, Candidate | None] = {chosen: None}
    able |= {one.choice: one for one in plan.candidates() if not one.why_not}
    key = job.case.call.name, job.case.nbytes, arrays.in_place
    visits: Visits[Choice] = bench.met[key].visits if key in bench.met else Visits()
    choices = list(dict.fromkeys([chosen, *visits.left(able)]))
    calls = [bench.contestant.bind(arrays, str(choice)) for choice in choices]
    seconds = max(bench.world.bcast(bench.budget.until - bench.budget.now()), 0.0)
    goal = Goal(bench.options.width, seconds, 0)
    found = race(calls, bench.clock, bench.world, goal, bench.budget.now)
    visits.found.append(dict(zip(choices, found, strict=True)))
    return key, Regret(bench.called(job, way, arrays.in_place), chosen, visits, _errors(visits, able))


def _errors(visits: Visits[Choice], able: Mapping[Choice, Candidate | None]) -> dict[Choice, float]:
    """Return the relative error of each predicted time, where the time is known well enough."""
    found = visits.runners()
    return {
        choice: abs(one.seconds / found[choice].estimate - 1)
        for choice, one in able.items()
        if one and one.seconds and found[choice].ratio.half_width <= CERTAIN
    }


def summed_up(records: Iterable[Record]) -> list[str]:
    """Return lines on all cells: mean, 95 % and worst regret, the cells that are uncertain, and the model's error.

    Args:
        records: the cells' rows in the file.
    """
    rows = list(records)
    if not rows:
        return []
    goals = ", ".join(f"{goal:g}" for goal in GOALS)
    lines = [f"# {len(rows)} cells; regret in %: mean, 95 % of the cells, worst (goals {goals})"]
    for said, name in (("as measured", "regret"), ("overlapping intervals as 0", "regret, ties as 0")):
        values = [_figure(row, name) or 0.0 for row in rows]
        mean, most, worst = float(np.mean(values)), float(np.percentile(values, 95)), max(values)
        lines.append(f"#   {said}: {mean:.2f}, {most:.2f}, {worst:.2f}")
    widths = [(_figure(row, "half-width"), row) for row in rows]
    doubtful = [(width, row) for width, row in widths if width is None or width > 100 * CERTAIN]
    lines.append(f"# {len(doubtful)} cells ({100 * len(doubtful) / len(rows):.1f} %) are uncertain")
    for width, row in doubtful:
        lines.append(f"#   {row['op']} {row['bytes']} B on {row['ranks']} ranks: ±{_percent(width)} %")
    errors = [_figure(row, name) or 0.0 for row in rows for name in row["figures"] if name.startswith("error ")]
    if errors:
        half, most = np.percentile(errors, [50, 95])
        lines.append(f"# {len(errors)} predicted times are off by {half:.1f} % (half of them), {most:.1f} % (95 %)")
    return lines


def _figure(row: Record, name: str) -> float | None:
    """Return the value of a row's figure; None where it is not known."""
    value: float | None = row["figures"][name]["value"]
    return value
