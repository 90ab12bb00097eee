"""Packed calls: many small calls of one method that are made as one, over packed copies of their arrays.

Block b of the one call has block b of each array, one after the other.  An allgather of arrays of 2 and 3 elements on
2 ranks:

    sendbufs  [a a] [b b b]                                       packed input   a a b b b
    recvbufs  [a a A A] [b b b B B B]  (A, B are rank 1's)        packed output  a a b b b A A B B B

All copies to the packed input are one action, on a device one kernel; so are those from the packed output.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from mpicoll.errors import UnsupportedError
from mpicoll.runtime.arguments.arrays import empty_on, pointer_of
from mpicoll.runtime.arguments.operands import Operands
from mpicoll.runtime.cuda.by_device import batch_of
from mpicoll.runtime.cuda.streams import CAPTURED, is_captured
from mpicoll.runtime.program.local_work import Copy
from mpicoll.schedule.partition import offsets

#: methods that can be packed, and whether their inputs and outputs have a block for every rank
PACKABLE = {
    "Allreduce": (False, False),
    "Reduce": (False, False),
    "Scan": (False, False),
    "Exscan": (False, False),
    "Bcast": (False, False),
    "Gather": (False, True),
    "Allgather": (False, True),
    "Scatter": (True, False),
    "Alltoall": (True, True),
    "Reduce_scatter_block": (True, False),
}
#: copies to the packed input, and from the packed output
Copies = tuple[Sequence[Copy], Sequence[Copy]]
#: bytes of an array, and of all arrays, that are packed at most: a longer call gains nothing
MOST_OF_ONE, MOST = 1 << 20, 32 << 20


def can_be_packed(method: str, operands: Operands) -> bool:
    """Tell whether a call can be one of packed calls: a fact that is equal on all ranks."""
    return method in PACKABLE and (operands.nbytes or 0) <= MOST_OF_ONE


class PackedCalls:
    """Calls of one method, operator, root and dtype, on arrays of certain sizes, as one call.

    Attributes:
        stream: address of the stream on which the copies are, 0 on the host.
    """

    def __init__(
        self, call: tuple[str, tuple[Any, ...], Any, Any], calls: Sequence[Operands], rank: int, size: int, stream: int
    ) -> None:
        """Make the packed arrays.

        Args:
            call: the first of the calls, as it was made: method, arguments, algorithm, stream.
            calls: the operands of all.
            rank: this rank.
            size: number of ranks.
            stream: see the attributes; it is current.
        """
        method, arguments, *rest = call
        first = calls[0]
        self.stream, self._device = stream, first.device
        self._sends, self._receives = _roles(first, rank, size)
        counts = tuple(_count(one, size) for one in calls)
        self._starts, self._total, self._itemsize = offsets(counts), sum(counts), first.dtype.itemsize
        rows_in, rows_out = (size if blocks else 1 for blocks in PACKABLE[method])
        shared = method == "Bcast"
        self._input = empty_on(self._device, self._total * rows_in, first.dtype)
        self._output = self._input if shared else empty_on(self._device, self._total * rows_out, first.dtype)
        self._in, self._out = (batch_of(self._device, copies, stream) for copies in self.copies(calls))
        self._fill, self._empty = self._in.action(stream), self._out.action(stream)
        buffers = (self._input,) if shared else (self._input, self._output)
        self._call = (method, (*buffers, *arguments[len(buffers) :]), *rest)

    def copies(self, calls: Sequence[Operands]) -> Copies:
        """Return the copies to the packed input and from the packed output, for calls of the same sizes."""
        into, out = pointer_of(self._input), pointer_of(self._output)
        to = [self._pieces(one, start, "input") for one, start in zip(calls, self._starts, strict=True)]
        back = [self._pieces(one, start, "output") for one, start in zip(calls, self._starts, strict=True)]
        return (
            [(into + at, address, nbytes) for at, address, nbytes in itertools.chain(*to)] if self._sends else [],
            [(address, out + at, nbytes) for at, address, nbytes in itertools.chain(*back)] if self._receives else [],
        )

    def _pieces(self, one: Operands, start: int, side: str) -> list[Copy]:
        """Return (byte in the packed array, address, bytes) of each block of a call's input or output."""
        address, (counts, displs) = _memory(one, side)
        size = self._itemsize
        return [
            ((block * self._total + start) * size, address + displ * size, count * size)
            for block, (count, displ) in enumerate(zip(counts, displs, strict=True))
        ]

    def run(self, copies: Copies, run: Callable[..., None]) -> None:
        """Make the calls.

        Args:
            copies: as `copies` returns them for the calls' arrays.
            run: makes a call.

        Raises:
            UnsupportedError: the stream is being captured: a graph would read tables that are written again.
        """
        if self._device >= 0 and is_captured(self.stream):
            raise UnsupportedError(f"{self._call[0].lower()}: {CAPTURED}, and these calls of a group are packed")
        into, back = copies
        self._in.aim(into, self.stream)
        self._out.aim(back, self.stream)
        self._fill()
        run(*self._call)
        self._empty()


def _roles(one: Operands, rank: int, size: int) -> tuple[bool, bool]:
    """Return whether this rank has an input, and whether it has an output; a broadcast's root has only an input."""
    blocks = one.row.blocks(size) if not one.row.free else 1
    sends = any(True for _ in one.row.before(rank, size, one.root, blocks))
    receives = bool(one.row.after(rank, size, one.root, blocks))
    return sends, receives and not (one.row.shared and rank == one.root)


def _count(one: Operands, size: int) -> int:
    """Return the elements of each block of a call."""
    if one.row.free:
        return one.count
    return next(counts[0] for counts, _ in (one.in_blocks, one.out_blocks) if counts)


def _memory(one: Operands, side: str) -> tuple[int, tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return (address, blocks) of a call's input or output; what a program would hold a copy of is where it is."""
    flat, blocks = (one.input, one.in_blocks) if side == "input" else (one.output, one.out_blocks)
    if one.held == side:
        flat = one.output if side == "input" else one.input
    if flat is None:
        return 0, ((), ())
    return flat.pointer, ((one.count,), (0,)) if one.row.free else blocks
