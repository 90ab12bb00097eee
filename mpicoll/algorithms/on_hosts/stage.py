"""A rank's part of an algorithm for several hosts, in the making."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import accumulate, groupby, pairwise

from mpicoll.algorithms import registry
from mpicoll.algorithms.registry import packaged
from mpicoll.schedule.embed import Region, beside, embed
from mpicoll.schedule.ir import Ref, Schedule, Scratch, Step, inp, out
from mpicoll.schedule.topology import Topology

#: registers an algorithm for several hosts
on_hosts = partial(
    packaged,
    reference="Karonis et al. 2000; two levels",
    uniform="Its phases are algorithms that are right on any ranks; each topology is proven when it is first used.",
    by_hosts=True,
)


class Stage:
    """A rank's part of an algorithm in the making.

    Attributes:
        rank: this rank.
        groups: ranks of each host.
        local: those of this rank's host.
        places: place of each rank in its host.
        tmp: gives scratch.
        steps: so far.
        apart: first step of what hosts exchange, and the step behind it.
    """

    def __init__(self, rank: int, size: int, topology: Topology) -> None:
        self.rank, self.tmp, self.steps = rank, Scratch(), list[Step]()
        self.apart: tuple[int, int] | None = None
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

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Note that the steps made in a with block, one of a stage, are what hosts exchange: all ranks come to it."""
        start = len(self.steps)
        yield
        self.apart = start, len(self.steps)

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

    def between(self, collective: str, algorithm: str, source: Ref, target: Ref, home: int = 0) -> None:
        """Let each stripe go between hosts, all of them at the same time.

        Args:
            collective: of the algorithm.
            algorithm: its name.
            source: cells of this rank's stripes, which are read.
            target: those that are written.
            home: number of the root's host, where there is a root.
        """
        blocks, rails = registry.get(collective, algorithm).vector_blocks(len(self.groups)), []
        start = self.owned(self.rank, self.local)[0]
        for ranks, cells in (one for one in self.stripes() if self.rank in one[0]):
            parts = _in_parts(cells, blocks)
            ends = list(pairwise(accumulate(map(len, parts), initial=cells[0] - start)))
            region = Region(ranks, parts, [source[a:b] for a, b in ends], [target[a:b] for a, b in ends])
            rails.append(self.phase(collective, algorithm, region, home))
        with self.outside():
            self.steps += beside(*rails)

    def leaders(self, root: int) -> tuple[list[int], int]:
        """Return (first rank of each host, the root for its own; that of this host)."""
        found = [root if root in group else group[0] for group in self.groups]
        return found, next(one for one in found if one in self.local)

    def home(self, root: int) -> int:
        """Return the number of the root's host."""
        return next(host for host, group in enumerate(self.groups) if root in group)

    def column(self, rank: int) -> tuple[int, ...]:
        """Return the rank of each host that stands for a rank: itself; in other hosts ranks take turns."""
        return tuple(self.stands_for(rank, group) for group in self.groups)

    @staticmethod
    def stands_for(rank: int, group: list[int]) -> int:
        """Return the rank of a host that stands for a rank; it is as busy as the others of its host."""
        before = bisect_left(group, rank)
        return rank if group[before : before + 1] == [rank] else group[(rank - before) % len(group)]

    def columns(self, rank: int) -> list[int]:
        """Return the ranks for which a rank stands in its host, itself among them."""
        return [one for one in range(self.size) if self.stands_for(one, self.local) == rank]

    def done(self, blocks: int) -> Schedule:
        """Return the schedule."""
        return Schedule.of(self.steps, blocks, self.tmp, outside=self.apart)


def _in_parts(cells: Sequence[int], number: int) -> list[Sequence[int]]:
    """Return cells in so many parts that follow each other, some empty where there are few."""
    edges = [len(cells) * k // number for k in range(number + 1)]
    return [cells[a:b] for a, b in pairwise(edges)]
