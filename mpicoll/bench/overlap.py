"""`--async`: how much of a nonblocking call is hidden behind computation.

As OSU's nonblocking tests define it: with t_pure the time of the call alone (started and waited
for at once), t_compute that of the computation alone, and t_total that of both together,

    overlap = max(0, 1 - (t_total - t_compute) / t_pure)

The computation is a kernel that spins on the call's stream for CuPy arrays, and a loop on the host
for NumPy arrays, which makes progress with `Test` now and then (not with MPICOLL_PROGRESS=thread).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from mpicoll.bench.clock import Clock
from mpicoll.bench.jobs import Job
from mpicoll.bench.memory import Device, Memory
from mpicoll.settings import settings

if TYPE_CHECKING:
    from mpicoll.bench.bench import Bench

#: seconds between two looks at the request on the host
LOOK = 1e-4

_SPIN = """
extern "C" __global__ void spin(long long nanoseconds) {
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); while (now - start < nanoseconds);
}
"""

HEAD = (
    "# call                      size   algorithm                             pure     compute       total  overlap",
    "#                            (B)                                         (us)        (us)        (us)      (%)",
)


@dataclass(frozen=True)
class Overlap:
    """One result, in seconds."""

    call: str
    nbytes: int
    algorithm: str
    pure: float
    compute: float
    total: float

    @property
    def percent(self) -> float:
        """How much of the call was hidden."""
        return max(0.0, 100 - 100 * (self.total - self.compute) / self.pure)

    def record(self) -> dict[str, Any]:
        """Return it for the file."""
        return asdict(self) | {"percent": self.percent}

    def __str__(self) -> str:
        times = "".join(f"{t * 1e6:12.1f}" for t in (self.pure, self.compute, self.total))
        return f"{self.call:<20}{self.nbytes:>12}   {self.algorithm:<28}{times}{self.percent:9.1f}"


def rows(bench: Bench, jobs: list[Job]) -> Iterator[Overlap]:
    """Measure how much of each call is hidden behind computation."""
    for job, trial in bench.trials(jobs):
        call = job.case.call
        way = bench.way(trial, job.algorithm)
        method = getattr(bench.subject.comm, f"I{call.method.lower()}")
        start = partial(method, *trial.arguments, algorithm=job.algorithm)
        seconds = bench.options.compute or 0.0
        times = overlap(start, bench.clock, bench.memory, seconds, bench.options.iterations or 10)
        yield Overlap(call.name, job.case.nbytes, str(way), *times)


def overlap(
    start: Callable[[], Any], clock: Clock, memory: Memory, seconds: float, iterations: int
) -> tuple[float, float, float]:
    """Return the median seconds of the call alone, of the computation alone, and of both; collective.

    Args:
        start: starts the call, returns its request.
        clock: takes the times.
        memory: where the arrays live.
        seconds: of computation; 0 for as long as the call alone takes.
        iterations: timed calls.
    """
    alone = _median(clock, lambda: start().Wait(), iterations)
    work = _kernel(seconds or alone) if isinstance(memory, Device) else _loop(seconds or alone)

    def both() -> None:
        request = start()
        work(request)
        request.Wait()

    return alone, _median(clock, lambda: work(None), iterations), _median(clock, both, iterations)


def _median(clock: Clock, call: Callable[[], object], iterations: int) -> float:
    clock.take(call, 2)
    return float(np.median(clock.take(call, iterations)))


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
