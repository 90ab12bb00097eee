"""`--breakdown`: where the time of a blocking call goes, on rank 0 and on the slowest rank.

    plan    from the call to its first instruction: reading arguments, the look-up of what was decided,
            or deciding, packing and binding again where the call is not remembered
    start   starting messages
    wait    waiting for messages
    launch  local work: on the host all of it, on a device its launch, with events
    sync    waiting for the device, that after the call included
    rest    all else: between instructions, and taking these times (some 0.2 us an instruction)

The times are those of the call itself, with every instruction of its bound program timed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpicoll.bench.contestants.contestant import Way
from mpicoll.bench.contestants.instrument import KINDS, Stopwatch
from mpicoll.bench.output.columns import Column, Columns
from mpicoll.bench.output.rows import described
from mpicoll.bench.request.cases import Case
from mpicoll.bench.request.jobs import Job
from mpicoll.bench.tables.bench import Bench
from mpicoll.runtime.program.bound import observed

#: timed calls where their number is not given
ITERATIONS = 50

COLUMNS = Columns(
    Column("# call", "#", 21, "left"),
    Column("size", "(B)", 11),
    Column(" algorithm", "", 29, "left"),
    Column("form", "", 12, "left"),
    Column("rank", "", 4),
    Column("total", "(us)"),
    *(column for kind in KINDS for column in (Column(kind, "(us)", 8), Column("", "(%)", 4))),
)


@dataclass(frozen=True)
class Breakdown:
    """One call's time, in medians over its repetitions.

    Attributes:
        case: what was called.
        way: how it was carried out.
        in_place: the form.
        ranks: rank 0 and the slowest one: seconds by kind, and "total".
    """

    case: Case
    way: Way
    in_place: bool
    ranks: dict[int, dict[str, float]]

    def record(self) -> dict[str, Any]:
        """Return it for the file."""
        ranks = [{"rank": rank, **_micro(seconds)} for rank, seconds in self.ranks.items()]
        return described(self.case, self.way, self.in_place) | {"ranks": ranks}

    def cells(self) -> Iterator[tuple[str, ...]]:
        """Yield the cells of each rank."""
        form = "in place" if self.in_place else "out of place"
        start = self.case.call.name, str(self.case.nbytes), f" {self.way}", form
        for rank, seconds in self.ranks.items():
            yield (*start, str(rank), *_cells(seconds))


def _micro(seconds: dict[str, float]) -> dict[str, float]:
    return {f"{kind}_us": round(value * 1e6, 3) for kind, value in seconds.items()}


def _cells(seconds: dict[str, float]) -> Iterator[str]:
    """Yield the time in all, and of each kind the time and its percentage."""
    yield f"{seconds['total'] * 1e6:.2f}"
    for kind in KINDS:
        yield f"{seconds[kind] * 1e6:.2f}"
        yield f"{100 * seconds[kind] / seconds['total']:.0f}%"


def table(bench: Bench, jobs: Iterable[Job]) -> None:
    """Measure each job in its forms; collective."""
    bench.report.head(COLUMNS, "#")
    for job, arrays, way in bench.prepared(jobs):
        call = bench.contestant.bind(arrays, job.algorithm)
        for _ in range(1 + bench.options.warmup):
            call()
        times = _take(call, bench, bench.options.iterations or ITERATIONS)
        mine = dict(zip((*KINDS, "total"), map(float, np.median(times, axis=0)), strict=True))
        everyone = bench.world.allgather(mine)
        slowest = max(range(bench.world.size), key=lambda rank: everyone[rank]["total"])
        ranks = {rank: everyone[rank] for rank in (0, slowest)}
        bench.report.add(Breakdown(job.case, way, arrays.in_place, ranks))


def _take(call: Callable[[], object], bench: Bench, iterations: int) -> NDArray[np.float64]:
    """Return this rank's seconds of each repetition, by kind and in all."""
    times = np.empty((iterations, len(KINDS) + 1))
    watch, now, synchronize = Stopwatch(), time.perf_counter, bench.backend.synchronize
    with observed(watch):
        for row in times:
            watch.reset()
            synchronize()
            bench.clock.barrier()
            start = now()
            call()
            end = now()
            synchronize()
            last = now()
            spent = watch.spent()
            spent["plan"] = (end if watch.first is None else watch.first) - start
            spent["sync"] += last - end
            spent["rest"] = last - start - sum(spent.values())
            row[:] = *spent.values(), last - start
    return times
