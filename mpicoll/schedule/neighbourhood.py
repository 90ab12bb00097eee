"""The neighbourhood of a rank, and the collectives that are defined by it: who sends which block to whom.

A neighbourhood is data: a Cartesian grid, a graph and a distributed graph are read into the same two lists of ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from mpicoll.schedule.collectives import Collective

#: in the place of a rank beyond the edge of a grid
NOBODY = -1


@dataclass(frozen=True)
class Neighbourhood:
    """The ranks with which a rank exchanges blocks, itself perhaps among them.

    Rank 1 of a periodic row of 4 ranks has `Neighbourhood((0, 2), (0, 2), (1, 0))`.

    Attributes:
        sources: for each block of the output the rank that sends it, or NOBODY.
        targets: for each block of the input the rank that gets it, or NOBODY.
        order: numbers of the output's blocks.  Where a rank sends several, they are received in this order.
    """

    sources: tuple[int, ...]
    targets: tuple[int, ...]
    order: tuple[int, ...]

    @staticmethod
    def of_grid(ranks: list[int]) -> Neighbourhood:
        """Return a neighbourhood on a Cartesian grid.

        What a rank sends down comes from above: so where both neighbours are one rank, as on a periodic row of two,
        the first of its blocks is received as the second one.

        Args:
            ranks: for each dimension the neighbour with the lower and the one with the higher coordinate.
        """
        found = tuple(max(rank, NOBODY) for rank in ranks)
        return Neighbourhood(found, found, tuple(k ^ 1 for k in range(len(found))))

    @staticmethod
    def of_graph(sources: list[int], targets: list[int]) -> Neighbourhood:
        """Return a neighbourhood in a graph: between two ranks blocks are received as they are sent."""
        return Neighbourhood(tuple(sources), tuple(targets), tuple(range(len(sources))))

    def arrivals(self, rank: int) -> list[int]:
        """Return the numbers of the output's blocks that come from other ranks, in the order of receiving."""
        return [k for k in self.order if self.sources[k] not in (rank, NOBODY)]

    def departures(self, rank: int) -> list[int]:
        """Return the numbers of the input's blocks that go to other ranks."""
        return [k for k, target in enumerate(self.targets) if target not in (rank, NOBODY)]

    def own(self, rank: int) -> Iterator[tuple[int, int]]:
        """Yield (block of the output, block of the input) of what a rank sends to itself."""
        came = [k for k in self.order if self.sources[k] == rank]
        went = [k for k, target in enumerate(self.targets) if target == rank]
        return zip(came, went, strict=True)


@lru_cache(maxsize=256)
def neighbour_row(shared: bool, neighbourhood: Neighbourhood) -> Collective:
    """Return the row of a neighbour collective on this rank.

    Args:
        shared: all targets get the one block of the input (allgather); else each has its own (alltoall).
        neighbourhood: of this rank.
    """
    name = "neighbor_allgather" if shared else "neighbor_alltoall"
    ids = [k for k, target in enumerate(neighbourhood.targets) if target != NOBODY]
    before = ids and [0] if shared else ids
    after = {k: (source,) for k, source in enumerate(neighbourhood.sources) if source != NOBODY}
    methods = name.capitalize(), f"{name.capitalize()}v"
    return Collective(name, methods, _always(before), _always(after))


def _always(value: Any) -> Callable[..., Any]:
    return lambda r, p, root, b: value
