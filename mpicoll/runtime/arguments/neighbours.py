"""Meanings of the arguments of the neighbour collectives on this rank, as in `methods.py` of the others.

On a periodic row of ranks, with x of 6 and y of 6 float64:

    neighbours(False, False, rank, size, x, y, Neighbourhood((0, 2), (0, 2), (1, 0)))  -> blocks of 3 elements
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from mpicoll.runtime.arguments.arrays import Flat
from mpicoll.runtime.arguments.operands import CallReader, Operands
from mpicoll.runtime.arguments.reader import Blocks, in_bytes
from mpicoll.schedule.collectives import Collective
from mpicoll.schedule.neighbourhood import NOBODY, Neighbourhood, neighbour_row

NO_BLOCKS: Blocks = ((), ())


class NeighbourReader(CallReader):
    """A neighbour collective being understood: its buffers have a block for each neighbour.

    Attributes:
        size: number of blocks of the buffer that is read.
        unit: what counts of blocks are of, for messages.
    """

    parts, unit = "neighbours", "elements"

    def __init__(self, row: Collective, method: str, rank: int) -> None:
        self.row, self.method, self.rank = row, method, rank
        self.size = self.root = 0
        self.raw = ""

    def to_each(self, name: str, value: Any, number: int, vector: bool, *, writes: bool) -> tuple[Flat | None, Blocks]:
        """Return (array, blocks) of a buffer; (None, no blocks) where nothing is given for nobody.

        Args:
            name: the argument's name, for messages.
            value: as in the call.
            number: of neighbours.
            vector: as in `Reader.blocks`.
            writes: the call writes into the buffer.
        """
        self.size = number
        if value is None and not number:
            return None, NO_BLOCKS
        return self.blocks(name, value, vector, writes=writes)

    def typed_to_each(
        self, name: str, value: Any, ranks: tuple[int, ...], *, writes: bool
    ) -> tuple[Flat | None, Blocks]:
        """Return (bytes, blocks) of a buffer that has a datatype for each neighbour; as `to_each`.

        Args:
            name: the argument's name, for messages.
            value: as in the call.
            ranks: the neighbours.
            writes: the call writes into the buffer.
        """
        self.size, self.unit = len(ranks), "bytes"
        if value is None and not ranks:
            return None, NO_BLOCKS
        nobody = [k for k, rank in enumerate(ranks) if rank == NOBODY]
        return self.of_types(name, value, writes=writes, nobody=nobody)

    def with_neighbours(
        self, neighbourhood: Neighbourhood, source: Flat | None, sent: Blocks, target: Flat | None, received: Blocks
    ) -> Operands:
        """Return the operands, after the checks that concern both buffers.

        Args:
            neighbourhood: of this rank.
            source: the input, None if there is none.
            sent: (counts, displacements) of its blocks.
            target: the output, None if there is none.
            received: (counts, displacements) of its blocks.
        """
        self.check_own(neighbourhood, sent, received)
        if source is not None and target is not None:
            self.apart(source, target, "separate arrays")
        if source is None and target is None:
            target = Flat(np.empty(0, "u1"), 0, -1)
        found = self.operands(source, target, in_blocks=sent, out_blocks=received, nbytes=None)
        found.neighbours = neighbourhood
        return found

    def check_own(self, neighbourhood: Neighbourhood, sent: Blocks, received: Blocks) -> None:
        """Refuse blocks of this rank for itself that are not as long as what it expects."""
        for to, k in neighbourhood.own(self.rank):
            there, here = received[0][to], sent[0][k if len(sent[0]) > 1 else 0]
            if there != here:
                raise ValueError(
                    f"{self.method}: recvbuf's block {to} expects {there} {self.unit} from this rank itself, "
                    f"sendbuf has {here} for it"
                )


def neighbours(
    shared: bool, vector: bool, rank: int, size: int, sendbuf: Any, recvbuf: Any, neighbourhood: Neighbourhood
) -> Operands:
    """Neighbor_allgather(v), Neighbor_alltoall(v): a block to each target, a block from each source.

    Args:
        shared: the input is one block, which all targets get.
        vector: it is the v-variant.
        rank: this rank.
        size: number of ranks.
        sendbuf: as in the call.
        recvbuf: as in the call.
        neighbourhood: of this rank.
    """
    row = neighbour_row(shared, neighbourhood)
    call = NeighbourReader(row, row.methods[vector].lower(), rank)
    source: Flat | None
    if not shared:
        source, sent = call.to_each("sendbuf", sendbuf, len(neighbourhood.targets), vector, writes=False)
    elif sendbuf is None and not neighbourhood.targets:
        source, sent = None, NO_BLOCKS
    else:
        source = call.one("sendbuf", sendbuf)
        sent = (source.size,), (0,)
    target, received = call.to_each("recvbuf", recvbuf, len(neighbourhood.sources), vector, writes=True)
    if call.raw and source and target:  # elements of different types: both in bytes
        (source, sent), (target, received) = in_bytes(source, sent), in_bytes(target, received)
    return call.with_neighbours(neighbourhood, source, sent, target, received)


def typed_neighbours(
    rank: int, size: int, sendbuf: Any, recvbuf: Any, neighbourhood: Neighbourhood
) -> Operands:
    """Neighbor_alltoallw: each block of a datatype of its own; what travels are the bytes of their elements."""
    call = NeighbourReader(neighbour_row(False, neighbourhood), "neighbor_alltoallw", rank)
    source, sent = call.typed_to_each("sendbuf", sendbuf, neighbourhood.targets, writes=False)
    target, received = call.typed_to_each("recvbuf", recvbuf, neighbourhood.sources, writes=True)
    return call.with_neighbours(neighbourhood, source, sent, target, received)


#: method -> (rank, size, *arguments of the method, neighbourhood) -> operands
NEIGHBOUR_CALLS: dict[str, Callable[..., Operands]] = {
    "Neighbor_allgather": partial(neighbours, True, False),
    "Neighbor_allgatherv": partial(neighbours, True, True),
    "Neighbor_alltoall": partial(neighbours, False, False),
    "Neighbor_alltoallv": partial(neighbours, False, True),
    "Neighbor_alltoallw": typed_neighbours,
}
