"""A call's arguments, understood: compared, and turned into operands.

`methods.py` says what each method's arguments mean, with what is here and in `reader.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mpicoll.errors import UnsupportedError
from mpicoll.runtime.arguments.arrays import Extent, Flat, are_alike, overlap
from mpicoll.runtime.arguments.operators import Operator, of_width, operator_of
from mpicoll.runtime.arguments.reader import Blocks, Reader, in_bytes
from mpicoll.schedule.collectives import Collective
from mpicoll.schedule.neighbourhood import Neighbourhood

#: bytes of a copy that a remembered program has for itself at most; a larger one is made for each call
MOST_HELD = 1 << 20


@dataclass
class Operands:
    """A call's arguments, understood.

    Attributes:
        row: the collective.
        method: the call's name, for messages.
        dtype: of all arrays.
        device: device number, -1 on the host.
        root: the root, 0 where there is none.
        op: the operator, None where there is none.
        input: what this rank contributes, None if nothing.
        output: what this rank receives, None if nothing.
        count: elements of the vector where it may be cut freely, else of the blocks together.
        in_blocks: (counts, displacements) of the blocks in the input.
        out_blocks: the same for the output.
        aliased: input and output blocks with the same id are the same memory.
        nbytes: message size (see dispatch.plan), None where not all ranks know it.
        counts_known: all ranks know all ranks' counts.
        before: what to do before the messages (packing), in order.
        after: what to do after them (unpacking), in order.
        moved: the arrays are copies of the caller's, which are on another device.
        held: "input" or "output" where that is no memory of the caller's, but a copy that the program has: of the
            output before it, or put to the front of the input after it. "" for none.
        neighbours: of this rank, in a neighbour collective; None in others.
    """

    row: Collective
    method: str
    dtype: np.dtype
    device: int = -1
    root: int = 0
    op: Operator | None = None
    input: Flat | None = None
    output: Flat | None = None
    count: int = 0
    in_blocks: Blocks = ((), ())
    out_blocks: Blocks = ((), ())
    aliased: bool = False
    nbytes: int | None = 0
    counts_known: bool = True
    before: list[Callable[[], None]] = field(default_factory=list)
    after: list[Callable[[], None]] = field(default_factory=list)
    moved: bool = False
    held: str = ""
    neighbours: Neighbourhood | None = None

    def without_arrays(self) -> Operands:
        """Return these operands without their arrays."""
        return replace(self, input=None, output=None, before=[], after=[])

    def over(self, source: Flat | None, target: Flat | None) -> Operands:
        """Return the operands of the same call over other memory, in less time than `replace` takes."""
        made = object.__new__(Operands)
        made.__dict__.update(self.__dict__, input=source, output=target)
        return made

    def without_copy(self) -> Operands:
        """Return the operands of a call that works in the caller's memory alone, where it has a copy otherwise."""
        source, target = self.input, self.output
        assert source is not None
        assert target is not None
        if self.held == "input":
            return replace(self, held="", input=Flat(source.array, target.pointer, source.device))
        return replace(self, held="", output=Flat(target.array, source.pointer, target.device))

    @property
    def bases(self) -> dict[str, int]:
        """Addresses at which the input and the output start, 0 for none."""
        flats = (("input", self.input), ("output", self.output))
        return {name: flat.pointer if flat else 0 for name, flat in flats}


def is_stream(given: Any) -> bool:
    """Tell whether a caller gave a CUDA stream: anything that has its address in `ptr` or `cuda_stream`."""
    return hasattr(given, "ptr") or hasattr(given, "cuda_stream")


def check_options(operands: Operands, algorithm: Any, stream: Any) -> None:
    """Raise an error that names the call if `algorithm` or `stream` is nothing that it can take."""
    method = operands.method
    if algorithm is not None and not isinstance(algorithm, str):
        raise TypeError(f"{method}: algorithm is {algorithm!r}, not a name or None")
    if stream is None:
        return
    if operands.device < 0:
        raise ValueError(f"{method}: stream is given, but the arrays are on the host")
    if not is_stream(stream):
        raise TypeError(f"{method}: stream is {stream!r}, not a CUDA stream")


class CallReader(Reader):
    """One call being understood: compares the arguments that it has read, and makes the operands."""

    def same(self, name: str, count: int, other: str, expected: int) -> None:
        """Compare two counts.

        Args:
            name: one argument.
            count: its elements.
            other: another argument.
            expected: its elements.
        """
        if count != expected:
            raise ValueError(f"{self.method}: {name} has {count} elements, {other} has {expected}")

    def same_start(self, a: Flat, b: Flat) -> bool:
        """Tell whether two buffers are the same memory."""
        return a.size > 0 and a.device == b.device and a.pointer == b.pointer

    def apart(self, a: Flat, b: Flat, instead: str) -> None:
        """Refuse buffers that overlap."""
        if overlap(a, b):
            raise ValueError(f"{self.method}: recvbuf overlaps sendbuf; use {instead}")

    def own_block_of(self, target: Flat, blocks: Blocks, nbytes: int | None) -> Operands:
        """Return the operands of a call whose input is this rank's block of the output."""
        own = (blocks[0][self.rank],), (blocks[1][self.rank],)
        return self.operands(target, target, in_blocks=own, out_blocks=blocks, nbytes=nbytes, aliased=True)

    def into_blocks(self, source: Flat, target: Flat, blocks: Blocks, nbytes: int | None) -> Operands:
        """Return the operands of a call whose input is one block, and whose output has all blocks.

        Args:
            source: the input.
            target: the output.
            blocks: (counts, displacements) in the output, in elements.
            nbytes: elements of the vector, None where not all ranks know them.
        """
        source, target, blocks, nbytes = self._in_one_unit(source, target, blocks, nbytes)
        count = source.size
        self._own_count("sendbuf", count, "recvbuf", blocks)
        aliased = self._is_own_block(source, target, blocks)
        if not aliased:
            self.apart(source, target, "MPI.IN_PLACE or recvbuf's own block")
        return self.operands(
            source, target, in_blocks=((count,), (0,)), out_blocks=blocks, nbytes=nbytes, aliased=aliased
        )

    def from_blocks(self, source: Flat, target: Flat, blocks: Blocks, nbytes: int | None, op: Any = None) -> Operands:
        """Return the operands of a call whose input has all blocks, and whose output is one block.

        Args:
            source: the input.
            target: the output.
            blocks: (counts, displacements) in the input, in elements.
            nbytes: elements of the vector, None where not all ranks know them.
            op: as in the call.
        """
        target, source, blocks, nbytes = self._in_one_unit(target, source, blocks, nbytes)
        count = target.size
        self._own_count("recvbuf", count, "sendbuf", blocks)
        aliased = self._is_own_block(target, source, blocks)
        if not aliased:
            self.apart(source, target, "MPI.IN_PLACE or sendbuf[rank*n:(rank+1)*n]")
        return self.operands(
            source, target, in_blocks=blocks, out_blocks=((count,), (0,)), nbytes=nbytes, op=op, aliased=aliased
        )

    def _in_one_unit(
        self, one: Flat, many: Flat, blocks: Blocks, nbytes: int | None
    ) -> tuple[Flat, Flat, Blocks, int | None]:
        """Return the arguments in bytes where elements are only moved, and have another size here than there.

        Args:
            one: has this rank's block.
            many: has all blocks.
            blocks: (counts, displacements) of these, in elements.
            nbytes: elements of the vector, None where not all ranks know them.
        """
        unit, size = one.array.dtype.itemsize, many.array.dtype.itemsize
        if self.row.reducing or unit == size or one.size * unit != blocks[0][self.rank] * size:
            return one, many, blocks, nbytes
        return one.in_bytes(), *in_bytes(many, blocks), nbytes and nbytes * size

    def same_own(self, sent: Blocks, received: Blocks, what: str = "elements") -> None:
        """Refuse a block of this rank for itself that is not as long as what it expects."""
        there, here = received[0][self.rank], sent[0][self.rank]
        if there != here:
            raise ValueError(
                f"{self.method}: recvbuf expects {there} {what} from this rank itself, sendbuf has {here} for it"
            )

    def _own_count(self, name: str, count: int, other: str, blocks: Blocks) -> None:
        expected = blocks[0][self.rank]
        if count != expected:
            raise ValueError(f"{self.method}: {name} has {count} elements, {other}'s block {self.rank} has {expected}")

    def _is_own_block(self, one: Flat, many: Flat, blocks: Blocks) -> bool:
        start = many.pointer + blocks[1][self.rank] * many.array.dtype.itemsize
        return one.size > 0 and one.device == many.device and one.pointer == start

    def operands(
        self,
        source: Flat | None,
        target: Flat | None,
        *,
        nbytes: int | None,
        count: int | None = None,
        in_blocks: Blocks = ((), ()),
        out_blocks: Blocks = ((), ()),
        op: Any = None,
        aliased: bool = False,
        held: str = "",
    ) -> Operands:
        """Return the operands, after the checks that concern both buffers.

        Args:
            source: the input, None if there is none.
            target: the output, None if there is none.
            nbytes: elements of the vector, None where not all ranks know them.
            count: elements of a vector that may be cut freely, else None.
            in_blocks: (counts, displacements) in the input, in elements.
            out_blocks: the same for the output.
            op: as in the call.
            aliased: input and output are the same memory.
            held: as in `Operands`.
        """
        first = source or target
        assert first is not None
        if source and target:
            self._alike(source, target)
        dtype = first.array.dtype
        found = operator_of(self.method, op) if self.row.reducing else None
        if found:
            if self.raw and not (found.users and self.raw == "MPI.BYTE"):
                raise TypeError(f"{self.method}: op {found.name} is not defined for {self.raw}")
            if found.host_only and first.device >= 0:
                raise UnsupportedError(f"{self.method}: op {found.name} takes arrays on the host only; use mpicoll.Op")
            if found.uncut and count:
                found = of_width(found, count)
            found.check(self.method, dtype, (count,) if count is not None else (*in_blocks[0], *out_blocks[0]))
        flats = [source] if source is target else [source, target]
        return Operands(
            self.row,
            self.method,
            dtype,
            first.device,
            self.root,
            found,
            source,
            target,
            count if count is not None else sum((out_blocks if len(out_blocks[0]) > 1 else in_blocks)[0]),
            in_blocks,
            out_blocks,
            aliased,
            None if nbytes is None else nbytes * dtype.itemsize,
            counts_known=nbytes is not None,
            before=[f for flat in flats if flat for f in flat.before],
            after=[f for flat in flats if flat for f in flat.after],
            held=held,
        )

    @staticmethod
    def copy_of(flat: Flat, count: int) -> Flat | None:
        """Return memory for a copy of so many elements that a program has for itself; None for nothing or too much."""
        extent = Extent(flat.array.dtype, count)
        return Flat(extent, 0, flat.device) if 0 < extent.nbytes <= MOST_HELD else None

    def _alike(self, source: Flat, target: Flat) -> None:
        """Refuse buffers of different elements; what is only moved may have another type of the same size."""
        one, other = source.array.dtype, target.array.dtype
        if not (are_alike(one, other) or (one.itemsize == other.itemsize and not self.row.reducing)):
            raise TypeError(f"{self.method}: sendbuf is {one}, recvbuf is {other}")
        if source.device != target.device:
            places = ["on the host" if f.device < 0 else f"on device {f.device}" for f in (source, target)]
            raise ValueError(f"{self.method}: sendbuf is {places[0]}, recvbuf is {places[1]}")
