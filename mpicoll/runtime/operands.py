"""A call's arguments, understood: read, compared, and turned into operands.

`runtime/calls.py` says what each method's arguments mean; this is what it says it with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mpicoll.runtime.arrays import Flat, flatten, overlap
from mpicoll.runtime.ops import Operator, operator
from mpicoll.runtime.spec import Spec, integers, is_in_place, read_spec
from mpicoll.schedule.collectives import COLLECTIVES, Collective
from mpicoll.schedule.partition import offsets

#: counts and displacements of blocks, by block number on this rank
Blocks = tuple[tuple[int, ...], tuple[int, ...]]


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

    @property
    def bases(self) -> dict[str, int]:
        """Where the input and the output start, 0 for none."""
        flats = (("input", self.input), ("output", self.output))
        return {name: flat.pointer if flat else 0 for name, flat in flats}


def dense(counts: tuple[int, ...]) -> Blocks:
    """Return blocks that lie one after the other."""
    return counts, offsets(counts)


class Call:
    """One call being understood: reads arguments, compares them, and makes the operands."""

    def __init__(self, name: str, method: str, rank: int, size: int, root: int = 0) -> None:
        self.row, self.method, self.rank, self.size = COLLECTIVES[name], method, rank, size
        if not 0 <= root < size:
            raise ValueError(f"{method}: root {root} is out of range for {size} ranks")
        self.root = root
        self.specs: dict[int, Spec] = {}

    def argument(self, name: str, value: Any, *, writes: bool = False) -> Flat:
        """Read one buffer argument."""
        if is_in_place(value):
            raise ValueError(f"{self.method}: {name} cannot be MPI.IN_PLACE")
        if writes and isinstance(value, np.generic):
            raise ValueError(f"{self.method}: {name} is a scalar, which cannot receive")
        spec = read_spec(self.method, name, value)
        if spec.array is None:
            if spec.counts is None or any(spec.counts):
                raise ValueError(f"{self.method}: {name} is None, but significant on rank {self.rank}")
            spec = Spec(np.empty(0, "u1"), spec.count, spec.counts, spec.displs)
        flat = flatten(self.method, name, spec.array, writes=writes)
        self.specs[id(flat)] = spec
        return flat

    def refuse_in_place(self, name: str, value: Any) -> None:
        """Refuse MPI.IN_PLACE where only the root may say it."""
        if is_in_place(value):
            raise ValueError(
                f"{self.method}: {name} is MPI.IN_PLACE on rank {self.rank}; only root {self.root} may say so"
            )

    def plain(self, flat: Flat, name: str) -> int:
        """Return the number of elements of a buffer that is one block."""
        spec = self.specs[id(flat)]
        if spec.counts is not None and len(spec.counts) != 1:
            raise ValueError(f"{self.method}: {name} is one block, but {len(spec.counts)} counts are given")
        count = spec.counts[0] if spec.counts else spec.count
        if count is None:
            return flat.size
        if not 0 <= count <= flat.size:
            raise ValueError(f"{self.method}: {name} has {flat.size} elements, count is {count}")
        return count

    def blocks(self, flat: Flat, name: str, vector: bool) -> Blocks:
        """Return the blocks of a buffer that has one for every rank."""
        spec = self.specs[id(flat)]
        counts, displs = spec.counts, spec.displs
        if (counts or displs) and not vector:
            raise ValueError(f"{self.method}: {name} has counts of its own; use {self.row.methods[-1]}")
        if counts is None:
            if displs is not None and spec.count is None:
                raise ValueError(f"{self.method}: {name} has displacements but no counts")
            counts = (self._each(flat, name, spec, vector),) * self.size
        if displs is None:
            displs = offsets(counts) if spec.stride is None else tuple(r * spec.stride for r in range(len(counts)))
        return self._fitting(flat, name, (counts, displs))

    def _each(self, flat: Flat, name: str, spec: Spec, vector: bool) -> int:
        """Return the elements of each of equal blocks."""
        if spec.count is not None:
            return spec.count
        each, rest = divmod(flat.size, self.size)
        if rest:
            hint = "" if vector else f"; use {self.row.methods[-1]}"
            raise ValueError(
                f"{self.method}: {name} has {flat.size} elements, not a multiple of {self.size} ranks{hint}"
            )
        return each

    def given_blocks(self, flat: Flat, name: str, counts: Any) -> Blocks:
        """Return blocks whose counts are an argument of their own; None: equal ones."""
        if counts is None:
            return self.blocks(flat, name, vector=False)
        whole = self.plain(flat, name)
        numbers = integers(self.method, "recvcounts", counts)
        if len(numbers) == self.size and sum(numbers) != whole:
            raise ValueError(f"{self.method}: {name} has {whole} elements, recvcounts sum to {sum(numbers)}")
        return self._fitting(flat, name, dense(numbers))

    def _fitting(self, flat: Flat, name: str, blocks: Blocks) -> Blocks:
        counts, displs = blocks
        if len(counts) != self.size or len(displs) != self.size:
            raise ValueError(
                f"{self.method}: {name} has {len(counts)} counts and {len(displs)} displacements for {self.size} ranks"
            )
        end = max((d + c for c, d in zip(counts, displs, strict=True) if c), default=0)
        if min(counts) < 0 or end > flat.size:
            raise ValueError(f"{self.method}: {name} has {flat.size} elements, its blocks need {end}")
        return blocks

    def same(self, name: str, count: int, other: str, expected: int) -> None:
        """Compare two counts."""
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
        """The input is this rank's block of the output."""
        own = (blocks[0][self.rank],), (blocks[1][self.rank],)
        return self.operands(target, target, in_blocks=own, out_blocks=blocks, nbytes=nbytes, aliased=True)

    def into_blocks(self, source: Flat, target: Flat, blocks: Blocks, nbytes: int | None) -> Operands:
        """The input is one block, the output has all of them."""
        count = self.plain(source, "sendbuf")
        self._own_count("sendbuf", count, "recvbuf", blocks)
        aliased = self._is_own_block(source, target, blocks)
        if not aliased:
            self.apart(source, target, "MPI.IN_PLACE or recvbuf's own block")
        return self.operands(
            source, target, in_blocks=((count,), (0,)), out_blocks=blocks, nbytes=nbytes, aliased=aliased
        )

    def from_blocks(self, source: Flat, target: Flat, blocks: Blocks, nbytes: int | None, op: Any = None) -> Operands:
        """The input has all blocks, the output is one of them."""
        count = self.plain(target, "recvbuf")
        self._own_count("recvbuf", count, "sendbuf", blocks)
        aliased = self._is_own_block(target, source, blocks)
        if not aliased:
            self.apart(source, target, "MPI.IN_PLACE or sendbuf[rank*n:(rank+1)*n]")
        return self.operands(
            source, target, in_blocks=blocks, out_blocks=((count,), (0,)), nbytes=nbytes, op=op, aliased=aliased
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
    ) -> Operands:
        """Make the operands after the checks that concern both buffers; nbytes counts elements."""
        first = source or target
        assert first is not None
        if source and target:
            self._alike(source, target)
        dtype = first.array.dtype
        found = operator(self.method, op) if self.row.reducing else None
        if found:
            if any(spec.raw for spec in self.specs.values()):
                raise TypeError(f"{self.method}: op {found.name} is not defined for MPI.BYTE")
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
        )

    def _alike(self, source: Flat, target: Flat) -> None:
        if source.array.dtype != target.array.dtype:
            raise TypeError(f"{self.method}: sendbuf is {source.array.dtype}, recvbuf is {target.array.dtype}")
        if source.device != target.device:
            places = ["on the host" if f.device < 0 else f"on device {f.device}" for f in (source, target)]
            raise ValueError(f"{self.method}: sendbuf is {places[0]}, recvbuf is {places[1]}")
