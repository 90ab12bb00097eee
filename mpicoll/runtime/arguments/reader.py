"""Arguments read one by one: a root, a buffer that is one block, a buffer that has one for every rank."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Container
from dataclasses import replace
from typing import Any

import numpy as np

from mpicoll.runtime.arguments.arrays import Flat, flatten
from mpicoll.runtime.arguments.bufspec import Spec, integers, is_in_place, read_spec, read_types
from mpicoll.runtime.arguments.typemap import packed
from mpicoll.schedule.collectives import COLLECTIVES
from mpicoll.schedule.partition import offsets

#: counts and displacements of blocks, by block number on this rank
Blocks = tuple[tuple[int, ...], tuple[int, ...]]


def read_root(method: str, root: Any, size: int) -> int:
    """Return a root as a rank; raises TypeError or ValueError for what is none."""
    try:
        number = operator.index(root)
    except TypeError:
        raise TypeError(f"{method}: root is {root!r}, not an integer") from None
    if not 0 <= number < size:
        raise ValueError(f"{method}: root {number} is out of range for {size} ranks")
    return number


def dense(counts: tuple[int, ...]) -> Blocks:
    """Return blocks that lie one after the other."""
    return counts, offsets(counts)


def scaled(blocks: Blocks, unit: int) -> Blocks:
    """Return the counts and displacements of blocks in smaller elements, of which `unit` are one of before."""
    counts, displs = blocks
    return tuple(unit * count for count in counts), tuple(unit * displ for displ in displs)


def in_bytes(flat: Flat, blocks: Blocks) -> tuple[Flat, Blocks]:
    """Return an array, and the counts and displacements of its blocks, in bytes."""
    return flat.in_bytes(), scaled(blocks, flat.array.dtype.itemsize)


def _end(blocks: Blocks) -> int:
    """Return the number of the element behind the last one of blocks."""
    return max((start + count for count, start in zip(*blocks, strict=True) if count), default=0)


class Reader:
    """Reads the arguments of one call.

    Blocks are (counts, displacements) in elements: counts (2, 1, 3), one after the other, are ((2, 1, 3), (0, 2, 3)).

    Attributes:
        row: the collective.
        method: the call's name, for messages.
        rank: this rank.
        size: number of ranks.
        root: the root, 0 where there is none.
        raw: the type of some buffer for which no operator is defined, such as MPI.BYTE; "" for none.
        parts: for whom a buffer has blocks, for messages.
    """

    parts = "ranks"

    def __init__(self, name: str, method: str, rank: int, size: int, root: Any = 0) -> None:
        self.row, self.method, self.rank, self.size = COLLECTIVES[name], method, rank, size
        self.root, self.raw = read_root(method, root, size), ""

    def one(self, name: str, value: Any, *, writes: bool = False) -> Flat:
        """Read a buffer that is one block: its count of elements, from its displacement on."""
        spec = self._spec(name, value, writes)
        given = {"counts": spec.counts, "displacements": spec.displs}
        for what, numbers in given.items():
            if numbers is not None and len(numbers) != 1:
                raise ValueError(f"{self.method}: {name} is one block, but {len(numbers)} {what} are given")
        start = spec.displs[0] if spec.displs else spec.displ or 0
        return self._part(spec, name, start, spec.counts[0] if spec.counts else spec.count, writes)

    def equal(self, name: str, value: Any, *, writes: bool = False) -> tuple[Flat, Blocks]:
        """Return (array, blocks) of a buffer that has blocks of equal size, one after the other."""
        spec = self._spec(name, value, writes)
        if spec.counts or spec.displs:
            raise ValueError(f"{self.method}: {name} has counts of its own; use {self.row.methods[-1]}")
        count = None if spec.count is None else spec.count * self.size
        flat = self._part(spec, name, spec.displ or 0, count, writes)
        each = self._each(flat.size, name, f"; use {self.row.methods[-1]}")
        return flat, dense((each,) * self.size)

    def various(self, name: str, value: Any, *, writes: bool = False) -> tuple[Flat, Blocks]:
        """Return (array, blocks) of a buffer that has a block for every rank, of any size and anywhere."""
        spec = self._spec(name, value, writes)
        counts, displs = spec.counts, spec.displs
        if counts is None:
            if displs is not None and spec.count is None:
                raise ValueError(f"{self.method}: {name} has displacements but no counts")
            counts = (self._each(spec.items, name, "") if spec.count is None else spec.count,) * self.size
        if displs is None:
            displs = offsets(counts) if spec.displ is None else tuple(r * spec.displ for r in range(len(counts)))
        blocks = self._fitting(spec.most, name, (counts, displs))
        if writes and (spec.displs or spec.displ is not None):
            self._disjoint(name, blocks)
        if spec.typemap is None:
            return flatten(self.method, name, spec.reaching(_end(blocks)), writes=writes), blocks
        flat = spec.packed(self.method, name, list(zip(*blocks, strict=True)), writes=writes)
        return flat, dense(tuple(count * spec.typemap.elements for count in counts))

    def of_types(
        self, name: str, value: Any, *, writes: bool = False, nobody: Container[int] = ()
    ) -> tuple[Flat, Blocks]:
        """Return (bytes, blocks) of a buffer that has a block for every rank, each of a datatype of its own.

        Args:
            name: the argument's name, for messages.
            value: as in the call.
            writes: the call writes into the buffer.
            nobody: numbers of blocks that do not travel.
        """
        memory, pieces = read_types(self.method, name, value, self.size, self.parts, nobody)
        flat = packed(self.method, name, memory, pieces, np.dtype("u1"), writes=writes)
        return flat, dense(tuple(piece.items * piece.typemap.nbytes for piece in pieces))

    def blocks(self, name: str, value: Any, vector: bool, *, writes: bool = False) -> tuple[Flat, Blocks]:
        """Return (array, blocks) of a buffer that has a block for every rank.

        Args:
            name: the argument's name, for messages.
            value: as in the call.
            vector: blocks may be of any size and anywhere, as in the v-variants.
            writes: the call writes into the buffer.
        """
        return (self.various if vector else self.equal)(name, value, writes=writes)

    def counted(self, name: str, value: Any, counts: Any, *, writes: bool = False) -> tuple[Flat, Blocks]:
        """Return (array, blocks) of a buffer whose counts are an argument of their own.

        Args:
            name: the argument's name, for messages.
            value: as in the call.
            counts: elements of each block; None for equal blocks.
            writes: the call writes into the buffer.
        """
        if counts is None:
            return self.equal(name, value, writes=writes)
        flat = self.one(name, value, writes=writes)
        numbers = integers(self.method, "recvcounts", counts)
        if len(numbers) == self.size and sum(numbers) != flat.size:
            raise ValueError(f"{self.method}: {name} has {flat.size} elements, recvcounts sum to {sum(numbers)}")
        return flat, self._fitting(flat.size, name, dense(numbers))

    def _spec(self, name: str, value: Any, writes: bool) -> Spec:
        """Return one buffer argument, taken apart."""
        if is_in_place(value):
            raise ValueError(f"{self.method}: {name} cannot be MPI.IN_PLACE")
        if writes and isinstance(value, np.generic):
            raise ValueError(f"{self.method}: {name} is a scalar, which cannot receive")
        spec = read_spec(self.method, name, value)
        if spec.array is None:
            if spec.counts is None or any(spec.counts):
                raise ValueError(f"{self.method}: {name} is None, but significant on rank {self.rank}")
            spec = replace(spec, array=np.empty(0, "u1"))
        self.raw = self.raw or spec.raw
        return spec

    def _part(self, spec: Spec, name: str, start: int, count: int | None, writes: bool) -> Flat:
        """Return `count` elements from `start` on; None: all that are left.

        Args:
            spec: the argument.
            name: its name, for messages.
            start: first element, or item of a derived datatype.
            count: elements or items, or None.
            writes: the call writes them.
        """
        number = max(spec.items - start, 0) if count is None else count
        if spec.typemap is not None:
            return spec.packed(self.method, name, [(number, start)], writes=writes)
        flat = flatten(self.method, name, spec.reaching(start + number), writes=writes)
        if start + number > flat.size:
            behind = f" from {start} on" if start else ""
            raise ValueError(f"{self.method}: {name} has {flat.size} elements, count is {number}{behind}")
        return flat.part(start, number)

    def refuse_in_place(self, name: str, value: Any) -> None:
        """Refuse MPI.IN_PLACE where only the root may say it."""
        if is_in_place(value):
            raise ValueError(
                f"{self.method}: {name} is MPI.IN_PLACE on rank {self.rank}; only root {self.root} may say so"
            )

    def _each(self, elements: int, name: str, hint: str) -> int:
        """Return the elements of each of equal blocks."""
        each, rest = divmod(elements, self.size) if self.size else (0, 0)  # a rank without neighbours
        if rest:
            what = f"{name} has {elements} elements"
            raise ValueError(f"{self.method}: {what}, not a multiple of {self.size} {self.parts}{hint}")
        return each

    def _fitting(self, elements: int, name: str, blocks: Blocks) -> Blocks:
        counts, displs = blocks
        if len(counts) != self.size or len(displs) != self.size:
            raise ValueError(
                f"{self.method}: {name} has {len(counts)} counts and {len(displs)} displacements "
                f"for {self.size} {self.parts}"
            )
        end = _end(blocks)
        if min(counts, default=0) < 0 or end > elements:
            raise ValueError(f"{self.method}: {name} has {elements} elements, its blocks need {end}")
        return blocks

    def _disjoint(self, name: str, blocks: Blocks) -> None:
        """Refuse blocks that overlap: what would be received last is chance."""
        held = sorted(
            (start, start + count, rank) for rank, (count, start) in enumerate(zip(*blocks, strict=True)) if count
        )
        for (_, end, first), (start, _, second) in itertools.pairwise(held):
            if start < end:
                raise ValueError(f"{self.method}: blocks {first} and {second} of {name} overlap")
