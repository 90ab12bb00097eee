"""A rank's part of an algorithm for several hosts, in the making."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise

from mpicoll.algorithms import registry
from mpicoll.algorithms.card import Algorithm
from mpicoll.schedule.embed import Region, beside, embed
from mpicoll.schedule.ir import Ref, Schedule, Scratch, Step, inp, out
from mpicoll.schedule.topology import FLAT, Topology

#: inner algorithms by collective and level
Chosen = Mapping[tuple[str, bool], str]
#: no cells
NOTHING = Ref("scratch", ())


class Stage:
    """A rank's part of an algorithm in the making.

    Args:
        rank: this rank.
        size: number of ranks.
        topology: which of them are on one host.
        inner: inner collective, and whether it is between hosts -> name of its algorithm.
        blocks: number of blocks of the vector.

    Attributes:
        cells: ids of the vector's blocks.
        groups: ranks of each host.
        local: those of this rank's host.
        host_of: number of each rank's host.
        even: all hosts have equally many ranks.
        racks: topology of the hosts, FLAT where all are in one rack.
        tmp: gives scratch.
        steps: so far.
        apart: first step of what hosts exchange, and the step behind it.
    """

    def __init__(self, rank: int, size: int, topology: Topology, inner: Chosen, blocks: int) -> None:
        self.rank, self.inner, self.cells = rank, inner, range(blocks)
        self.tmp, self.steps = Scratch(), list[Step]()
        self.apart: tuple[int, int] | None = None
        self.groups = topology.groups or [list(range(size))]
        self.host_of = topology.host_of or (0,) * size
        self.local = self.groups[self.host_of[rank]]
        self.even = len(set(map(len, self.groups))) == 1
        self.racks = topology.racks or FLAT
        self.size = size

    def owner(self, group: Sequence[int], cell: int) -> int:
        """Return the rank of a host that has a cell of the vector in its stripe: stripes follow each other."""
        return group[cell * len(group) // self.size]

    def owned(self, rank: int) -> range:
        """Return the cells in the stripe of a rank of this host."""
        place, many = self.local.index(rank), len(self.local)
        return range(-(-self.size * place // many), -(-self.size * (place + 1) // many))

    def stripes(self) -> list[tuple[tuple[int, ...], range]]:
        """Return (owner of each host, cells) for the cells in this rank's stripe: other hosts may cut them."""
        own = self.owned(self.rank)
        edges = {own.start, own.stop}
        for many in set(map(len, self.groups)):
            places = range(own.start * many // self.size + 1, (own.stop - 1) * many // self.size + 1)
            edges.update(-(-self.size * place // many) for place in places)
        parts = [range(a, b) for a, b in pairwise(sorted(edges))]
        return [(tuple(self.owner(group, cells[0]) for group in self.groups), cells) for cells in parts]

    def is_between(self, ranks: Sequence[int]) -> bool:
        """Tell whether ranks with this one are those of several hosts, of each one."""
        return any(self.host_of[one] != self.host_of[self.rank] for one in ranks)

    def card(self, collective: str, ranks: Sequence[int]) -> Algorithm:
        """Return the inner algorithm of a collective on some ranks, of this host or of several."""
        between = self.is_between(ranks)
        name = self.inner.get((collective, between)) or self.inner[collective, not between]
        return registry.get(collective, name)

    def phase(self, collective: str, region: Region, root: int = 0) -> list[Step]:
        """Return the steps of an inner algorithm on the ranks of a region, among which this rank is.

        Args:
            collective: of the algorithm.
            region: where it is.
            root: the root among its ranks.
        """
        own, many = region.ranks.index(self.rank), len(region.ranks)
        hosts = self.racks if self.is_between(region.ranks) else FLAT
        return embed(self.card(collective, region.ranks).schedule(own, many, root, hosts), region, self.tmp)

    def cut(self, collective: str, ranks: Sequence[int], cells: Sequence[int], source: Ref, target: Ref) -> Region:
        """Return the region of a collective on some ranks, whose vector is cut as its algorithm wants.

        Args:
            collective: whose vector may be cut freely.
            ranks: on which it is.
            cells: ids of the blocks of its vector.
            source: cells of these, which are read; none where there is nothing to read.
            target: those that are written.
        """
        parts = _in_parts(cells, self.card(collective, ranks).vector_blocks(len(ranks)))
        return Region.of(ranks, parts, source, target)

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
        rails, start = [], self.owned(self.rank).start
        for ranks, cells in self.stripes():
            a, b = cells.start - start, cells.stop - start
            rails.append(self.phase(collective, self.cut(collective, ranks, cells, source[a:b], target[a:b]), home))
        with self.outside():
            self.steps += beside(*rails)

    def leaders(self, root: int) -> tuple[list[int], int]:
        """Return (first rank of each host, the root for its own; that of this host)."""
        found = [group[0] for group in self.groups]
        found[self.home(root)] = root
        return found, found[self.host_of[self.rank]]

    def home(self, root: int) -> int:
        """Return the number of the root's host."""
        return self.host_of[root]

    def column(self, rank: int) -> tuple[int, ...]:
        """Return the rank of each host that stands for a rank: itself, and ranks as busy as others of theirs."""
        return tuple(self.stands_for(rank, group) for group in self.groups)

    def stands_for(self, rank: int, group: list[int]) -> int:
        """Return the rank of a host that stands for a rank: on even hosts that with its place, else they take turns."""
        if self.even:
            return group[self.place(rank)]
        before = bisect_left(group, rank)
        return rank if group[before : before + 1] == [rank] else group[(rank - before) % len(group)]

    def place(self, rank: int) -> int:
        """Return the place of a rank in its host."""
        return bisect_left(self.groups[self.host_of[rank]], rank)

    def rails(self) -> list[tuple[tuple[int, ...], list[list[int]]]]:
        """Return (rank of each host, block of each) of all columns with this rank: one, where hosts are even.

        Ranks without a block there stand for one of another host, that has another column.
        """
        if self.even:
            ranks = self.column(self.rank)
            return [(ranks, [[one] for one in ranks])]
        found: dict[tuple[int, ...], list[list[int]]] = {}
        for block in self.columns(self.rank):
            ranks = self.column(block)
            found.setdefault(ranks, [[] for _ in ranks])[ranks.index(block)].append(block)
        return list(found.items())

    def columns(self, rank: int) -> list[int]:
        """Return the ranks for which a rank of this host stands in it, itself among them."""
        place, many = self.local.index(rank), len(self.local)
        if self.even:
            return sorted([group[place] for group in self.groups])
        found = [rank]
        for before, (low, high) in enumerate(pairwise((-1, *self.local, self.size))):  # ranks between two of this host
            first = low + 1
            found += range(first + (place + before - first) % many, high, many)
        return sorted(found)

    def done(self, blocks: int) -> Schedule:
        """Return the schedule."""
        return Schedule.of(self.steps, blocks, self.tmp, outside=self.apart)


def _in_parts(cells: Sequence[int], number: int) -> list[Sequence[int]]:
    """Return cells in so many parts that follow each other, some empty where there are few."""
    edges = [len(cells) * k // number for k in range(number + 1)]
    return [cells[a:b] for a, b in pairwise(edges)]
