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
from functools import partial

import numpy as np
from numpy.typing import NDArray

from mpicoll.bench.contestants.contestant import Way
from mpicoll.bench.contestants.instrument import KINDS, Stopwatch
from mpicoll.bench.measure.arrays import Arrays
from mpicoll.bench.measure.statistics import Statistics
from mpicoll.bench.output.columns import Column, micro
from mpicoll.bench.output.rows import MeasuredCall, Record, summary
from mpicoll.bench.request.jobs import Job
from mpicoll.bench.tables.bench import Bench
from mpicoll.runtime.program.bound import observed

#: timed calls where their number is not given: as many as fit into the budget, between these
FEWEST, ITERATIONS = 5, 50

COLUMNS = (
    Column("rank", "", 4),
    Column("total", "(us)", 8),
    *(column for kind in KINDS for column in (Column(kind, "(us)", 7, spare=2), Column(kind, "(%)", 4))),
)


@dataclass(frozen=True)
class Breakdown:
    """One call's time.

    Attributes:
        call: what was measured.
        ranks: rank 0 and the slowest one: seconds by kind, and "total".
    """

    call: MeasuredCall
    ranks: dict[int, dict[str, Statistics]]

    def record(self) -> Record:
        """Return it for the file."""
        parts = ((f"rank {rank}: {kind}", one) for rank, kinds in self.ranks.items() for kind, one in kinds.items())
        return self.call.record({name: summary(one) for name, one in parts}, {})

    def cells(self) -> Iterator[tuple[str, ...]]:
        """Yield the cells of each rank."""
        for rank, seconds in self.ranks.items():
            yield (str(rank), *_cells(seconds))


def _cells(seconds: dict[str, Statistics]) -> Iterator[str]:
    """Yield the median in all, and of each kind the median and its percentage."""
    total = seconds["total"].median
    yield micro(total)
    for kind in KINDS:
        yield micro(seconds[kind].median)
        yield f"{100 * seconds[kind].median / total:.0f}%"


def table(bench: Bench, jobs: Iterable[Job]) -> None:
    """Measure each job in its forms; collective."""
    bench.head(*COLUMNS)
    for row in bench.measured(jobs, partial(_measured, bench)):
        bench.add(row)


def _measured(bench: Bench, job: Job, arrays: Arrays, way: Way) -> Breakdown:
    call, start = bench.contestant.bind(arrays, job.algorithm), time.monotonic()
    for _ in range(1 + bench.options.warmup):
        call()
    each = (time.monotonic() - start) / (1 + bench.options.warmup)
    times = _take(call, bench, bench.options.iterations or bench.budget.number(each, FEWEST, ITERATIONS))
    mine = dict(zip((*KINDS, "total"), map(Statistics.of, times.T), strict=True))
    everyone = bench.world.allgather(mine)
    slowest = max(range(bench.world.size), key=lambda rank: everyone[rank]["total"].median)
    return Breakdown(bench.called(job, way, arrays.in_place), {rank: everyone[rank] for rank in (0, slowest)})


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
            spent["rest"] = max(last - start - sum(spent.values()), 0.0)  # which is not below it but by rounding
            row[:] = *spent.values(), last - start
    return times
