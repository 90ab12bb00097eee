"""Striped algorithms: every rank of a host takes part between hosts, with a stripe of the vector."""

from __future__ import annotations

from itertools import chain

from mpicoll.algorithms.on_hosts.hierarchy import between, inside, on_hosts
from mpicoll.algorithms.on_hosts.stage import NOTHING, Stage
from mpicoll.schedule.embed import Region, beside
from mpicoll.schedule.ir import Copy, Schedule, inp, out, step


@on_hosts(
    "allreduce",
    name="striped",
    cost="2*(α + (p-2)*o) + 2*(p-1)/p*n*β + 2*λ + n*γ",
    blocks="p",
    scratch="3*p",
    inner=(
        inside("reduce_scatter", "all_pairs"),
        between("allreduce", "recursive_doubling", of_more="circulant"),
        inside("allgather", "linear"),
    ),
)
def striped_allreduce(stage: Stage) -> Schedule:
    """Reduce-scatter inside each host, allreduce of each stripe between hosts, allgather inside each host.

    2(H-1)/H vectors leave each of H hosts, which is the least: middle and long vectors.
    """
    lists = [stage.owned(one) for one in stage.local]
    held, mine = stage.reduced_inside(lists), out(stage.owned(stage.rank))
    stage.between("allreduce", held, mine)
    stage.gather_inside(lists)
    return stage.done(stage.size)


@on_hosts(
    "reduce_scatter",
    name="striped",
    cost="α + (p-2)*o + (p-1)/p*n*β + 2*λ + n*γ",
    scratch="3*p",
    inner=(inside("reduce_scatter", "all_pairs"), between("reduce_scatter", "all_pairs", of_more="circulant")),
)
def striped_reduce_scatter(stage: Stage) -> Schedule:
    """Reduce-scatter inside each host, where each rank stands for some of the others', and from these to those.

    (H-1)/H vectors leave each of H hosts of equally many ranks, which is the least: middle and long vectors.
    """
    lists, rails = [stage.columns(one) for one in stage.local], []
    mine, held = lists[stage.local.index(stage.rank)], stage.reduced_inside(lists)
    place = {block: number for number, block in enumerate(mine)}
    for ranks, blocks in stage.rails():
        ids = list(chain.from_iterable(blocks))
        region = Region.of(ranks, blocks, held.at([place[block] for block in ids]), out(ids))
        rails.append(stage.phase("reduce_scatter", region))
    with stage.outside():
        stage.steps += beside(*rails)
    return stage.done(stage.size)


@on_hosts(
    "allgather",
    name="striped",
    cost="α + (p-2)*o + (p-1)/p*n*β",
    scratch="3*p",
    inner=(between("allgather", "linear", of_more="circulant"), inside("allgather", "linear")),
)
def striped_allgather(stage: Stage) -> Schedule:
    """Allgather between the ranks that stand for each other in all hosts, then inside each host.

    Each block leaves its host H-1 times with H hosts, which is the least: middle and long vectors.
    """
    rank, rails = stage.rank, []
    stage.steps.append(step(Copy(out([rank]), inp([rank]))))
    for ranks, blocks in stage.rails():
        cells = out(list(chain.from_iterable(blocks)))
        rails.append(stage.phase("allgather", Region.of(ranks, blocks, cells, cells)))
    with stage.outside():
        stage.steps += beside(*rails)
    stage.gather_inside([stage.columns(one) for one in stage.local])
    return stage.done(stage.size)


@on_hosts(
    "bcast",
    name="striped",
    cost="2*(α + (p-1)*o) + (2*p-1)/p*n*β",
    blocks="p",
    scratch="p",
    inner=(
        inside("scatter", "linear"),
        between("bcast", "linear", of_more="recursive_doubling"),
        inside("allgather", "linear"),
    ),
)
def striped_bcast(stage: Stage, root: int) -> Schedule:
    """Scatter inside the root's host, broadcast each stripe to the other hosts, allgather inside each host.

    One vector leaves the root's host with two hosts, and less than two with more: middle and long vectors.
    """
    return bcast_in_stripes(stage, root)


def bcast_in_stripes(stage: Stage, root: int) -> Schedule:
    """Return a rank's schedule of a bcast in stripes."""
    local, mine = stage.local, out(stage.owned(stage.rank))
    lists = [stage.owned(one) for one in local]
    cells = list(map(out, lists))
    if root in local:
        stage.steps += stage.phase("scatter", Region(local, lists, cells, cells), local.index(root))
    stage.between("bcast", mine, mine, stage.home(root))
    stage.gather_inside(lists)
    return stage.done(stage.size)


@on_hosts(
    "reduce",
    name="striped",
    cost="2*(α + (p-1)*o) + 2*(p-1)/p*n*β + 3*λ + n*γ",
    blocks="p",
    scratch="5*p",
    inner=(
        inside("reduce_scatter", "all_pairs"),
        between("reduce", "linear", of_more="reduce_scatter_gather"),
        inside("gather", "linear"),
    ),
)
def striped_reduce(stage: Stage, root: int) -> Schedule:
    """Reduce-scatter inside each host, reduce each stripe to the root's host, gather there.

    One vector reaches the root's host with two hosts, and less than two with more: middle and long vectors.
    """
    return reduce_in_stripes(stage, root)


def reduce_in_stripes(stage: Stage, root: int) -> Schedule:
    """Return a rank's schedule of a reduction in stripes."""
    rank, local = stage.rank, stage.local
    lists = [stage.owned(one) for one in local]
    held = stage.reduced_inside(lists)
    total = held if len(stage.groups) == 1 else stage.tmp.take(stage.owned(rank)) if root in local else NOTHING
    stage.between("reduce", held, total, stage.home(root))
    if root in local:
        sums = [total if one == rank else NOTHING for one in local]
        region = Region(local, lists, sums, list(map(out, lists)))
        stage.steps += stage.phase("gather", region, local.index(root))
    return stage.done(stage.size)
