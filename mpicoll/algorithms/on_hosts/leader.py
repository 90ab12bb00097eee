"""Algorithms by leaders: one rank of each host sends to other hosts, for all of its host."""

from __future__ import annotations

from mpicoll.algorithms.on_hosts.hierarchy import between, inside, on_hosts
from mpicoll.algorithms.on_hosts.stage import NOTHING, Stage
from mpicoll.algorithms.phases import combine
from mpicoll.schedule.embed import Region
from mpicoll.schedule.ir import Ref, Schedule, inp, joined, out, step

_TOTALS = between("exscan", "recursive_doubling"), inside("bcast", "binomial")
_BY_TREES = inside("reduce", "binomial"), between("allreduce", "recursive_doubling"), inside("bcast", "binomial")


@on_hosts(
    "barrier",
    name="leader",
    cost="2*q*(α + λ)",
    blocks="1",
    scratch="2*q+2",
    inner=_BY_TREES,
)
@on_hosts(
    "allreduce",
    name="leader",
    cost="2*q*(α + n*β) + q*(λ + (lg+1)/2*n*γ)",
    blocks="1",
    scratch="2*q+2",
    inner=_BY_TREES,
)
def leader_allreduce(stage: Stage) -> Schedule:
    """Reduce to the first rank of each host, allreduce between these, broadcast inside each host.

    One message leaves a host at a time: short vectors on many ranks of each host.
    """
    leaders, first = stage.leaders(0)
    held, total = _reduced_to(first, stage), out(stage.cells)
    with stage.outside():
        if stage.rank == first:
            stage.whole("allreduce", leaders, held, total)
    stage.whole("bcast", stage.local, total, total, first)
    return stage.done(len(stage.cells))


@on_hosts(
    "bcast",
    name="leader",
    cost="q*(α + n*β)",
    blocks="1",
    scratch="0",
    inner=(between("bcast", "binomial"), inside("bcast", "binomial")),
)
def leader_bcast(stage: Stage, root: int) -> Schedule:
    """Broadcast between the root and the first rank of each other host, then inside each host.

    One message leaves a host at a time: short vectors on many ranks of each host.
    """
    cells = out(stage.cells)
    leaders, first = stage.leaders(root)
    with stage.outside():
        if stage.rank == first:
            stage.whole("bcast", leaders, cells, cells, root)
    stage.whole("bcast", stage.local, cells, cells, first)
    return stage.done(len(stage.cells))


@on_hosts(
    "reduce",
    name="leader",
    cost="q*(α + n*β + λ + (lg+1)/2*n*γ)",
    blocks="1",
    scratch="2*q+2",
    inner=(inside("reduce", "binomial"), between("reduce", "binomial")),
)
def leader_reduce(stage: Stage, root: int) -> Schedule:
    """Reduce to the root and to the first rank of each other host, then between these.

    One message leaves a host: short vectors on many ranks of each host.
    """
    leaders, first = stage.leaders(root)
    held = _reduced_to(first, stage)
    with stage.outside():
        if stage.rank == first:
            stage.whole("reduce", leaders, held, out(stage.cells), root)
    return stage.done(len(stage.cells))


@on_hosts(
    "gather",
    name="leader",
    cost="α + (p-2)*o + (p-1)/p*n*β",
    scratch="2*p",
    inner=(inside("gather", "linear"), between("gather", "linear")),
)
def leader_gather(stage: Stage, root: int) -> Schedule:
    """Gather at the root and at the first rank of each other host, then those send what they have to the root.

    One message leaves a host, instead of one for each rank: short blocks on many ranks of each host.
    """
    (leaders, first), local = stage.leaders(root), stage.local
    held, blocks = _held(stage, first, out(local) if first == root else None), [[one] for one in local]
    stage.steps += stage.phase("gather", Region(local, blocks, list(map(inp, blocks)), held), local.index(first))
    with stage.outside():
        if stage.rank == first:
            sources = [joined(held) if one == first else NOTHING for one in leaders]
            region = Region(leaders, stage.groups, sources, list(map(out, stage.groups)))
            stage.steps += stage.phase("gather", region, leaders.index(root))
    return stage.done(stage.size)


@on_hosts(
    "scatter",
    name="leader",
    cost="α + (p-2)*o + (p-1)/p*n*β",
    scratch="2*p",
    inner=(between("scatter", "linear"), inside("scatter", "linear")),
)
def leader_scatter(stage: Stage, root: int) -> Schedule:
    """The root sends each other host its blocks in one message; scatter inside each host.

    One message enters a host, instead of one for each rank: short blocks on many ranks of each host.
    """
    (leaders, first), local = stage.leaders(root), stage.local
    held, blocks = _held(stage, first, inp(local) if first == root else None), [[one] for one in local]
    with stage.outside():
        if stage.rank == first:
            targets = [joined(held) if one == first != root else NOTHING for one in leaders]
            region = Region(leaders, stage.groups, list(map(inp, stage.groups)), targets)
            stage.steps += stage.phase("scatter", region, leaders.index(root))
    stage.steps += stage.phase("scatter", Region(local, blocks, held, list(map(out, blocks))), local.index(first))
    return stage.done(stage.size)


@on_hosts(
    "scan",
    name="leader",
    cost="2*q*(α + n*β) + q*(λ + n*γ) + λ + n*γ",
    blocks="1",
    scratch="2*q+2",
    ordered=True,
    by_stretches=True,
    inner=(inside("scan", "recursive_doubling"), *_TOTALS),
)
def leader_scan(stage: Stage) -> Schedule:
    """Scan inside each host, exscan of the totals between the last ranks of hosts, broadcast that inside, combine.

    One message leaves a host at a time; a host whose ranks do not follow each other counts as several: hosts in blocks.
    """
    own, result = inp(stage.cells), out(stage.cells)
    held = result if len(stage.local) > 1 else own
    if held == result:
        stage.whole("scan", stage.local, own, held)
    stage.steps.append(step(combine(result, [*_before(stage, held), held])))
    return stage.done(len(stage.cells))


@on_hosts(
    "exscan",
    name="leader",
    cost="α + n*β + 2*q*(α + n*β) + q*(λ + n*γ) + 2*(λ + n*γ)",
    blocks="1",
    scratch="2*q+5",
    ordered=True,
    by_stretches=True,
    inner=(inside("exscan", "recursive_doubling"), *_TOTALS),
)
def leader_exscan(stage: Stage) -> Schedule:
    """Exscan inside each host and of the totals between the last ranks of hosts, broadcast that inside, combine.

    One message leaves a host at a time; a host whose ranks do not follow each other counts as several: hosts in blocks.
    """
    local, own, result, total = stage.local, inp(stage.cells), out(stage.cells), inp(stage.cells)
    last, held = stage.rank == local[-1], list[Ref]()
    sums = last and len(stage.groups) > 1  # to other hosts; it needs its input then, which may be where the output is
    if stage.rank != local[0]:
        held = [stage.tmp.take(stage.cells) if sums else result]
    if len(local) > 1:
        stage.whole("exscan", local, own, held[0] if held else NOTHING)
    if held and sums:
        total = stage.tmp.take(stage.cells)
        stage.steps.append(step(combine(total, [*held, own])))
    parts = [*_before(stage, total), *held]
    stage.steps.append(step(combine(result, parts) if parts not in ([], [result]) else ()))
    return stage.done(len(stage.cells))


def _before(stage: Stage, total: Ref) -> list[Ref]:
    """Return the cells that then hold the sum of all hosts before this one, none on the first.

    Args:
        stage: whose hosts are in the order of ranks.
        total: cells that hold the sum of this host, at its last rank.
    """
    local, number = stage.local, stage.host_of[stage.rank]
    found = [stage.tmp.take(stage.cells)] if number else []
    with stage.outside():
        if stage.rank == local[-1]:
            stage.whole("exscan", [group[-1] for group in stage.groups], total, found[0] if found else NOTHING)
    if found:
        stage.whole("bcast", local, found[0], found[0], local[-1])
    return found


def _held(stage: Stage, first: int, cells: Ref | None) -> list[Ref]:
    """Return where each block of this rank's host is on the rank that has all of them, nothing on the others.

    Args:
        stage: this rank's.
        first: the rank that has them.
        cells: where they are; None for scratch.
    """
    if stage.rank != first:
        return [NOTHING] * len(stage.local)
    return list(stage.tmp.take(stage.local) if cells is None else cells)


def _reduced_to(first: int, stage: Stage) -> Ref:
    """Reduce inside the host to a rank, and return the cells that then hold its sum."""
    own = inp(stage.cells)
    held = own if len(stage.local) == 1 else stage.tmp.take(stage.cells)
    stage.whole("reduce", stage.local, own, held, first)
    return held
