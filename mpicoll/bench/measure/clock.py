"""Time: a call starts on all ranks together, and takes as long as on the slowest.

There are two common starts:

    barrier  each rank starts when it leaves a barrier
    window   the ranks agree on a time a little ahead, and all start then; a rank that is late makes the sample invalid

An agreed time is rank 0's.  A rank of another host adds what its own clock is ahead: rank 0 says 100.0002 s, and a rank
whose clock is 5 s ahead starts at 105.0002 s.  Samples that are invalid are infinite.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from mpicoll.bench.measure.affinity import Affinity

#: kinds of common starts
SYNCS = ("barrier", "window")
#: seconds by which an agreed start is ahead: first and at most
AHEAD = 20e-6, 5e-3
#: seconds after an agreed start from which a rank is late
LATE = 2e-6
#: part of invalid samples beyond which starts are agreed on farther ahead
FEW = 0.1
#: messages there and back from which the difference of two clocks is taken: the fastest counts
PINGS = 50
#: tag of these messages; nothing else is in flight on the benchmark's communicator
PING_TAG = 9
#: seconds between two looks of a rank that only waits for others, so that they have its core: first and at most
LOOKS = 1e-4, 5e-3


class Clock:
    """Takes times on all ranks of a communicator.

    Args:
        world: a communicator of mpi4py's own, for barriers and for the maximum over ranks.
        yielding: waiting ranks give their core away, since there are more ranks than cores.
        synchronize: waits for the work on the arrays' device.
        sync: the kind of common start.
    """

    def __init__(
        self, world: MPI.Intracomm, yielding: bool, synchronize: Callable[[], object], sync: str = "barrier"
    ) -> None:
        self.world, self.yielding, self.synchronize = world, yielding, synchronize
        self.affinity = Affinity.of(world)
        self.ahead = AHEAD[0]
        self.offset = 0.0 if sync == "barrier" else offset(world, MPI.Get_processor_name())
        self.start = self._after_a_barrier if sync == "barrier" else self._at_a_time

    def barrier(self) -> None:
        """Wait for all ranks."""
        self._wait(self.world.Ibarrier())

    def _wait(self, request: MPI.Request) -> None:
        while not request.Test():
            if self.yielding:
                os.sched_yield()

    def _after_a_barrier(self) -> float:
        self.barrier()
        return time.perf_counter()

    def _at_a_time(self) -> float:
        """Wait for the agreed time, and return it; -inf on a rank that is late."""
        now, agreed = time.perf_counter, np.array([time.perf_counter() - self.offset + self.ahead])
        self._wait(self.world.Iallreduce(MPI.IN_PLACE, agreed, op=MPI.MAX))
        begin = float(agreed[0]) + self.offset
        while (started := now()) < begin:
            if self.yielding:
                os.sched_yield()
        return begin if started - begin <= LATE else -np.inf

    def take(self, call: Callable[[], object], calls: int) -> NDArray[np.float64]:
        """Return the seconds of each of a number of calls, the slowest rank's; inf for an invalid one."""
        seconds = np.empty(calls)
        synchronize, now, start = self.synchronize, time.perf_counter, self.start
        for number in range(calls):
            synchronize()
            begin = start()
            call()
            synchronize()
            seconds[number] = now() - begin
        self.world.Allreduce(MPI.IN_PLACE, seconds, op=MPI.MAX)
        if np.isinf(seconds).mean() > FEW:  # the same on all ranks
            self.ahead = min(2 * self.ahead, AHEAD[1])
        return seconds


def offset(world: MPI.Intracomm, host: str, now: Callable[[], float] = time.perf_counter) -> float:
    """Return the seconds that this rank's clock is ahead of rank 0's; collective.  A host's ranks share one clock.

    Args:
        world: all ranks.
        host: name of this rank's host.
        now: this rank's clock.
    """
    hosts, found = world.allgather(host), 0.0
    for rank in (rank for rank in range(1, world.size) if hosts[rank] != hosts[0]):
        if world.rank == 0:
            _answer(world, rank, now)
        elif world.rank == rank:
            found = _asked(world, now)
    rest(world)
    return found


def _asked(world: MPI.Intracomm, now: Callable[[], float]) -> float:
    """Return the seconds that this clock is ahead of rank 0's, by the fastest of some questions."""
    found, other = [], np.empty(1)
    for _ in range(PINGS):
        asked = now()
        world.Sendrecv(np.zeros(1), 0, PING_TAG, other, 0, PING_TAG)
        heard = now()
        found.append((heard - asked, (asked + heard) / 2 - float(other[0])))
    return min(found)[1]


def _answer(world: MPI.Intracomm, rank: int, now: Callable[[], float]) -> None:
    """Tell a rank what this clock says, whenever it asks."""
    for _ in range(PINGS):
        world.Recv(np.empty(1), rank, PING_TAG)
        world.Send(np.array([now()]), rank, PING_TAG)


def rest(world: MPI.Intracomm) -> None:
    """Wait for all ranks, and leave the core to those that still work; collective."""
    request, (pause, most) = world.Ibarrier(), LOOKS
    while not request.Test():
        time.sleep(pause)
        pause = min(1.5 * pause, most)


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
