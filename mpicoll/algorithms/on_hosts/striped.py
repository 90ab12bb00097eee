"""Striped algorithms: every rank of a host takes part between hosts, with a stripe of the vector."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from mpicoll.algorithms.on_hosts.stage import HIERARCHY, UNIFORM, Stage
from mpicoll.algorithms.registry import packaged
from mpicoll.schedule.embed import Region, beside
from mpicoll.schedule.ir import Copy, Ref, Schedule, inp, out, step
from mpicoll.schedule.topology import Topology


def _in_parts(cells: Sequence[int], number: int) -> list[Sequence[int]]:
    """Return cells in so many parts that follow each other, some empty where there are few."""
    edges = [len(cells) * k // number for k in range(number + 1)]
    return [cells[a:b] for a, b in pairwise(edges)]


@packaged(
    "allreduce",
    name="striped",
    cost="2*(α + (p-2)*o) + 2*(p-1)/p*n*β + 2*λ + n*γ",
    reference=HIERARCHY,
    blocks="p",
    scratch="3*p",
    uniform=UNIFORM,
    by_hosts=True,
)
def striped_allreduce(rank: int, size: int, topology: Topology) -> Schedule:
    """Reduce-scatter inside each host, allreduce of each stripe between hosts, allgather inside each host.

    2(H-1)/H vectors leave each of H hosts, which is the least: middle and long vectors.
    """
    stage = Stage(rank, size, topology)
    local, hosts = stage.local, len(stage.groups)
    lists = [stage.owned(one, local) for one in local]
    mine = lists[local.index(rank)]
    held = stage.reduced_inside(lists)
    rails = []
    for ranks, cells in (one for one in stage.stripes() if rank in one[0]):
        first, parts = mine.index(cells[0]), [cells] if hosts == 2 else _in_parts(cells, hosts)
        edges = list(accumulate(map(len, parts), initial=first))
        region = Region(ranks, parts, [held[a:b] for a, b in pairwise(edges)], list(map(out, parts)))
        rails.append(stage.phase("allreduce", "recursive_doubling" if hosts == 2 else "circulant", region))
    stage.steps += beside(*rails)
    stage.gather_inside(lists)
    return stage.done(size)


@packaged(
    "reduce_scatter",
    name="striped",
    cost="α + (p-2)*o + (p-1)/p*n*β + 2*λ + n*γ",
    reference=HIERARCHY,
    scratch="3*p",
    uniform=UNIFORM,
    by_hosts=True,
)
def striped_reduce_scatter(rank: int, size: int, topology: Topology) -> Schedule:
    """Reduce-scatter inside each host, where each rank stands for some of the others', and from these to those.

    (H-1)/H vectors leave each of H hosts of equally many ranks, which is the least: middle and long vectors.
    """
    stage = Stage(rank, size, topology)
    lists = [stage.columns(one) for one in stage.local]
    mine, held = lists[stage.local.index(rank)], stage.reduced_inside(lists)
    rails = []
    for k, block in enumerate(mine):
        ranks = stage.column(block)
        region = Region(ranks, [[block]], [held[k : k + 1]], [out([block])])
        rails.append(stage.phase("reduce", "linear", region, ranks.index(block)))
    stage.steps += beside(*rails)
    return stage.done(size)


@packaged(
    "allgather",
    name="striped",
    cost="α + (p-2)*o + (p-1)/p*n*β",
    reference=HIERARCHY,
    scratch="3*p",
    uniform=UNIFORM,
    by_hosts=True,
)
def striped_allgather(rank: int, size: int, topology: Topology) -> Schedule:
    """Each rank sends its block to the ranks that stand for it in the other hosts; allgather inside each host.

    Each block leaves its host H-1 times with H hosts, which is the least: middle and long vectors.
    """
    stage = Stage(rank, size, topology)
    lists = [stage.columns(one) for one in stage.local]
    stage.steps.append(step(Copy(out([rank]), inp([rank]))))
    rails = []
    for block in lists[stage.local.index(rank)]:
        ranks, cells = stage.column(block), [out([block])]
        rails.append(stage.phase("bcast", "linear", Region(ranks, [[block]], cells, cells), ranks.index(block)))
    stage.steps += beside(*rails)
    stage.gather_inside(lists)
    return stage.done(size)


@packaged(
    "bcast",
    name="striped",
    cost="2*(α + (p-1)*o) + (2*p-1)/p*n*β",
    reference=HIERARCHY,
    blocks="p",
    scratch="p",
    uniform=UNIFORM,
    by_hosts=True,
)
def striped_bcast(rank: int, size: int, root: int, topology: Topology) -> Schedule:
    """Scatter inside the root's host, broadcast each stripe to the other hosts, allgather inside each host.

    One vector leaves the root's host with two hosts, and less than two with more: middle and long vectors.
    """
    stage = Stage(rank, size, topology)
    local, home = stage.local, next(k for k, group in enumerate(stage.groups) if root in group)
    lists = [stage.owned(one, local) for one in local]
    cells = list(map(out, lists))
    if root in local:
        stage.steps += stage.phase("scatter", "linear", Region(local, lists, cells, cells), local.index(root))
    hosts, rails = len(stage.groups), []
    for ranks, blocks in (one for one in stage.stripes() if rank in one[0]):
        parts = [blocks] if hosts == 2 else _in_parts(blocks, 1 << hosts.bit_length() - 1)
        there = list(map(out, parts))
        algorithm = "linear" if hosts == 2 else "recursive_doubling"
        rails.append(stage.phase("bcast", algorithm, Region(ranks, parts, there, there), home))
    stage.steps += beside(*rails)
    stage.gather_inside(lists)
    return stage.done(size)


@packaged(
    "reduce",
    name="striped",
    cost="2*(α + (p-1)*o) + 2*(p-1)/p*n*β + 3*λ + n*γ",
    reference=HIERARCHY,
    blocks="p",
    scratch="5*p",
    uniform=UNIFORM,
    by_hosts=True,
)
def striped_reduce(rank: int, size: int, root: int, topology: Topology) -> Schedule:
    """Reduce-scatter inside each host, reduce each stripe to the root's host, gather there.

    One vector reaches the root's host with two hosts, and less than two with more: middle and long vectors.
    """
    stage = Stage(rank, size, topology)
    local, home = stage.local, next(k for k, group in enumerate(stage.groups) if root in group)
    lists = [stage.owned(one, local) for one in local]
    mine = lists[local.index(rank)]
    held, hosts, rails = stage.reduced_inside(lists), len(stage.groups), []
    total = held if hosts == 1 else stage.tmp.take(mine) if root in local else Ref("scratch", ())
    for ranks, cells in (one for one in stage.stripes() if rank in one[0]):
        parts = [cells] if hosts == 2 else _in_parts(cells, 1 << hosts.bit_length() - 1)
        edges = list(accumulate(map(len, parts), initial=mine.index(cells[0])))
        sources = [held[a:b] for a, b in pairwise(edges)]
        region = Region(ranks, parts, sources, [total[a:b] for a, b in pairwise(edges)])
        rails.append(stage.phase("reduce", "linear" if hosts == 2 else "reduce_scatter_gather", region, home))
    stage.steps += beside(*rails)
    if root in local:
        sums = [total if one == rank else Ref("scratch", ()) for one in local]
        region = Region(local, lists, sums, list(map(out, lists)))
        stage.steps += stage.phase("gather", "linear", region, local.index(root))
    return stage.done(size)
