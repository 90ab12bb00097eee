"""How often a call is timed, the same on all ranks, and what its times come to."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from mpicoll.bench.clock import Clock

#: timed calls that decide how many follow
FIRST = 3
#: timed calls at most, where their number is not given
MOST = 200


class Budget:
    """Shares the time of a run among its measurements; rank 0 decides, so that all ranks agree.

    Args:
        world: all ranks.
        seconds: for the whole run, counted from now.
        measurements: how many there will be.
        now: seconds on some clock.
    """

    def __init__(
        self, world: Any, seconds: float, measurements: int, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.world, self.now, self.left = world, now, measurements
        self.deadline = now() + seconds
        self.until = self.deadline

    def begin(self) -> None:
        """Start the next measurement: it gets an equal share of what is left."""
        start = self.now()
        self.until = start + max(0.0, self.deadline - start) / max(self.left, 1)
        self.left -= 1

    def late(self) -> bool:
        """Tell whether the share is spent before the first call is timed."""
        return bool(self.world.bcast(self.now() >= self.until, root=0))

    def calls(self, seconds: float) -> int:
        """Return how many more calls, of so many seconds each with all about them, fit into the share."""
        fit = (self.until - self.now()) / max(seconds, 1e-9)
        return int(self.world.bcast(max(0, min(int(fit), MOST - FIRST)), root=0))


def measure(
    call: Callable[[], object], clock: Clock, budget: Budget, *, iterations: int | None, warmup: int
) -> NDArray[np.float64]:
    """Return the seconds of every timed call.

    Args:
        call: what to time; it has been called before.
        clock: takes the times.
        budget: says how many, where that is not given.
        iterations: number of timed calls, None leaves it to the budget.
        warmup: calls before them; left out where the budget is behind, which then allows one timed call.
    """
    if iterations is None and budget.late():
        return clock.take(call, 1)
    for _ in range(warmup):
        call()
    if iterations is not None:
        return clock.take(call, iterations)
    start = budget.now()
    first = clock.take(call, FIRST)
    more = budget.calls((budget.now() - start) / FIRST)
    return np.concatenate([first, clock.take(call, more)]) if more else first


@dataclass(frozen=True)
class Statistics:
    """A summary of times, in the unit of the samples."""

    median: float
    least: float
    mean: float
    p99: float
    number: int

    @classmethod
    def of(cls, samples: NDArray[np.float64]) -> Statistics:
        """Summarise."""
        return cls(
            float(np.median(samples)),
            float(samples.min()),
            float(samples.mean()),
            float(np.percentile(samples, 99)),
            samples.size,
        )
