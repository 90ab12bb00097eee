"""Time: a call starts on all ranks together, and takes as long as on the slowest."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray


class Clock:
    """Takes times on all ranks of a communicator.

    Args:
        world: a communicator of mpi4py's own, for barriers and for the maximum over ranks.
        yielding: waiting ranks give their core away, since there are more ranks than cores.
        synchronize: waits for the work on the arrays' device.
    """

    def __init__(self, world: MPI.Intracomm, yielding: bool, synchronize: Callable[[], object]) -> None:
        self.world, self.yielding, self.synchronize = world, yielding, synchronize

    def barrier(self) -> None:
        """Wait for all ranks."""
        request = self.world.Ibarrier()
        while not request.Test():
            if self.yielding:
                os.sched_yield()

    def take(self, call: Callable[[], object], calls: int) -> NDArray[np.float64]:
        """Return the seconds of each of a number of calls, the slowest rank's."""
        seconds = np.empty(calls)
        synchronize, now = self.synchronize, time.perf_counter
        for number in range(calls):
            synchronize()
            self.barrier()
            start = now()
            call()
            synchronize()
            seconds[number] = now() - start
        self.world.Allreduce(MPI.IN_PLACE, seconds, op=MPI.MAX)
        return seconds


def loops(
    call: Callable[[], object], number: int, calls: int, before: Callable[[], object] = lambda: None
) -> NDArray[np.float64]:
    """Return the mean seconds of a call in each of a number of loops, on this rank alone.

    Args:
        call: what to time.
        number: of loops.
        calls: in each of them.
        before: is done before each loop, and not timed.
    """
    seconds = np.empty(number)
    for place in range(number):
        before()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        seconds[place] = (time.perf_counter() - start) / calls
    return seconds
