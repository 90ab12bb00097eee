"""Traffic between hosts: what an algorithm sends over the network, counted in the schedules of all ranks.

An allreduce by `reduce_scatter_allgather` on 2 hosts of 4 ranks, in a block each, sends the bytes of one vector out of
a host, in 2 rounds.  By `two_shot` it sends those of 4 vectors.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from mpicoll.algorithms.card import Algorithm
from mpicoll.schedule.ir import Recv, Schedule, Send
from mpicoll.schedule.topology import Topology


@dataclass(frozen=True)
class HostTraffic:
    """The traffic of an algorithm between hosts.

    Attributes:
        rounds: most messages between hosts of which each waits for the one before.
        vectors: bytes that leave or enter the busiest host, as a part of the message size.
    """

    rounds: int = 0
    vectors: float = 0.0


@dataclass(frozen=True)
class HostLink:
    """A host's link to the others.

    Attributes:
        alpha: seconds of a round, without its bytes.
        beta: seconds of a byte that leaves or enters a host.
        source: where the numbers come from.
    """

    alpha: float
    beta: float
    source: str = ""

    def seconds(self, traffic: HostTraffic, n: int) -> float:
        """Return the time of an algorithm's traffic in seconds; n is the message size in bytes."""
        return traffic.rounds * self.alpha + traffic.vectors * n * self.beta


@lru_cache(maxsize=4096)
def host_traffic(card: Algorithm, topology: Topology, root: int = 0) -> HostTraffic:
    """Return an algorithm's traffic between hosts.

    Args:
        card: the algorithm, which serves so many ranks.
        topology: where they are.
        root: the root, 0 where there is none.
    """
    host_of = topology.host_of
    size = len(host_of)
    leaving, entering = Counter[int](), Counter[int]()
    schedules = card.schedules(size, root, topology)
    for here, schedule in zip(host_of, schedules, strict=True):
        for message in (m for one in schedule.steps for m in one.messages if isinstance(m, Send)):
            if (there := host_of[message.peer]) != here:
                leaving[here] += len(message.source)
                entering[there] += len(message.source)
    most = max((*leaving.values(), *entering.values()), default=0)
    return HostTraffic(_rounds(schedules, host_of), most / card.vector_blocks(size) if size else 0.0)


def _rounds(schedules: Sequence[Schedule], host_of: Sequence[int]) -> int:
    """Return the most messages between hosts that follow from each other: each rank does its steps in order."""
    known = [0] * len(schedules)  # of the messages that have led to where a rank is
    coming: dict[tuple[int, int], deque[int]] = defaultdict(deque)
    ranks = [_steps(rank, schedule, known, coming, host_of) for rank, schedule in enumerate(schedules)]
    for _ in range(1 + sum(len(one.steps) for one in schedules)):  # in each turn a rank comes to its next step
        ranks = [one for one in ranks if next(one, False)]
        if not ranks:
            break
    return max(known, default=0)


def _steps(
    rank: int,
    schedule: Schedule,
    known: list[int],
    coming: dict[tuple[int, int], deque[int]],
    host_of: Sequence[int],
) -> Iterator[bool]:
    """Do a rank's steps; yield where a message has not come.

    Args:
        rank: whose steps they are.
        schedule: of the rank.
        known: of each rank, see `_rounds`; changed.
        coming: of each message between two ranks, in order, what its sender knew, one more between hosts; changed.
        host_of: of each rank.
    """
    for one in schedule.steps:
        for message in one.messages:
            if isinstance(message, Send):
                coming[rank, message.peer].append(known[rank] + (host_of[rank] != host_of[message.peer]))
        for message in one.messages:
            if isinstance(message, Recv):
                while not coming[message.peer, rank]:
                    yield True
                known[rank] = max(known[rank], coming[message.peer, rank].popleft())
