"""Pings between hosts: what a round takes, a byte of a rank alone, and a byte of a host all of whose ranks send.

    rank 0 of the first host > rank 0 of the second one, and back       8 B  40 ms    a round takes 20 ms
                                                                      1 MiB  880 ms   a byte of a rank 0.4 us
    each of 4 ranks > one of the next host, all at once               1 MiB  1.7 s    a byte of a host 0.4 us

The example is a network of 20 ms and 20 Mbit/s, which one rank fills.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np
from mpi4py import MPI

from mpicoll.analysis.host_traffic import HostLink
from mpicoll.bench.measure.clock import Clock, rest
from mpicoll.schedule.topology import Topology

#: bytes of the short message, and of long ones, of which the first counts that takes so many times as long
SHORT, LONG, LONGER = 8, (1 << 16, 1 << 18, 1 << 20, 1 << 22), 10.0
#: seconds of a measurement after its first message, which makes a connection; numbers of messages, at least and at most
SECONDS, NUMBERS = 0.2, (3, 50)
#: tag of these messages; nothing else is in flight on the tuner's communicator
TAG = 11


def measured_link(world: MPI.Intracomm, topology: Topology, clock: Clock) -> HostLink:
    """Return the link between hosts; collective.

    Args:
        world: the ranks; a communicator of mpi4py's own.
        topology: where they are, on several hosts.
        clock: takes the time of what all ranks do.
    """
    pair, most = (topology.groups[0][0], topology.groups[1][0]), max(map(len, topology.groups))
    short, nbytes = _least(partial(_one_way, world, pair, SHORT)), SHORT
    alone = short
    for nbytes in LONG:
        alone = _least(partial(_one_way, world, pair, nbytes))
        if alone > LONGER * short:
            break
    together = _least(partial(clock.take, partial(_shift, world, topology, nbytes)))
    beta, rank_beta = max(together - short, 0.0) / (most * nbytes), max(alone - short, 0.0) / nbytes
    return HostLink(short, beta, rank_beta, "measured")


def _least(take: Callable[[int], np.ndarray]) -> float:
    """Return the least of as many times as are worth it, equal on all ranks; `take` returns so many of them.

    What else is on the network only adds: the median of three was up to 1.7 times what the link takes.
    """
    least, most = NUMBERS
    first = float(take(1)[0])
    return float(np.min(take(min(max(int(SECONDS / first), least), most))))


def _one_way(world: MPI.Intracomm, pair: tuple[int, int], nbytes: int, number: int) -> np.ndarray:
    """Return the seconds of each of so many messages from one rank to another: half of there and back; collective."""
    here, there = pair
    memory, seconds = np.zeros(nbytes, "u1"), np.zeros(number)
    for k in range(number if world.rank in pair else 0):
        begin = time.perf_counter()
        if world.rank == here:
            world.Send(memory, there, TAG)
            world.Recv(memory, there, TAG)
        else:
            world.Recv(memory, here, TAG)
            world.Send(memory, here, TAG)
        seconds[k] = (time.perf_counter() - begin) / 2
    rest(world)
    world.Bcast(seconds, here)
    return seconds


def _shift(world: MPI.Intracomm, topology: Topology, nbytes: int) -> None:
    """Send a message from each rank to one of the next host; ranks there are dealt in turns."""
    targets = _next(topology)
    sources = [rank for rank, target in enumerate(targets) if target == world.rank]
    sent, received = np.zeros(nbytes, "u1"), np.empty((len(sources), nbytes), "u1")
    requests = [world.Irecv(memory, source, TAG) for memory, source in zip(received, sources, strict=True)]
    MPI.Request.Waitall([*requests, world.Isend(sent, targets[world.rank], TAG)])


def _next(topology: Topology) -> list[int]:
    """Return for each rank one of the next host: the one with the same place there, as far as there are so many."""
    groups, found = topology.groups, [0] * len(topology.host_of)
    for host, group in enumerate(groups):
        after = groups[(host + 1) % len(groups)]
        for place, rank in enumerate(group):
            found[rank] = after[place % len(after)]
    return found
