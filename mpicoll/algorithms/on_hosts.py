"""Algorithms for ranks on several hosts: inside each host, between hosts, inside again.

*Striped*: every rank of a host takes part between hosts, each with a stripe of the vector, so that all network cards
work.  By a *leader*: one rank of each host does, with all of it.  Hosts may have any numbers of ranks, in any order.

Phases are algorithms of this package on some of the ranks (`schedule/embed.py`).  A cost is that of the phases inside a
host, with its ranks as p; what travels between hosts is counted (`analysis/host_traffic.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, groupby, pairwise

from mpicoll.algorithms import registry
from mpicoll.algorithms.registry import packaged
from mpicoll.schedule.embed import Region, beside, embed
from mpicoll.schedule.ir import Copy, Ref, Schedule, Scratch, Step, inp, out, step
from mpicoll.schedule.topology import Topology

#: why the schedules of all topologies are right
UNIFORM = "Its phases are algorithms that are right on any ranks; each topology is proven when it is first used."
#: what two-level algorithms were first measured with
HIERARCHY = "Karonis et al. 2000; two levels"


class _Stage:
    """A rank's part of an algorithm in the making.

    Attributes:
        rank: this rank.
        groups: ranks of each host.
        local: those of this rank's host.
        places: place of each rank in its host.
        tmp: gives scratch.
        steps: so far.
    """

    def __init__(self, rank: int, size: int, topology: Topology) -> None:
        self.rank, self.tmp, self.steps = rank, Scratch(), list[Step]()
        self.groups = topology.groups or [list(range(size))]
        self.local = next(group for group in self.groups if rank in group)
        self.places = {one: place for group in self.groups for place, one in enumerate(group)}
        self.size = size

    def owner(self, group: Sequence[int], cell: int) -> int:
        """Return the rank of a host that has a cell of the vector in its stripe: stripes follow each other."""
        return group[cell * len(group) // self.size]

    def owned(self, rank: int, group: Sequence[int]) -> list[int]:
        """Return the cells in the stripe of a rank of a host."""
        place, many = self.places[rank], len(group)
        return list(range(-(-self.size * place // many), -(-self.size * (place + 1) // many)))

    def stripes(self) -> list[tuple[tuple[int, ...], list[int]]]:
        """Return (owner of each host, cells) for all cells of the vector."""
        owners = ((tuple(self.owner(group, cell) for group in self.groups), cell) for cell in range(self.size))
        return [(ranks, [cell for _, cell in cells]) for ranks, cells in groupby(owners, key=lambda one: one[0])]

    def phase(self, collective: str, algorithm: str, region: Region, root: int = 0) -> list[Step]:
        """Return an algorithm's steps on the ranks of a region, among which this rank is.

        Args:
            collective: of the algorithm.
            algorithm: its name.
            region: where it is.
            root: the root among its ranks.
        """
        card = registry.get(collective, algorithm)
        return embed(card.schedule(region.ranks.index(self.rank), len(region.ranks), root), region, self.tmp)

    def reduced_inside(self, lists: Sequence[Sequence[int]]) -> Ref:
        """Reduce-scatter inside the host, and return this rank's cells: sums of the host's ranks.

        Args:
            lists: blocks of each rank of the host.
        """
        own = self.local.index(self.rank)
        if len(self.local) == 1:
            return inp(lists[own])
        held = self.tmp.take(lists[own])
        partial = [held if k == own else Ref("scratch", ()) for k in range(len(lists))]
        region = Region(self.local, lists, list(map(inp, lists)), partial)
        self.steps += self.phase("reduce_scatter", "all_pairs", region)
        return held

    def gather_inside(self, lists: Sequence[Sequence[int]]) -> None:
        """Allgather the output's blocks inside the host; `lists` has those of each of its ranks."""
        cells = list(map(out, lists))
        self.steps += self.phase("allgather", "linear", Region(self.local, lists, cells, cells))

    def column(self, rank: int) -> tuple[int, ...]:
        """Return the rank of each host that stands for a rank: itself, and in other hosts that of the same place."""
        place = self.places[rank]
        found = (group[place % len(group)] for group in self.groups)
        return tuple(rank if rank in group else one for group, one in zip(self.groups, found, strict=True))

    def columns(self, rank: int) -> list[int]:
        """Return the ranks for which a rank stands in its host, itself among them."""
        group, mine = self.local, self.places[rank]
        others = (one for one in range(self.size) if one == rank or self.places[one] % len(group) == mine)
        return [one for one in others if one == rank or one not in group]

    def done(self, blocks: int) -> Schedule:
        """Return the schedule."""
        return Schedule.of(self.steps, blocks, self.tmp)


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
    stage = _Stage(rank, size, topology)
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
    """Reduce-scatter inside each host, by the places of ranks in their hosts, then between the ranks of each place.

    (H-1)/H vectors leave each of H hosts of equally many ranks, which is the least: middle and long vectors.
    """
    stage = _Stage(rank, size, topology)
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
    """Each rank sends its block to the ranks of its place in the other hosts; allgather inside each host.

    Each block leaves its host H-1 times with H hosts, which is the least: middle and long vectors.
    """
    stage = _Stage(rank, size, topology)
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
    stage = _Stage(rank, size, topology)
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
    "allreduce",
    name="leader",
    cost="2*q*(α + n*β) + q*(λ + (lg+1)/2*n*γ)",
    reference=HIERARCHY,
    blocks="1",
    scratch="q+2",
    uniform=UNIFORM,
    by_hosts=True,
)
def leader_allreduce(rank: int, size: int, topology: Topology) -> Schedule:
    """Reduce to the first rank of each host, allreduce between these, broadcast inside each host.

    One message leaves a host at a time: short vectors on many ranks of each host.
    """
    stage, whole = _Stage(rank, size, topology), [[0]]
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
    stage, cells = _Stage(rank, size, topology), [out([0])]
    leaders = [root if root in group else group[0] for group in stage.groups]
    first = next(one for one in leaders if one in stage.local)
    if rank in leaders:
        stage.steps += stage.phase("bcast", "binomial", Region(leaders, [[0]], cells, cells), leaders.index(root))
    stage.steps += stage.phase("bcast", "binomial", Region(stage.local, [[0]], cells, cells), stage.local.index(first))
    return stage.done(1)
