"""The table of times, in nccl-tests' columns: each of its lines is measured and validated on all ranks together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from mpicoll.bench.contestants.contestant import Contestant
from mpicoll.bench.errors import ShortageError, anywhere
from mpicoll.bench.measure.arrays import Arrays
from mpicoll.bench.measure.backends import in_memory
from mpicoll.bench.measure.budget import measure
from mpicoll.bench.measure.statistics import Statistics
from mpicoll.bench.output.columns import Column, Columns
from mpicoll.bench.output.rows import Measurement
from mpicoll.bench.request.jobs import Job
from mpicoll.bench.tables.bench import Bench, form_name, way_of

Timed = Callable[[], object]

_START = (
    Column("# op", "#", 21, "left"),
    Column("size", "(B)", 10),
    Column("count", "(elements)", 11),
    Column("type", "", 10),
    Column("redop", "", 5),
    Column("root", "", 4),
    Column(" algorithm", "", 34, "left"),
)
_FORM = (Column("time", "(us)"), Column("algbw", "(GB/s)", 8), Column("busbw", "(GB/s)", 8), Column("#wrong", "", 7))


def table(bench: Bench, jobs: Iterable[Job]) -> None:
    """Make the table."""
    names = tuple(bench.baselines)
    bench.report.head(columns(names), *above(names))
    for job in jobs:
        done = []
        for in_place in job.forms:
            bench.budget.begin()
            with bench.leaving_out(job, in_place):
                done.append(_measured(bench, job, in_place))
                bench.report.keep(done[-1])
        if done:
            bench.report.line(*cells(done, names))


def columns(baselines: Iterable[str]) -> Columns:
    """Return the columns: the case, and for each form ours and the baselines' times."""
    return Columns(*_START, *2 * (*_FORM, *(column for name in baselines for column in _beside(name))))


def _beside(baseline: str) -> tuple[Column, Column]:
    return Column(baseline, "(us)"), Column("ratio", "", 6)


def above(baselines: Iterable[str]) -> tuple[str, str]:
    """Return the two lines above the head: (an empty one, the names of the forms)."""
    names = tuple(baselines)
    each = len(_FORM) + 2 * len(names)
    return "#", columns(names).merged((len(_START), "#"), (each, "out of place"), (each, "in place"))


def cells(done: list[Measurement], baselines: Iterable[str]) -> tuple[str, ...]:
    """Return the cells of a case, from its forms."""
    case = done[0].case
    names, by_form = tuple(baselines), {one.call.in_place: one for one in done}
    found = [
        case.call.name,
        str(case.nbytes),
        str(case.count),
        case.dtype if case.call.method != "Barrier" else "none",
        case.redop.lower() or "none",
        str(case.root) if case.call.row.rooted else "-1",
        f" {done[0].call.way}",
    ]
    for in_place in (False, True):
        found += _of_form(by_form.get(in_place), names)
    return tuple(found)


def _of_form(one: Measurement | None, baselines: tuple[str, ...]) -> list[str]:
    if one is None:
        return ["-"] * (len(_FORM) + 2 * len(baselines))
    found = [f"{one.statistics.median * 1e6:.2f}", f"{one.algbw:.3f}", f"{one.busbw:.3f}", str(one.wrong)]
    for name in baselines:
        known = name in one.baselines
        found.append(f"{Statistics.of(one.baselines[name]).median * 1e6:.2f}" if known else "-")
        found.append(f"{one.ratio(name):.2f}" if known else "-")
    return found


def _measured(bench: Bench, job: Job, in_place: bool) -> Measurement:
    """Return a case's times in one form, validated before and after."""
    options, arrays = bench.options, bench.arrays(job, in_place)
    way = bench.way(arrays, job.algorithm)
    call = bench.contestant.bind(arrays, job.algorithm)
    wrong = validate(bench, arrays, call, str(way), 0)
    bench.report.wrong += wrong
    others = _others(bench, arrays)
    seconds, *of_others = measure(
        [call, *others.values()], bench.clock, bench.budget, iterations=options.iterations, warmup=options.warmup
    )
    after = validate(bench, arrays, call, str(way), 1)
    bench.report.wrong += after
    measured = bench.called(job, way, in_place)
    return Measurement(measured, seconds, wrong + after, dict(zip(others, of_others, strict=True)))


def _others(bench: Bench, arrays: Arrays) -> dict[str, Timed]:
    """Return the baselines' calls, those that can serve and are right."""
    found = {}
    for name, baseline in bench.baselines.items():
        why = anywhere(bench.world, way_of(baseline, arrays, None)[1])
        call, why = (None, why) if why else _tried(bench, arrays, name, baseline)
        if call is not None:
            found[name] = call
        else:
            bench.report.refuse(arrays.case.call.name, f"baseline {name}:", why)
    return found


def _tried(bench: Bench, arrays: Arrays, name: str, baseline: Contestant) -> tuple[Timed | None, str]:
    """Return (a baseline's call, "") or (None, why it is left out).

    Args:
        bench: the run.
        arrays: of the case.
        name: of the baseline.
        baseline: the contestant.
    """
    what = f"{form_name(arrays.in_place)}, {arrays.case.nbytes} B of {arrays.case.dtype}"
    try:
        call = in_memory(bench.world, partial(baseline.bind, arrays, None))
    except ShortageError as error:
        return None, f"{what}: {error}"
    if baseline.exact and validate(bench, arrays, call, name, 0):
        return None, f"wrong results, {what}"
    return call, ""


def validate(bench: Bench, arrays: Arrays, call: Timed, way: str, iteration: int) -> int:
    """Return the wrong elements of all ranks after a call on fresh numbers.

    Args:
        bench: the run.
        arrays: of the case.
        call: makes the call.
        way: how it is carried out, for the complaint.
        iteration: number of the call, from which its numbers are made.
    """
    in_memory(bench.world, partial(arrays.load, iteration))
    bench.backend.synchronize()
    call()
    bench.backend.synchronize()
    found = bench.world.allgather(in_memory(bench.world, arrays.wrong))
    for rank, (number, words) in enumerate(found):
        if number:
            what = f"{arrays.case.call.name}, {way}, {form_name(arrays.in_place)}, call {iteration}, rank {rank}"
            bench.report.complain(f"{what}: {number} wrong, {words}")
    return sum(number for number, _ in found)
