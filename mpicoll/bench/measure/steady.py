"""The speed of the machine itself: a fixed loop, timed at the start, in the middle and at the end of a run.

    0.95 to 1.21 ms  ->  27 % apart: the processor's frequency changed, or something else ran on its core

Only rank 0 takes the time, while the others sleep.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from mpi4py import MPI

from mpicoll.bench.measure.clock import rest

#: steps of the loop, and how often it is done, some 50 ms in all: the fastest counts
STEPS, TIMES = 20_000, 50
#: part by which the slowest may be apart from the fastest
APART = 0.05


def loop() -> float:
    """Return the seconds of the fixed loop."""
    start, number = time.perf_counter(), 0
    for step in range(STEPS):
        number += step & 3
    return time.perf_counter() - start


class Steadiness:
    """The times of the loop; of rank 0 only.

    Args:
        once: does the loop once, and returns its seconds.
    """

    def __init__(self, once: Callable[[], float] = loop) -> None:
        self.once, self.seconds = once, list[float]()

    def look(self, world: MPI.Intracomm) -> None:
        """Take the time once more; collective."""
        if world.rank == 0:
            if not self.seconds:  # a processor that was idle is slow at first
                for _ in range(TIMES):
                    self.once()
            self.seconds.append(min(self.once() for _ in range(TIMES)))
        rest(world)

    @property
    def apart(self) -> float:
        """The part by which the slowest is above the fastest."""
        return max(self.seconds) / min(self.seconds) - 1 if self.seconds else 0.0

    @property
    def warning(self) -> str:
        """A sentence, "" where the clock was steady."""
        if not self.seconds or self.apart <= APART:
            return ""
        took = f"{1e3 * min(self.seconds):.3f} to {1e3 * max(self.seconds):.3f} ms"
        return f"WARNING: the clock was not steady: a fixed loop took {took}, which are {100 * self.apart:.0f} % apart"
