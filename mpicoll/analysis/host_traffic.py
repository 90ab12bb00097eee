"""Traffic between hosts: what an algorithm sends over the network, counted in the schedules of all ranks.

An allreduce by `reduce_scatter_allgather` on 2 hosts of 4 ranks, in a block each, sends the bytes of one vector out of
a host, in 2 rounds.  By `two_shot` it sends those of 4 vectors.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

from mpicoll.algorithms.card import Algorithm
from mpicoll.schedule.ir import Send
from mpicoll.schedule.topology import Topology


@dataclass(frozen=True)
class HostTraffic:
    """The traffic of an algorithm between hosts.

    Attributes:
        rounds: steps in which a rank sends to another host, those of the rank with most of them.
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
    leaving, entering, rounds = Counter[int](), Counter[int](), 0
    for rank, here in enumerate(host_of):
        own = 0
        for one in card.schedule(rank, size, root, topology).steps:
            far = [m for m in one.messages if isinstance(m, Send) and host_of[m.peer] != here]
            own += bool(far)
            for message in far:
                leaving[here] += len(message.source)
                entering[host_of[message.peer]] += len(message.source)
        rounds = max(rounds, own)
    most = max((*leaving.values(), *entering.values()), default=0)
    return HostTraffic(rounds, most / card.vector_blocks(size) if size else 0.0)
