"""Derived datatypes by strides: their elements as strided views of memory, for arrays on a device.

The column of a (3, 4) array of doubles, `DOUBLE.Create_vector(3, 1, 4)`, is one lattice of 3 elements, which are
32 bytes apart in memory and 8 bytes apart once they are packed:

    Lattice(nbytes=8, memory=0, packed=0, dims=((3, 32, 8),))

A struct, or an indexed type without equal distances, is several of them.  The envelope of the datatype says all that.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from mpi4py import MPI

from mpicoll.runtime.arguments.arrays import Array, pointer_of

#: lattices of a datatype at most: each is a kernel
MOST = 64
#: what elements of so many bytes are copied as, where their places allow it; else byte by byte
COPIED_AS = {width: np.dtype(name) for width, name in ((1, "u1"), (2, "u2"), (4, "u4"), (8, "u8"), (16, "c16"))}


@dataclass(frozen=True)
class Lattice:
    """Elements at equal distances, in each of several dimensions.

    Attributes:
        nbytes: of one element.
        memory: bytes from the start of an item to the first one.
        packed: the same in an item that is packed.
        dims: (elements, bytes from one to the next in memory, the same packed) of each dimension, the outermost first.
    """

    nbytes: int
    memory: int = 0
    packed: int = 0
    dims: tuple[tuple[int, int, int], ...] = ()

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(dim[0] for dim in self.dims)

    def repeated(self, number: int, memory: int, packed: int) -> Lattice:
        """Return so many of them, at distances in bytes."""
        return self if number == 1 else replace(self, dims=((number, memory, packed), *self.dims))

    def shifted(self, memory: int, packed: int) -> Lattice:
        """Return the same so many bytes later."""
        return replace(self, memory=self.memory + memory, packed=self.packed + packed)

    def views(self, memory: Array, start: int, held: Array, first: int) -> tuple[Array, Array]:
        """Return (view of memory, view of packed elements), element for element.

        Args:
            memory: bytes in which an item starts.
            start: at this byte.
            held: bytes in which an item is packed.
            first: at this byte.
        """
        places = start + self.memory, first + self.packed
        dtype, dims = COPIED_AS.get(self.nbytes, COPIED_AS[1]), self.dims
        numbers = pointer_of(memory) + places[0], pointer_of(held) + places[1], *(n for dim in dims for n in dim[1:])
        if self.nbytes not in COPIED_AS or any(number % self.nbytes for number in numbers):
            dtype, dims = COPIED_AS[1], (*dims, (self.nbytes, 1, 1))
        shape, there, here = zip(*dims, strict=True) if dims else ((), (), ())
        return _strided(memory, places[0], dtype, shape, there), _strided(held, places[1], dtype, shape, here)


def _strided(memory: Array, start: int, dtype: np.dtype, shape: tuple[int, ...], strides: tuple[int, ...]) -> Array:
    """Return a strided view of bytes, from its first element on."""
    module: Any = np if isinstance(memory, np.ndarray) else sys.modules["cupy"]
    one = memory[start : start + dtype.itemsize].view(dtype)
    view: Array = module.lib.stride_tricks.as_strided(one, shape, strides)
    return view


#: lattices of a datatype's item in the order of packing, None where it has too many, or no strides
Found = list[Lattice] | None


def lattices_of(kind: MPI.Datatype) -> Found:
    """Return the lattices of a datatype's item in the order of packing, None where it has too many, or no strides.

    Args:
        kind: a predefined datatype without gaps, or one derived from such; no distributed array.
    """
    if kind.is_predefined:
        return [Lattice(kind.size)] if kind.size == kind.true_extent else None
    base, combiner, params = kind.decode()
    bases = params.pop("datatypes", [base])
    try:
        read = _READERS.get(combiner)
        return read(bases, **params) if read else None
    finally:
        for one in bases:
            if not one.is_predefined:
                one.Free()


def _run(kind: MPI.Datatype, number: int) -> Found:
    """Return items that follow each other."""
    parts = lattices_of(kind)
    return parts and [one.repeated(number, kind.extent, kind.size) for one in parts]


def _same(bases: list[MPI.Datatype], **_: Any) -> Found:
    return lattices_of(bases[0])


def _contiguous(bases: list[MPI.Datatype], count: int) -> Found:
    return _run(bases[0], count)


def _hvector(bases: list[MPI.Datatype], count: int, blocklength: int, stride: int) -> Found:
    block, packed = _run(bases[0], blocklength), blocklength * bases[0].size
    return block and [one.repeated(count, stride, packed) for one in block]


def _vector(bases: list[MPI.Datatype], count: int, blocklength: int, stride: int) -> Found:
    return _hvector(bases, count, blocklength, stride * bases[0].extent)


def _struct(bases: list[MPI.Datatype], blocklengths: Sequence[int], displacements: Sequence[int]) -> Found:
    """Return blocks of items, each of a datatype of its own, at places in bytes."""
    found, packed = list[Lattice](), 0
    for kind, length, place in zip(bases, blocklengths, displacements, strict=True):
        block = _run(kind, length)
        if block is None or len(found) + len(block) > MOST:
            return None
        found += [one.shifted(place, packed) for one in block]
        packed += length * kind.size
    return found


def _hindexed(bases: list[MPI.Datatype], blocklengths: Sequence[int], displacements: Sequence[int]) -> Found:
    """Return blocks of items at places in bytes; equal ones at equal distances are a vector."""
    lengths, places, number = set(blocklengths), list(displacements), len(blocklengths)
    steps = {b - a for a, b in itertools.pairwise(places)}
    if len(lengths) == 1 and len(steps) == 1:
        vector = _hvector(bases, number, lengths.pop(), steps.pop())
        return vector and [one.shifted(places[0], 0) for one in vector]
    return _struct(bases * number, blocklengths, places)


def _indexed(bases: list[MPI.Datatype], blocklengths: Sequence[int], displacements: Sequence[int]) -> Found:
    return _hindexed(bases, blocklengths, [bases[0].extent * place for place in displacements])


def _blocks(read: Callable[..., Found]) -> Callable[..., Found]:
    """Return the reader of blocks of one length."""
    return lambda bases, blocklength, displacements: read(bases, [blocklength] * len(displacements), displacements)


def _subarray(
    bases: list[MPI.Datatype], sizes: Sequence[int], subsizes: Sequence[int], starts: Sequence[int], order: int
) -> Found:
    """Return a block of a matrix of items, in the order of memory."""
    rows = list(zip(sizes, subsizes, starts, strict=True))
    parts, stride, packed = lattices_of(bases[0]), bases[0].extent, bases[0].size
    for size, number, start in reversed(rows) if order == MPI.ORDER_C else rows:
        parts = parts and [one.repeated(number, stride, packed).shifted(start * stride, 0) for one in parts]
        stride, packed = stride * size, packed * number
    return parts


_READERS: dict[str, Callable[..., Found]] = {
    "DUP": _same,
    "RESIZED": _same,
    "CONTIGUOUS": _contiguous,
    "VECTOR": _vector,
    "HVECTOR": _hvector,
    "INDEXED": _indexed,
    "HINDEXED": _hindexed,
    "INDEXED_BLOCK": _blocks(_indexed),
    "HINDEXED_BLOCK": _blocks(_hindexed),
    "STRUCT": _struct,
    "SUBARRAY": _subarray,
}
