"""A rank's part of an algorithm for several hosts, in the making."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate, groupby, pairwise

from mpicoll.algorithms import registry
from mpicoll.algorithms.card import Algorithm
from mpicoll.schedule.embed import Region, beside, embed
from mpicoll.schedule.ir import Ref, Schedule, Scratch, Step, inp, out
from mpicoll.schedule.topology import Topology

#: no cells
NOTHING = Ref("scratch", ())


class Stage:
    """A rank's part of an algorithm in the making.

    Args:
        rank: this rank.
        size: number of ranks.
        topology: which of them are on one host.
        inner: inner collective -> name of its algorithm.
        blocks: number of blocks of the vector.

    Attributes:
        cells: ids of the vector's blocks.
        groups: ranks of each host.
        local: those of this rank's host.
        places: place of each rank in its host.
        tmp: gives scratch.
        steps: so far.
        apart: first step of what hosts exchange, and the step behind it.
    """

    def __init__(self, rank: int, size: int, topology: Topology, inner: Mapping[str, str], blocks: int) -> None:
        self.rank, self.inner, self.cells = rank, inner, range(blocks)
        self.tmp, self.steps = Scratch(), list[Step]()
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

    def card(self, collective: str) -> Algorithm:
        """Return the inner algorithm of a collective."""
        return registry.get(collective, self.inner[collective])

    def phase(self, collective: str, region: Region, root: int = 0) -> list[Step]:
        """Return the steps of an inner algorithm on the ranks of a region, among which this rank is.

        Args:
            collective: of the algorithm.
            region: where it is.
            root: the root among its ranks.
        """
        own, many = region.ranks.index(self.rank), len(region.ranks)
        return embed(self.card(collective).schedule(own, many, root), region, self.tmp)

    def cut(self, collective: str, ranks: Sequence[int], cells: Sequence[int], source: Ref, target: Ref) -> Region:
        """Return the region of a collective on some ranks, whose vector is cut as its algorithm wants.

        Args:
            collective: whose vector may be cut freely.
            ranks: on which it is.
            cells: ids of the blocks of its vector.
            source: cells of these, which are read; none where there is nothing to read.
            target: those that are written.
        """
        parts = _in_parts(cells, self.card(collective).vector_blocks(len(ranks)))
        ends = list(pairwise(accumulate(map(len, parts), initial=0)))
        return Region(ranks, parts, [source[a:b] for a, b in ends], [target[a:b] for a, b in ends])

    def whole(self, collective: str, ranks: list[int], source: Ref, target: Ref, root: int = 0) -> None:
        """Add the steps of a collective of whole vectors; arguments as in `cut`, `root` is one of the ranks."""
        region = self.cut(collective, ranks, self.cells, source, target)
        self.steps += self.phase(collective, region, ranks.index(root) if root in ranks else 0)

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
        partial = [held if k == own else NOTHING for k in range(len(lists))]
        region = Region(self.local, lists, list(map(inp, lists)), partial)
        self.steps += self.phase("reduce_scatter", region)
        return held

    def gather_inside(self, lists: Sequence[Sequence[int]]) -> None:
        """Allgather the output's blocks inside the host; `lists` has those of each of its ranks."""
        cells = list(map(out, lists))
        self.steps += self.phase("allgather", Region(self.local, lists, cells, cells))

    def between(self, collective: str, source: Ref, target: Ref, home: int = 0) -> None:
        """Let each stripe go between hosts, all of them at the same time.

        Args:
            collective: which.
            source: cells of this rank's stripes, which are read.
            target: those that are written.
            home: number of the root's host, where there is a root.
        """
        rails, start = [], self.owned(self.rank, self.local)[0]
        for ranks, cells in (one for one in self.stripes() if self.rank in one[0]):
            a, b = cells[0] - start, cells[-1] + 1 - start
            rails.append(self.phase(collective, self.cut(collective, ranks, cells, source[a:b], target[a:b]), home))
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

    def rails(self) -> list[tuple[tuple[int, ...], list[list[int]]]]:
        """Return (rank of each host, block of each) of all columns with this rank.

        Ranks without a block there stand for one of another host, that has another column: hosts are uneven.
        """
        found: dict[tuple[int, ...], list[list[int]]] = {}
        for block in self.columns(self.rank):
            ranks = self.column(block)
            found.setdefault(ranks, [[] for _ in ranks])[ranks.index(block)].append(block)
        return list(found.items())

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
