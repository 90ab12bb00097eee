"""Messages between pairs of ranks: a chain for each pair, one message after the other, and several pairs at once.

`chains.run([(0, 1), (0, 2)], 10)` sends 10 messages from rank 0 to rank 1, and at the same time 10 to rank 2.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

import numpy as np
from mpi4py import MPI

from mpicoll.bench.errors import RequestError
from mpicoll.bench.measure.backends import Backend
from mpicoll.bench.request.numbers import PERIOD, repeated
from mpicoll.runtime.mpi import cuda_aware

#: (source, target)
Pair = tuple[int, int]
#: (start, end) of a message, in seconds of time.monotonic()
Span = tuple[float, float]

#: tag of the messages; nothing else is in flight on the benchmark's communicator
TAG = 11


def check(world: MPI.Intracomm, backend: Backend) -> None:
    """Raise RequestError on all ranks where arrays of this kind cannot be sent; collective."""
    aware = cuda_aware.agree(world.allgather(cuda_aware.decide())) if backend.kind != "numpy" else None
    if aware and not aware.aware:
        raise RequestError(f"device arrays cannot be given to MPI ({aware.reason})")


class Chains:
    """Messages of one size between any two ranks.

    Args:
        world: all ranks; a communicator of mpi4py's own.
        backend: where the arrays live.
        nbytes: bytes of a message.
        sent: arrays of this rank that its messages send in turn.
        sources: ranks from which this rank receives, each into an array of its own.
    """

    def __init__(
        self, world: MPI.Intracomm, backend: Backend, nbytes: int, sent: int = 1, sources: Iterable[int] | None = None
    ) -> None:
        self.world, self.rank, self.backend, self.nbytes = world, world.rank, backend, nbytes
        sources = range(world.size) if sources is None else sources
        self.sent = [self._numbers(self.rank) for _ in range(sent)]
        self.received = {source: backend.xp.zeros(nbytes, "u1") for source in sources if source != self.rank}
        backend.synchronize()

    def _numbers(self, rank: int) -> object:
        """Return an array of the bytes that a rank sends."""
        period = (np.arange(PERIOD) * 7 + rank * 59 + 1) % 251
        return repeated(self.backend.xp, period.astype("u1"), 0, self.nbytes)

    def wrong(self) -> int:
        """Return the number of bytes, of those that this rank has received, that are not as they were sent."""
        return sum(int((array != self._numbers(source)).sum()) for source, array in self.received.items())

    def run(self, pairs: Sequence[Pair], repeat: int = 1) -> dict[Pair, list[Span]]:
        """Send a chain for each pair, all at once; return when each message began and ended on this rank."""
        mine = [pair for pair in pairs if self.rank in pair]
        spans: dict[Pair, list[Span]] = {pair: [] for pair in mine}
        begun = [time.monotonic()] * len(mine)
        requests = [self._start(pair, 0) for pair in mine]
        while (at := MPI.Request.Waitany(requests)) != MPI.UNDEFINED:
            done = spans[mine[at]]
            done.append((begun[at], time.monotonic()))
            if len(done) < repeat:
                begun[at] = time.monotonic()
                requests[at] = self._start(mine[at], len(done))
        return spans

    def _start(self, pair: Pair, number: int) -> MPI.Request:
        source, target = pair
        if source == self.rank:
            return self.world.Isend(self._memory(self.sent[number % len(self.sent)]), target, TAG)
        return self.world.Irecv(self._memory(self.received[source]), source, TAG)

    def _memory(self, array: object) -> list[object]:
        return [MPI.buffer.fromaddress(self.backend.pointer(array), self.nbytes), self.nbytes, MPI.BYTE]

    def ping(self, pair: Pair, rounds: int) -> float:
        """Return the seconds of one message of a pair: half of those there and back, the median of so many.

        A rank that loses its core for a while spoils one of them, and not the median.
        """
        source, target = pair
        first, other = self.rank == source, target if self.rank == source else source
        away, here = self._memory(self.sent[0]), self._memory(self.received[other])
        seconds = np.empty(rounds)
        for number in range(rounds):
            start = time.monotonic()
            if first:
                self.world.Send(away, other, TAG)
            self.world.Recv(here, other, TAG)
            if not first:
                self.world.Send(away, other, TAG)
            seconds[number] = time.monotonic() - start
        return float(np.median(seconds)) / 2
