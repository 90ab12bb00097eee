"""`--async`: the part of a nonblocking call that is hidden by computation.

As OSU's nonblocking tests define it:

    overlap = max(0, 1 - (t_total - t_compute) / t_pure)

and at most 1.  t_pure is the time of the call alone, started and waited for at once; t_compute that of the
computation alone; t_total that of both together.  After it comes its spread, from the quartiles of the three times;
an overlap that is not above its spread is not printed.

For CuPy arrays the computation is a kernel that spins on the call's stream.  For NumPy arrays it is a loop on the
host, which makes progress with `Test` now and then (not with MPICOLL_PROGRESS=thread).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from mpicoll.bench.contestants.contestant import Way
from mpicoll.bench.measure.arrays import Arrays
from mpicoll.bench.measure.backends import Backend, DeviceBackend
from mpicoll.bench.measure.budget import valid
from mpicoll.bench.measure.clock import Clock
from mpicoll.bench.measure.statistics import Statistics, figure, noise
from mpicoll.bench.output.columns import Column, micro
from mpicoll.bench.output.rows import MeasuredCall, Record, quantity, summary
from mpicoll.bench.request.jobs import Job
from mpicoll.bench.tables.bench import Bench
from mpicoll.settings import settings

#: seconds between two looks at the request on the host
LOOK = 1e-4

_SPIN = """
extern "C" __global__ void spin(long long nanoseconds) {
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); while (now - start < nanoseconds);
}
"""

COLUMNS = (
    *(Column(name, "(us)", 8, spare=spare) for name, spare in (("pure", 0), ("compute", 3), ("total", 2))),
    Column("overlap", "(%)", 18),
)
#: timed calls where their number is not given: as many as fit into the budget, between these
FEWEST, ITERATIONS = 5, 10


@dataclass(frozen=True)
class Overlap:
    """One call; its times are the slowest rank's.

    Attributes:
        call: what was measured.
        pure: the call alone.
        compute: the computation alone.
        total: both together.
    """

    call: MeasuredCall
    pure: Statistics
    compute: Statistics
    total: Statistics

    @property
    def hidden(self) -> float:
        """Percent of the call that was hidden; more than 100 % is noise."""
        return 100 * (self.pure.median + self.compute.median - self.total.median) / self.pure.median

    @property
    def percent(self) -> float:
        """Percent of the call that was hidden, between 0 and 100."""
        return min(max(0.0, self.hidden), 100.0)

    @property
    def noise(self) -> float:
        """Its spread; what is above 100 % tells that it is not less."""
        spread = 100 * noise(self.pure, self.compute, self.total) / self.pure.median
        return max(spread, self.hidden - 100)

    def record(self) -> Record:
        """Return it for the file; an overlap below its noise is None."""
        times = {name: summary(getattr(self, name)) for name in ("pure", "compute", "total")}
        return self.call.record(times, {"overlap": quantity(self.percent, "%", self.noise)})

    def cells(self) -> Iterator[tuple[str, ...]]:
        """Yield its cells."""
        times = (micro(one.median) for one in (self.pure, self.compute, self.total))
        yield (*times, figure(self.percent, self.noise))


def table(bench: Bench, jobs: Iterable[Job]) -> None:
    """Measure how much of each call is hidden by computation."""
    bench.head(*COLUMNS)
    for row in bench.measured(jobs, partial(_measured, bench)):
        bench.add(row)


def _measured(bench: Bench, job: Job, arrays: Arrays, way: Way) -> Overlap:
    method = getattr(bench.contestant.comm, f"I{job.case.call.method.lower()}")
    start = partial(method, *arrays.arguments, algorithm=job.algorithm)
    seconds, begun = bench.options.compute or 0.0, time.monotonic()
    start().Wait()
    each = 4 * (time.monotonic() - begun) + 2 * seconds  # the call alone, as much computation, and both
    iterations = bench.options.iterations or bench.budget.number(each, FEWEST, ITERATIONS)
    times = overlap(start, bench.clock, bench.backend, seconds, iterations)
    return Overlap(bench.called(job, way, arrays.in_place), *times)


def overlap(
    start: Callable[[], Any], clock: Clock, backend: Backend, seconds: float, iterations: int
) -> tuple[Statistics, Statistics, Statistics]:
    """Return the times of (the call alone, the computation alone, both together); collective.

    Args:
        start: starts the call, returns its request.
        clock: takes the times.
        backend: where the arrays live.
        seconds: of computation; 0 for as long as the call alone takes.
        iterations: timed calls.
    """
    alone = _timed(clock, lambda: start().Wait(), iterations)
    length = seconds or alone.median
    work = _kernel(length) if isinstance(backend, DeviceBackend) else _loop(length)

    def both() -> None:
        request = start()
        work(request)
        request.Wait()

    return alone, _timed(clock, lambda: work(None), iterations), _timed(clock, both, iterations)


def _timed(clock: Clock, call: Callable[[], object], iterations: int) -> Statistics:
    clock.take(call, 2)
    return Statistics.of(*valid([clock.take(call, iterations)]))


def _loop(seconds: float) -> Callable[[Any], None]:
    look = settings.progress != "thread"

    def work(request: Any) -> None:
        end = time.perf_counter() + seconds
        following = 0.0
        while (now := time.perf_counter()) < end:
            if look and request is not None and now > following:
                request.Test()
                following = now + LOOK

    return work


def _kernel(seconds: float) -> Callable[[Any], None]:
    import cupy

    spin = cupy.RawKernel(_SPIN, "spin")
    return lambda request: spin((1,), (1,), (int(seconds * 1e9),))
