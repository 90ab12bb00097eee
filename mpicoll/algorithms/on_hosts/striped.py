"""Striped algorithms: every rank of a host takes part between hosts, with a stripe of the vector."""

from __future__ import annotations

from mpicoll.algorithms.on_hosts.stage import Stage, on_hosts
from mpicoll.schedule.embed import Region, beside
from mpicoll.schedule.ir import Copy, Ref, Schedule, inp, out, step
from mpicoll.schedule.topology import Topology


@on_hosts(
    "allreduce",
    name="striped",
    cost="2*(α + (p-2)*o) + 2*(p-1)/p*n*β + 2*λ + n*γ",
    blocks="p",
    scratch="3*p",
)
def striped_allreduce(rank: int, size: int, topology: Topology) -> Schedule:
    """Reduce-scatter inside each host, allreduce of each stripe between hosts, allgather inside each host.

    2(H-1)/H vectors leave each of H hosts, which is the least: middle and long vectors.
    """
    stage = Stage(rank, size, topology)
    lists = [stage.owned(one, stage.local) for one in stage.local]
    held, mine = stage.reduced_inside(lists), out(stage.owned(rank, stage.local))
    stage.between("allreduce", "recursive_doubling" if len(stage.groups) == 2 else "circulant", held, mine)
    stage.gather_inside(lists)
    return stage.done(size)


@on_hosts(
    "reduce_scatter",
    name="striped",
    cost="α + (p-2)*o + (p-1)/p*n*β + 2*λ + n*γ",
    scratch="3*p",
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
    with stage.outside():
        stage.steps += beside(*rails)
    return stage.done(size)


@on_hosts(
    "allgather",
    name="striped",
    cost="α + (p-2)*o + (p-1)/p*n*β",
    scratch="3*p",
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
    with stage.outside():
        stage.steps += beside(*rails)
    stage.gather_inside(lists)
    return stage.done(size)


@on_hosts(
    "bcast",
    name="striped",
    cost="2*(α + (p-1)*o) + (2*p-1)/p*n*β",
    blocks="p",
    scratch="p",
)
def striped_bcast(rank: int, size: int, root: int, topology: Topology) -> Schedule:
    """Scatter inside the root's host, broadcast each stripe to the other hosts, allgather inside each host.

    One vector leaves the root's host with two hosts, and less than two with more: middle and long vectors.
    """
    stage = Stage(rank, size, topology)
    local, mine = stage.local, out(stage.owned(rank, stage.local))
    lists = [stage.owned(one, local) for one in local]
    cells = list(map(out, lists))
    if root in local:
        stage.steps += stage.phase("scatter", "linear", Region(local, lists, cells, cells), local.index(root))
    algorithm = "linear" if len(stage.groups) == 2 else "recursive_doubling"
    stage.between("bcast", algorithm, mine, mine, stage.home(root))
    stage.gather_inside(lists)
    return stage.done(size)


@on_hosts(
    "reduce",
    name="striped",
    cost="2*(α + (p-1)*o) + 2*(p-1)/p*n*β + 3*λ + n*γ",
    blocks="p",
    scratch="5*p",
)
def striped_reduce(rank: int, size: int, root: int, topology: Topology) -> Schedule:
    """Reduce-scatter inside each host, reduce each stripe to the root's host, gather there.

    One vector reaches the root's host with two hosts, and less than two with more: middle and long vectors.
    """
    stage = Stage(rank, size, topology)
    local, hosts = stage.local, len(stage.groups)
    lists = [stage.owned(one, local) for one in local]
    held, none = stage.reduced_inside(lists), Ref("scratch", ())
    total = held if hosts == 1 else stage.tmp.take(stage.owned(rank, local)) if root in local else none
    stage.between("reduce", "linear" if hosts == 2 else "reduce_scatter_gather", held, total, stage.home(root))
    if root in local:
        sums = [total if one == rank else none for one in local]
        region = Region(local, lists, sums, list(map(out, lists)))
        stage.steps += stage.phase("gather", "linear", region, local.index(root))
    return stage.done(size)
