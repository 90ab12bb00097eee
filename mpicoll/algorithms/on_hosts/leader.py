"""Algorithms by leaders: one rank of each host sends to other hosts, for all of its host."""

from __future__ import annotations

from mpicoll.algorithms.on_hosts.stage import Stage, on_hosts
from mpicoll.algorithms.phases import combine
from mpicoll.schedule.embed import Region
from mpicoll.schedule.ir import Ref, Schedule, inp, out, step
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


@on_hosts(
    "scan",
    name="leader",
    cost="2*q*(α + n*β) + q*(λ + n*γ) + λ + n*γ",
    blocks="1",
    scratch="2*q+2",
    ordered=True,
    by_stretches=True,
)
def leader_scan(rank: int, size: int, topology: Topology) -> Schedule:
    """Scan inside each host, exscan of the totals between the last ranks of hosts, broadcast that inside, combine.

    One message leaves a host at a time; a host whose ranks do not follow each other counts as several: hosts in blocks.
    """
    stage, whole = Stage(rank, size, topology), [[0]]
    alone = len(stage.local) == 1
    held = inp([0]) if alone else out([0])
    if not alone:
        stage.steps += stage.phase("scan", "recursive_doubling", Region(stage.local, whole, [inp([0])], [held]))
    before = _before(stage, held)
    stage.steps.append(step(combine(out([0]), [*before, held])))
    return stage.done(1)


@on_hosts(
    "exscan",
    name="leader",
    cost="α + n*β + 2*q*(α + n*β) + q*(λ + n*γ) + 2*(λ + n*γ)",
    blocks="1",
    scratch="2*q+5",
    ordered=True,
    by_stretches=True,
)
def leader_exscan(rank: int, size: int, topology: Topology) -> Schedule:
    """Exscan inside each host and of the totals between the last ranks of hosts, broadcast that inside, combine.

    One message leaves a host at a time; a host whose ranks do not follow each other counts as several: hosts in blocks.
    """
    stage, whole = Stage(rank, size, topology), [[0]]
    local, total = stage.local, inp([0])
    own = [] if rank == local[0] else [stage.tmp.take([0]) if rank == local[-1] else out([0])]
    if len(local) > 1:  # the last rank needs its input behind that: it may be where the output is
        held = own or [Ref("scratch", ())]
        stage.steps += stage.phase("exscan", "recursive_doubling", Region(local, whole, [total], held))
    if own and rank == local[-1]:
        total = stage.tmp.take([0])
        stage.steps.append(step(combine(total, [*own, inp([0])])))
    parts = [*_before(stage, total), *own]
    stage.steps.append(step(combine(out([0]), parts) if parts else ()))
    return stage.done(1)


def _before(stage: Stage, total: Ref) -> list[Ref]:
    """Return the cells that then hold the sum of all hosts before this one, none on the first.

    Args:
        stage: whose hosts are in the order of ranks.
        total: cells that hold the sum of this host, at its last rank.
    """
    local, whole = stage.local, [[0]]
    lasts, number = [group[-1] for group in stage.groups], stage.groups.index(local)
    found = [stage.tmp.take([0])] if number else []
    target = found or [Ref("scratch", ())]
    with stage.outside():
        if stage.rank == local[-1]:
            stage.steps += stage.phase("exscan", "recursive_doubling", Region(lasts, whole, [total], target))
    if found:
        stage.steps += stage.phase("bcast", "binomial", Region(local, whole, found, found), len(local) - 1)
    return found


def _reduced_to(first: int, stage: Stage) -> Ref:
    """Reduce inside the host to a rank, and return the cells that then hold its sum."""
    local = stage.local
    held = inp([0]) if len(local) == 1 else stage.tmp.take([0])
    stage.steps += stage.phase("reduce", "binomial", Region(local, [[0]], [inp([0])], [held]), local.index(first))
    return held
