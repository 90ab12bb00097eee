"""Least bytes between hosts: what must leave or enter some host, whatever the algorithm.

On 2 hosts of 4 ranks an allreduce of 1 MiB sends 1 MiB out of a host at least, an allgather half of that.  Bytes inside
a host count as nothing, so that a host is like one rank with all that its ranks have.  A message carries elements, or
elements that are combined from several ranks; nothing is taken back out of a sum.

A bound is of the busiest host, in the direction in which it moves more: just what `host_traffic` counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from mpicoll.schedule.collectives import collective as row_of
from mpicoll.schedule.topology import Topology

#: bytes of each block of the vector: one for each rank, or pair of ranks; in any number where it may be cut freely
Sizes = Sequence[float]
#: returns the least bytes for ranks on several hosts, a root, and the bytes of blocks
Least = Callable[[Topology, int, Sizes], float]


def _vector(topology: Topology, root: int, sizes: Sizes) -> float:
    """Return the bound of bcast and reduce: the vector.

    Each other host must receive the whole vector, or send the one that its ranks' operands make.  A chain of hosts
    needs no more.
    """
    return sum(sizes)


def _allreduce(topology: Topology, root: int, sizes: Sizes) -> float:
    """Return the bound of allreduce: 2(H-1)/H vectors on H hosts.

    Look at one element.  Until the first host has its result, each of the H-1 others must have sent a message with it.
    The H-1 hosts that do not have it then must each receive one more.  So all hosts together send 2(H-1) vectors, and
    one of them its share.  Hosts of different sizes do not matter.
    """
    hosts = topology.hosts
    return 2 * (hosts - 1) / hosts * sum(sizes)


def _at_root(topology: Topology, root: int, sizes: Sizes) -> float:
    """Return the bound of gather and scatter: the blocks of ranks on other hosts than the root's.

    All of them enter the root's host, or leave it, and none is made of others.
    """
    return sum(nbytes for nbytes, host in zip(sizes, topology.host_of, strict=True) if host != topology.host_of[root])


def _others(topology: Topology, root: int, sizes: Sizes) -> float:
    """Return the bound of allgather and reduce_scatter: all blocks but those of the host that has the least of them.

    That host must receive all others, or send what its ranks have for them.  Each other host has more blocks of its
    own, so it needs no more.
    """
    return sum(sizes) - min(sum(sizes[rank] for rank in group) for group in topology.groups)


def _alltoall(topology: Topology, root: int, sizes: Sizes) -> float:
    """Return the bound of alltoall: the blocks of a host's ranks for ranks of others, or from them.

    Each of them leaves its host and enters another one, and none is made of others.
    """
    host_of, ranks = topology.host_of, range(len(topology.host_of))
    leaving, entering = [0.0] * topology.hosts, [0.0] * topology.hosts
    for source in ranks:
        for target in ranks:
            if host_of[source] != host_of[target]:
                leaving[host_of[source]] += sizes[source * len(ranks) + target]
                entering[host_of[target]] += sizes[source * len(ranks) + target]
    return max(*leaving, *entering)


def _scan(topology: Topology, root: int, sizes: Sizes) -> float:
    """Return the bound of scan and exscan: a vector for each time that the order of ranks enters a host, or leaves it.

    A host's ranks that follow each other are a run.  Each run but that of rank 0 needs the sum of all ranks before it.
    The host's own operands do not make one of these sums of another one, so each is a vector that enters.  In the same
    way the sum of each run but that of the last rank leaves.  A chain of all ranks needs no more.
    """
    entering, leaving = [0] * topology.hosts, [0] * topology.hosts
    for here, after in pairwise(topology.host_of):
        if here != after:
            leaving[here] += 1
            entering[after] += 1
    return max(*leaving, *entering) * sum(sizes)


#: by collective
LEAST: dict[str, Least] = {
    "bcast": _vector,
    "reduce": _vector,
    "allreduce": _allreduce,
    "gather": _at_root,
    "scatter": _at_root,
    "allgather": _others,
    "reduce_scatter": _others,
    "alltoall": _alltoall,
    "scan": _scan,
    "exscan": _scan,
}
#: why no bound is known of a collective
UNKNOWN = {"barrier": "a barrier has no bytes"}


def least_host_bytes(collective: str, topology: Topology, root: int, sizes: Sizes) -> float:
    """Return the bytes that leave or enter the busiest host at least, 0 on one host.

    Args:
        collective: its name, one of LEAST.
        topology: where the ranks are.
        root: the root, 0 where there is none.
        sizes: bytes of each block of the vector.
    """
    return LEAST[row_of(collective).name](topology, root, sizes) if topology.host_of else 0.0
