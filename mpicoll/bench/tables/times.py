"""The table of times: each of its lines is measured and validated on all ranks together."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import groupby

from mpicoll.bench.contestants.contestant import Contestant
from mpicoll.bench.errors import ShortageError, anywhere
from mpicoll.bench.measure.arrays import Arrays
from mpicoll.bench.measure.backends import in_memory
from mpicoll.bench.measure.budget import measure
from mpicoll.bench.measure.statistics import Statistics
from mpicoll.bench.output.columns import Column, micro
from mpicoll.bench.output.host_bytes import host_bytes_of
from mpicoll.bench.output.rows import Measurement
from mpicoll.bench.request.jobs import Job
from mpicoll.bench.request.options import Options
from mpicoll.bench.tables.bench import Bench, form_name, way_of
from mpicoll.runtime.context.contexts import context_of
from mpicoll.schedule.topology import Topology

Timed = Callable[[], object]

#: columns of a call's times by name: in microseconds, of the median's interval both ends
_STATS: dict[str, dict[str, Callable[[Statistics], float]]] = {
    "median": {"median": lambda one: one.median},
    "mean": {"mean": lambda one: one.mean},
    "min": {"min": lambda one: one.least},
    "max": {"max": lambda one: one.most},
    "p99": {"p99": lambda one: one.p99},
    "ci": {"ci low": lambda one: one.low, "ci high": lambda one: one.high},
}


@dataclass(frozen=True)
class Figure:
    """A column of the table, and a measurement's cell in it."""

    column: Column
    cell: Callable[[Measurement], str]


def table(bench: Bench, jobs: Iterable[Job]) -> None:
    """Make the table.  The lines of a case are printed when all of them are measured, the fastest of a form first."""
    found = figures(bench.options, tuple(bench.baselines), several_hosts=bool(_topology(bench).host_of))
    bench.head(*(one.column for one in found))
    for _, cell in groupby(jobs, key=lambda job: job.case):
        done = []
        for job in cell:
            for in_place in job.forms:
                bench.budget.begin()
                with bench.leaving_out(job, in_place):
                    done.append(_measured(bench, job, in_place))
                    bench.report.keep(done[-1])
                    _note_hosts(bench, done[-1])
        for one in sorted(done, key=lambda one: (one.call.in_place, one.statistics.median)):
            bench.line(one, *(figure.cell(one) for figure in found))


def figures(options: Options, baselines: tuple[str, ...], several_hosts: bool = False) -> list[Figure]:
    """Return the columns behind those of the call.

    Args:
        options: what is asked for.
        baselines: names of those that are timed in turn.
        several_hosts: the ranks are on several hosts.
    """
    found = list(_times(options.stats))
    found += [
        Figure(Column("algbw", "(GB/s)", 7, spare=6), lambda one: f"{one.algbw:.3f}"),
        Figure(Column("busbw", "(GB/s)", 7, spare=3), lambda one: f"{one.busbw:.3f}"),
        Figure(Column("#wrong", "", 6, spare=4), lambda one: str(one.wrong)),
    ]
    found += [Figure(Column("between hosts", "/ least", 13, spare=5), _hosts_cell)] if several_hosts else []
    for name in baselines:
        found += _beside(name)
    window = options.sync == "window"
    return [
        *found,
        Figure(Column("calls", "", 5, spare=7), lambda one: str(one.statistics.number)),
        Figure(Column("outl.", "", 5, spare=8), lambda one: str(one.statistics.outliers)),
        Figure(Column("inv.", "", 4, spare=2 if window else 10), lambda one: str(one.statistics.invalid)),
    ]


def _times(stats: tuple[str, ...]) -> Iterator[Figure]:
    """Yield the columns of our own times."""
    for name, value in ((n, v) for stat in stats or ("median",) for n, v in _STATS[stat].items()):
        head = name if stats else "time"
        yield Figure(Column(head, "(us)", 8), lambda one, value=value: micro(value(one.statistics)))  # type: ignore[misc]
    if not stats:
        yield Figure(Column("±", "(%)", 4, spare=2), lambda one: _percent(one.statistics.half_width))


def _percent(part: float) -> str:
    """Write a part in percent; "?" for a median's interval of too few samples."""
    return f"{100 * part:.{0 if part >= 0.1 else 1}f}" if part < math.inf else "?"


def _hosts_cell(one: Measurement) -> str:
    """Write bytes between hosts over the least possible."""
    ratio = one.host_bytes.ratio if one.host_bytes else None
    return "n/a" if ratio is None else f"{ratio:.2f}"


def _note_hosts(bench: Bench, one: Measurement) -> None:
    """Note once for each call why its bytes between hosts over the least possible are not known."""
    why = one.host_bytes.why if one.host_bytes else ""
    note = f"between hosts / least of {one.case.call.name}: n/a, {why}"
    if why and note not in bench.report.notes:
        bench.report.notes.append(note)


def _topology(bench: Bench) -> Topology:
    """Return where the ranks are."""
    return context_of(bench.contestant.comm).topology


def _beside(name: str) -> tuple[Figure, Figure]:
    """Return the columns of a baseline: its time, and the ratio of that to ours, for the limit our efficiency."""
    what = "eff." if name == "limit" else "ratio"

    def known(write: Callable[[Measurement], str]) -> Callable[[Measurement], str]:
        return lambda one: write(one) if name in one.baselines else "n/a"

    time = known(lambda one: micro(Statistics.of(one.baselines[name]).median))
    return (
        Figure(Column(name, "(us)", 8, spare=5), time),
        Figure(Column(name, what, max(len(name), 5)), known(lambda one: f"{one.ratio(name):.2f}")),
    )


def _measured(bench: Bench, job: Job, in_place: bool) -> Measurement:
    """Return a case's times in one form, validated before and after."""
    options, arrays = bench.options, bench.arrays(job, in_place)
    way = bench.way(arrays, job.algorithm)
    call = bench.contestant.bind(arrays, job.algorithm)
    wrong = validate(bench, arrays, call, str(way), 0)
    bench.report.wrong += wrong
    others = _others(bench, arrays)
    seconds, *of_others = measure(
        [call, *others.values()],
        bench.clock,
        bench.budget,
        iterations=options.iterations,
        warmup=options.warmup,
        width=options.width,
    )
    after = validate(bench, arrays, call, str(way), 1)
    bench.report.wrong += after
    measured, topology = bench.called(job, way, in_place), _topology(bench)
    host_bytes = host_bytes_of(job.case, way.algorithm, topology) if topology.host_of else None
    return Measurement(measured, seconds, wrong + after, dict(zip(others, of_others, strict=True)), host_bytes)


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
