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
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mpicoll.bench.cases import Case
from mpicoll.bench.inside import KINDS, Stopwatch
from mpicoll.bench.jobs import Job
from mpicoll.bench.report import described
from mpicoll.bench.subject import Way
from mpicoll.runtime.program.bound import observed

if TYPE_CHECKING:
    from mpicoll.bench.bench import Bench

#: timed calls where their number is not given
ITERATIONS = 50

_COLUMNS = "".join(f"{kind:>14}" for kind in KINDS)
HEAD = (
    "#",
    f"{'# call':<21} {'size':>11}  {'algorithm':<28} {'form':<12} {'rank':>4} {'total':>10}{_COLUMNS}",
    f"{'#':<21} {'(B)':>11}  {'':<28} {'':<12} {'':>4} {'(us)':>10}" + f"{'(us)':>9}{'':>5}" * len(KINDS),
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

    def __str__(self) -> str:
        form = "in place" if self.in_place else "out of place"
        start = f"{self.case.call.name:<21} {self.case.nbytes:>11}  {self.way!s:<28} {form:<12} "
        return "\n".join(f"{start}{rank:>4} {_cells(seconds)}" for rank, seconds in self.ranks.items())


def _micro(seconds: dict[str, float]) -> dict[str, float]:
    return {f"{kind}_us": round(value * 1e6, 3) for kind, value in seconds.items()}


def _cells(seconds: dict[str, float]) -> str:
    total = seconds["total"]
    cells = (f"{seconds[kind] * 1e6:>9.2f}{100 * seconds[kind] / total:>4.0f}%" for kind in KINDS)
    return f"{total * 1e6:>10.2f}" + "".join(cells)


def table(bench: Bench, jobs: Iterable[Job]) -> None:
    """Measure each job in its forms; collective."""
    bench.report.say(*HEAD)
    for job, trial, way in bench.trials(jobs):
        call = bench.subject.bind(trial, job.algorithm)
        for _ in range(1 + bench.options.warmup):
            call()
        times = _take(call, bench, bench.options.iterations or ITERATIONS)
        mine = dict(zip((*KINDS, "total"), map(float, np.median(times, axis=0)), strict=True))
        everyone = bench.world.allgather(mine)
        slowest = max(range(bench.world.size), key=lambda rank: everyone[rank]["total"])
        ranks = {rank: everyone[rank] for rank in (0, slowest)}
        bench.report.add(Breakdown(job.case, way, trial.in_place, ranks))


def _take(call: Callable[[], object], bench: Bench, iterations: int) -> NDArray[np.float64]:
    """Return this rank's seconds of each repetition, by kind and in all."""
    times = np.empty((iterations, len(KINDS) + 1))
    watch, now, synchronize = Stopwatch(), time.perf_counter, bench.memory.synchronize
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
