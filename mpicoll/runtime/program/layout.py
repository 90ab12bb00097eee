"""The layout of blocks in memory: from cells of a schedule to addresses and lengths in bytes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from mpicoll.dispatch.limits import LARGEST_MESSAGE
from mpicoll.runtime.arguments.operands import Operands
from mpicoll.runtime.arguments.reader import Blocks
from mpicoll.runtime.program.align import aligned
from mpicoll.runtime.program.local_work import Run
from mpicoll.schedule.ir import Ref, Schedule
from mpicoll.schedule.pack import consecutive
from mpicoll.schedule.partition import offsets, split

#: bytes at whose multiples blocks start, relative to the array
ALIGNED = 16


@dataclass(frozen=True)
class Shape:
    """The facts on which a layout depends besides addresses; equal shapes share compiled programs.

    Attributes:
        free: the vector is cut freely into the schedule's blocks.
        count: elements of the vector, if free.
        in_blocks: (counts, displacements) in the input, in elements, if not free.
        out_blocks: the same for the output.
        rank: this rank.
        size: number of ranks.
        pairs: block ids are source*size+target (alltoall).
        grain: blocks and segments are cut at multiples of so many elements.
    """

    free: bool
    count: int
    in_blocks: Blocks
    out_blocks: Blocks
    rank: int
    size: int
    pairs: bool
    grain: int = 1

    @staticmethod
    def of(operands: Operands, rank: int, size: int) -> Shape:
        """Return the shape of a call."""
        pairs = operands.row.name == "alltoall"
        count = operands.count if operands.row.free else 0
        blocks = operands.in_blocks, operands.out_blocks
        return Shape(operands.row.free, count, *blocks, rank, size, pairs, _grain(operands))

    def place(self, buffer: str, block: int) -> tuple[int, int]:
        """Return (count, displacement) of a block in the input or output, in elements."""
        counts, displs = self.in_blocks if buffer == "input" else self.out_blocks
        if len(counts) == 1:
            return counts[0], displs[0]
        if self.pairs:
            block = block - self.rank * self.size if buffer == "input" else block // self.size
        return counts[block], displs[block]

    def count_of(self, block: int) -> int:
        """Return the elements of a block, wherever it is."""
        many = max(self.in_blocks[0], self.out_blocks[0], key=len)
        return many[0] if self.pairs or len(many) == 1 else many[block]

    def contiguous(self, ref: Ref, segments: int) -> bool:
        """Tell whether the cells lie next to each other in memory, in this order."""
        if not consecutive(ref):
            return False
        if self.free or ref.buffer == "scratch" or len(ref) == 1:
            return True
        if segments > 1:
            return False
        places = [self.place(ref.buffer, cell) for cell in ref.cells]
        return all(d + c == after for (c, d), (_, after) in itertools.pairwise(places))


class Layout:
    """Cells of all segments of one bound call.

    1,024 float32 elements in 4 blocks and 2 segments: block 1 of segment 1 has 128 elements and starts at element 640,
    so its (address, bytes) is (base + 2560, 512).
    """

    def __init__(self, shape: Shape, schedule: Schedule, segments: int, lanes: int, itemsize: int) -> None:
        """Lay out the scratch: lane after lane, cell after cell.

        Args:
            shape: of the call.
            schedule: whose cells they are.
            segments: number of segments of every block.
            lanes: segments in flight.
            itemsize: bytes of an element.
        """
        self.shape, self.schedule, self.segments, self.lanes, self.itemsize = shape, schedule, segments, lanes, itemsize
        self.of_segment = split(shape.count, segments, shape.grain)
        self.start_of = offsets(self.of_segment)
        cells = [self._scratch_counts(s) for s in range(segments)]
        self.scratch_cells = [(counts, offsets(counts)) for counts in cells]
        self.lane_elements = max((sum(counts) for counts in cells), default=0)

    @property
    def scratch_bytes(self) -> int:
        """Bytes of scratch that the call needs."""
        return self.lanes * self.lane_bytes

    @property
    def lane_bytes(self) -> int:
        """Bytes of scratch of a lane, rounded so that lanes are aligned."""
        return aligned(self.lane_elements * self.itemsize)

    def runs(self, ref: Ref, segment: int, bases: dict[str, int]) -> list[Run]:
        """Return the cells' memory as (address, bytes), neighbours merged, empty cells left out."""
        return merge(self.cell(ref.buffer, cell, segment, bases) for cell in ref.cells)

    def cell(self, buffer: str, cell: int, segment: int, bases: dict[str, int]) -> Run:
        """Return (address, bytes) of one cell.

        Args:
            buffer: "input", "output" or "scratch".
            cell: its number.
            segment: of the cell.
            bases: addresses at which the buffers start.
        """
        base = bases[buffer]
        if buffer == "scratch":
            counts, starts = self.scratch_cells[segment]
            lane = (segment % self.lanes) * self.lane_bytes
            return base + lane + starts[cell] * self.itemsize, counts[cell] * self.itemsize
        count, start = self._place(buffer, cell, segment)
        return base + start * self.itemsize, count * self.itemsize

    def _place(self, buffer: str, block: int, segment: int) -> tuple[int, int]:
        if self.shape.free:
            counts = self._blocks(segment)
            return counts[block], self.start_of[segment] + offsets(counts)[block]
        count, start = self.shape.place(buffer, block)
        parts = split(count, self.segments, self.shape.grain)
        return parts[segment], start + offsets(parts)[segment]

    def _scratch_counts(self, segment: int) -> tuple[int, ...]:
        if self.shape.free:
            counts = self._blocks(segment)
            return tuple(counts[b] for b in self.schedule.scratch)
        grain = self.shape.grain
        return tuple(split(self.shape.count_of(b), self.segments, grain)[segment] for b in self.schedule.scratch)

    def _blocks(self, segment: int) -> tuple[int, ...]:
        return split(self.of_segment[segment], self.schedule.blocks, self.shape.grain)


def merge(runs: Iterable[Run]) -> list[Run]:
    """Return the runs with neighbours merged and empty ones left out."""
    merged: list[Run] = []
    for address, nbytes in runs:
        if merged and merged[-1][0] + merged[-1][1] == address:
            merged[-1] = merged[-1][0], merged[-1][1] + nbytes
        elif nbytes:
            merged.append((address, nbytes))
    return merged


def input_runs(layout: Layout, operands: Operands, segments: Iterable[int]) -> list[Run]:
    """Return the (address, bytes) of this rank's contribution, of some segments."""
    shape = layout.shape
    ids = operands.row.before(shape.rank, shape.size, operands.root, layout.schedule.blocks)
    return _runs("input", ids, layout, operands.bases, segments)


def output_runs(layout: Layout, operands: Operands, segments: Iterable[int]) -> list[Run]:
    """Return the (address, bytes) of this rank's results, of some segments."""
    shape = layout.shape
    ids = operands.row.after(shape.rank, shape.size, operands.root, layout.schedule.blocks)
    return _runs("output", ids, layout, operands.bases, segments)


def _runs(buffer: str, ids: Any, layout: Layout, bases: dict[str, int], segments: Iterable[int]) -> list[Run]:
    return merge(sorted(layout.cell(buffer, block, s, bases) for s in segments for block in ids))


def cut(run: Run, most: int = LARGEST_MESSAGE) -> list[Run]:
    """Return a run in pieces of at most so many bytes, in order; an empty one as it is.

    Sender and receiver of a message cut alike, for both know its length:

        cut((1000, 25), most=10) == [(1000, 10), (1010, 10), (1020, 5)]
    """
    address, nbytes = run
    return [(address + at, min(most, nbytes - at)) for at in range(0, nbytes, most)] or [run]


def _grain(operands: Operands) -> int:
    """Return the elements that are never cut apart: an operator's item, or 16 bytes, which kernels move at once."""
    if operands.op and operands.op.width > 1:
        return operands.op.width
    return max(ALIGNED // operands.dtype.itemsize, 1) if operands.dtype.itemsize else 1
