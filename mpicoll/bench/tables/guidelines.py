"""`--check-guidelines`: a call, as mpicoll chooses its way, is no slower than what could stand in its place.

    call <= composition    other collectives that do its work, one after the other (`contestants/compositions.py`)
    call <= algorithm      every other algorithm that can serve
    call <= baseline       those that are asked for
    call <= larger size    the same call with the next message size

All sides of a call's guidelines are in one race (`measure/race.py`), each on arrays of its own; the right side's time
is compared with the left side's of the same round.  Messages are made of equal blocks, so that a vector of 8 bytes has
12 on 3 ranks.

A guideline is violated if the median of the ratios is above 1.05, and its interval above 1.  With an interval that has
1 in it, or few rounds, it is unclear whether it holds.  Each call has a line for every guideline that is violated; all
of them are in the file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial

from mpicoll.algorithms import registry
from mpicoll.bench.contestants.compositions import COMPOSITIONS, Composition
from mpicoll.bench.contestants.contestant import Contestant, Way
from mpicoll.bench.errors import RefusedError, anywhere
from mpicoll.bench.measure.arrays import Arrays
from mpicoll.bench.measure.backends import in_memory
from mpicoll.bench.measure.race import Goal, race
from mpicoll.bench.output.guidelines import COLUMNS, HOLDS, OURS, TOLERANCE, UNCLEAR, VIOLATED, Guidelines, Side
from mpicoll.bench.output.rows import Record
from mpicoll.bench.request.cases import Case, in_equal_blocks, make_case
from mpicoll.bench.request.jobs import Job, message_sizes
from mpicoll.bench.tables.bench import Bench, way_of
from mpicoll.bench.tables.times import validate

#: half-width with which a ratio is known: less than the tolerance
CERTAIN = TOLERANCE / 2


def table(bench: Bench, jobs: Iterable[Job]) -> None:
    """Check the guidelines of each job's call; collective."""
    bench.head(*COLUMNS)
    for row in bench.measured(jobs, partial(_checked, bench)):
        bench.report.violations += row.violations
        bench.add(row)


def summed_up(records: Iterable[Record]) -> list[str]:
    """Return a line on the guidelines of all calls."""
    found = Counter(one["verdict"] for record in records for one in record["guidelines"].values())
    return ["# guidelines: " + ", ".join(f"{found[word]} {word}" for word in (HOLDS, VIOLATED, UNCLEAR))]


def _checked(bench: Bench, job: Job, arrays: Arrays, way: Way) -> Guidelines:
    """Return the guidelines of a call, all sides of which are validated and timed in one race."""
    before = bench.report.wrong
    ours = _side(bench, OURS, bench.contestant, arrays)
    rivals = tuple(_rivals(bench, job.case, ours))
    goal = Goal(CERTAIN, max(bench.world.bcast(bench.budget.until - bench.budget.now()), 0.0), reference=0)
    first, *others = race([s.call for s in (ours, *rivals)], bench.clock, bench.world, goal, bench.budget.now)
    bench.report.wrong += validate(bench, arrays, ours.call, str(way), 1)
    pairs, wrong = tuple(zip(rivals, others, strict=True)), bench.report.wrong - before
    return Guidelines(bench.called(job, way, arrays.in_place), first, pairs, wrong)


def _rivals(bench: Bench, case: Case, ours: Side) -> Iterator[Side]:
    """Yield what could stand in a call's place; what cannot serve is left out, and the way that it takes anyway.

    Args:
        bench: the run.
        case: of the call.
        ours: the call.
    """
    for name, contestant, its, algorithm in _named(bench, case):
        try:
            arrays = bench.arrays(Job(its, algorithm), its.call.forms[0])
            side = _side(bench, name, contestant, arrays, algorithm)
        except RefusedError as error:
            bench.report.refuse(case.call.name, f"{name}:", str(error))
            continue
        if algorithm is None or str(side.way) != str(ours.way):
            yield side


def _named(bench: Bench, case: Case) -> Iterator[tuple[str, Contestant, Case, str | None]]:
    """Yield the rivals of a call, each as (name, contestant, case, algorithm)."""
    ours = bench.contestant
    for legs in COMPOSITIONS.get(case.call.name, ()):
        composition = Composition(legs, ours.comm, bench.backend)
        yield str(composition), composition, case, None
    for card in registry.usable(case.call.row.name, case.size, counts_known=not case.call.local):
        yield card.name, ours, case, card.name
    yield from ((name, baseline, case, None) for name, baseline in bench.baselines.items())
    larger = _larger(case, message_sizes(bench.options, bench.backend.kind))
    if larger:
        yield f"{larger.nbytes} B", ours, larger, None


def _larger(case: Case, sizes: Iterable[int]) -> Case | None:
    """Return the case of the next message size, None if there is none."""
    sized = (make_case(case.call, nbytes, case.dtype, case.size, case.redop, case.root) for nbytes in sizes)
    return next((one for one in map(in_equal_blocks, sized) if one.count > case.count), None)


def _side(bench: Bench, name: str, contestant: Contestant, arrays: Arrays, algorithm: str | None = None) -> Side:
    """Return a side, validated; raise RefusedError on all ranks if it cannot serve, or a baseline is wrong.

    Args:
        bench: the run; wrong elements are added to those of its report.
        name: of the side.
        contestant: makes the call.
        arrays: of the call.
        algorithm: of the call; None leaves it to the contestant.
    """
    way, why = way_of(contestant, arrays, algorithm)
    why = anywhere(bench.world, why)
    if why:
        raise RefusedError(why.removeprefix(f"{arrays.case.call.row.name}: "))
    call = in_memory(bench.world, partial(contestant.bind, arrays, algorithm))
    wrong = validate(bench, arrays, call, f"{name} ({way})", 0) if contestant.exact else 0
    if wrong and name in bench.baselines:
        raise RefusedError("wrong results")
    bench.report.wrong += wrong
    return Side(name, way, call)
