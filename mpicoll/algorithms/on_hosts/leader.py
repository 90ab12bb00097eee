"""Algorithms by leaders: one rank of each host sends to other hosts, for all of its host."""

from __future__ import annotations

from mpicoll.algorithms.on_hosts.stage import Stage, on_hosts
from mpicoll.schedule.embed import Region
from mpicoll.schedule.ir import Ref, Schedule, inp, out
from mpicoll.schedule.reverse import reverse
from mpicoll.schedule.topology import Topology


@on_hosts(
    "barrier",
    name="leader",
    cost="2*q*(α + λ)",
    blocks="1",
    scratch="2*q+2",
)
@on_hosts(
    "allreduce",
    name="leader",
    cost="2*q*(α + n*β) + q*(λ + (lg+1)/2*n*γ)",
    blocks="1",
    scratch="2*q+2",
)
def leader_allreduce(rank: int, size: int, topology: Topology) -> Schedule:
    """Reduce to the first rank of each host, allreduce between these, broadcast inside each host.

    One message leaves a host at a time: short vectors on many ranks of each host.
    """
    stage, whole = Stage(rank, size, topology), [[0]]
    (leaders, first), local = stage.leaders(0), stage.local
    held = _reduced_to(first, stage)
    with stage.outside():
        if rank == first:
            stage.steps += stage.phase("allreduce", "recursive_doubling", Region(leaders, whole, [held], [out([0])]))
    stage.steps += stage.phase("bcast", "binomial", Region(local, whole, [out([0])], [out([0])]))
    return stage.done(1)


@on_hosts(
    "bcast",
    name="leader",
    cost="q*(α + n*β)",
    blocks="1",
    scratch="0",
)
def leader_bcast(rank: int, size: int, root: int, topology: Topology) -> Schedule:
    """Broadcast between the root and the first rank of each other host, then inside each host.

    One message leaves a host at a time: short vectors on many ranks of each host.
    """
    stage, cells = Stage(rank, size, topology), [out([0])]
    leaders, first = stage.leaders(root)
    with stage.outside():
        if rank == first:
            stage.steps += stage.phase("bcast", "binomial", Region(leaders, [[0]], cells, cells), leaders.index(root))
    stage.steps += stage.phase("bcast", "binomial", Region(stage.local, [[0]], cells, cells), stage.local.index(first))
    return stage.done(1)


@on_hosts(
    "reduce",
    name="leader",
    cost="q*(α + n*β + λ + (lg+1)/2*n*γ)",
    blocks="1",
    scratch="2*q+2",
)
def leader_reduce(rank: int, size: int, root: int, topology: Topology) -> Schedule:
    """Reduce to the root and to the first rank of each other host, then between these.

    One message leaves a host: short vectors on many ranks of each host.
    """
    stage = Stage(rank, size, topology)
    leaders, first = stage.leaders(root)
    held = _reduced_to(first, stage)
    with stage.outside():
        if rank == first:
            region = Region(leaders, [[0]], [held], [out([0])])
            stage.steps += stage.phase("reduce", "binomial", region, leaders.index(root))
    return stage.done(1)


@on_hosts(
    "gather",
    name="leader",
    cost="α + (p-2)*o + (p-1)/p*n*β",
    scratch="2*p",
)
def leader_gather(rank: int, size: int, root: int, topology: Topology) -> Schedule:
    """Gather at the root and at the first rank of each other host, then those send what they have to the root.

    One message leaves a host, instead of one for each rank: short blocks on many ranks of each host.
    """
    stage = Stage(rank, size, topology)
    (leaders, first), local, none = stage.leaders(root), stage.local, Ref("scratch", ())
    blocks = [[one] for one in local]
    held = out(local) if first == root else stage.tmp.take(local) if rank == first else none
    cells = list(held) if held.cells else [none] * len(local)
    region = Region(local, blocks, list(map(inp, blocks)), cells)
    stage.steps += stage.phase("gather", "linear", region, local.index(first))
    with stage.outside():
        if rank == first:
            sources = [held if one == rank else none for one in leaders]
            region = Region(leaders, stage.groups, sources, list(map(out, stage.groups)))
            stage.steps += stage.phase("gather", "linear", region, leaders.index(root))
    return stage.done(size)


@on_hosts(
    "scatter",
    name="leader",
    cost="α + (p-2)*o + (p-1)/p*n*β",
    scratch="2*p",
)
def leader_scatter(rank: int, size: int, root: int, topology: Topology) -> Schedule:
    """The root sends each other host its blocks in one message; scatter inside each host.

    One message enters a host, instead of one for each rank: short blocks on many ranks of each host.
    """
    return reverse(leader_gather(rank, size, root, topology))


def _reduced_to(first: int, stage: Stage) -> Ref:
    """Reduce inside the host to a rank, and return the cells that then hold its sum."""
    local = stage.local
    held = inp([0]) if len(local) == 1 else stage.tmp.take([0])
    stage.steps += stage.phase("reduce", "binomial", Region(local, [[0]], [inp([0])], [held]), local.index(first))
    return held
