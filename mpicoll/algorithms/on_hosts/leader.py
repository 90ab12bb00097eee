"""Algorithms by leaders: one rank of each host sends to other hosts, for all of its host."""

from __future__ import annotations

from mpicoll.algorithms.on_hosts.stage import HIERARCHY, UNIFORM, Stage
from mpicoll.algorithms.registry import packaged
from mpicoll.schedule.embed import Region
from mpicoll.schedule.ir import Ref, Schedule, inp, out
from mpicoll.schedule.reverse import reverse
from mpicoll.schedule.topology import Topology


@packaged(
    "barrier",
    name="leader",
    cost="2*q*(α + λ)",
    reference=HIERARCHY,
    blocks="1",
    scratch="2*q+2",
    uniform=UNIFORM,
    by_hosts=True,
)
@packaged(
    "allreduce",
    name="leader",
    cost="2*q*(α + n*β) + q*(λ + (lg+1)/2*n*γ)",
    reference=HIERARCHY,
    blocks="1",
    scratch="2*q+2",
    uniform=UNIFORM,
    by_hosts=True,
)
def leader_allreduce(rank: int, size: int, topology: Topology) -> Schedule:
    """Reduce to the first rank of each host, allreduce between these, broadcast inside each host.

    One message leaves a host at a time: short vectors on many ranks of each host.
    """
    stage, whole = Stage(rank, size, topology), [[0]]
    leaders, local = [group[0] for group in stage.groups], stage.local
    held = inp([0]) if len(local) == 1 else stage.tmp.take([0])
    stage.steps += stage.phase("reduce", "binomial", Region(local, whole, [inp([0])], [held]))
    if rank in leaders:
        stage.steps += stage.phase("allreduce", "recursive_doubling", Region(leaders, whole, [held], [out([0])]))
    stage.steps += stage.phase("bcast", "binomial", Region(local, whole, [out([0])], [out([0])]))
    return stage.done(1)


@packaged(
    "bcast",
    name="leader",
    cost="q*(α + n*β)",
    reference=HIERARCHY,
    blocks="1",
    scratch="0",
    uniform=UNIFORM,
    by_hosts=True,
)
def leader_bcast(rank: int, size: int, root: int, topology: Topology) -> Schedule:
    """Broadcast between the root and the first rank of each other host, then inside each host.

    One message leaves a host at a time: short vectors on many ranks of each host.
    """
    stage, cells = Stage(rank, size, topology), [out([0])]
    leaders = _leaders(stage, root)
    first = next(one for one in leaders if one in stage.local)
    if rank in leaders:
        stage.steps += stage.phase("bcast", "binomial", Region(leaders, [[0]], cells, cells), leaders.index(root))
    stage.steps += stage.phase("bcast", "binomial", Region(stage.local, [[0]], cells, cells), stage.local.index(first))
    return stage.done(1)


@packaged(
    "reduce",
    name="leader",
    cost="q*(α + n*β + λ + (lg+1)/2*n*γ)",
    reference=HIERARCHY,
    blocks="1",
    scratch="2*q+2",
    uniform=UNIFORM,
    by_hosts=True,
)
def leader_reduce(rank: int, size: int, root: int, topology: Topology) -> Schedule:
    """Reduce to the root and to the first rank of each other host, then between these.

    One message leaves a host: short vectors on many ranks of each host.
    """
    stage, whole = Stage(rank, size, topology), [[0]]
    leaders, local = _leaders(stage, root), stage.local
    first = next(one for one in leaders if one in local)
    held = inp([0]) if len(local) == 1 else stage.tmp.take([0])
    stage.steps += stage.phase("reduce", "binomial", Region(local, whole, [inp([0])], [held]), local.index(first))
    if rank == first:
        region = Region(leaders, whole, [held], [out([0])])
        stage.steps += stage.phase("reduce", "binomial", region, leaders.index(root))
    return stage.done(1)


@packaged(
    "gather",
    name="leader",
    cost="α + (p-2)*o + (p-1)/p*n*β",
    reference=HIERARCHY,
    scratch="2*p",
    uniform=UNIFORM,
    by_hosts=True,
)
def leader_gather(rank: int, size: int, root: int, topology: Topology) -> Schedule:
    """Gather at the root and at the first rank of each other host, then those send what they have to the root.

    One message leaves a host, instead of one for each rank: short blocks on many ranks of each host.
    """
    stage = Stage(rank, size, topology)
    leaders, local = _leaders(stage, root), stage.local
    first, none = next(one for one in leaders if one in local), Ref("scratch", ())
    blocks = [[one] for one in local]
    held = out(local) if first == root else stage.tmp.take(local) if rank == first else none
    cells = list(held) if held.cells else [none] * len(local)
    region = Region(local, blocks, list(map(inp, blocks)), cells)
    stage.steps += stage.phase("gather", "linear", region, local.index(first))
    if rank == first:
        sources = [held if one == rank else none for one in leaders]
        region = Region(leaders, stage.groups, sources, list(map(out, stage.groups)))
        stage.steps += stage.phase("gather", "linear", region, leaders.index(root))
    return stage.done(size)


@packaged(
    "scatter",
    name="leader",
    cost="α + (p-2)*o + (p-1)/p*n*β",
    reference=HIERARCHY,
    scratch="2*p",
    uniform=UNIFORM,
    by_hosts=True,
)
def leader_scatter(rank: int, size: int, root: int, topology: Topology) -> Schedule:
    """The root sends each other host its blocks in one message; scatter inside each host.

    One message enters a host, instead of one for each rank: short blocks on many ranks of each host.
    """
    return reverse(leader_gather(rank, size, root, topology))


def _leaders(stage: Stage, root: int) -> list[int]:
    """Return the first rank of each host, the root for its own."""
    return [root if root in group else group[0] for group in stage.groups]
