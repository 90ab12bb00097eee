"""MPI's derived datatypes: their elements packed one after the other, as schedules take them, and put back afterwards.

A column of a (3, 4) array of doubles is one item of the type `DOUBLE.Create_vector(3, 1, 4)`, of 3 elements:

    [a, 1, column]: packed a[0, 0], a[1, 0], a[2, 0]

Other ranks need not know: to them it is 3 doubles.  On the host MPI itself packs and unpacks, so that every type is
served; on a device strided copies do (see `strided.py`).
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from mpi4py import MPI
from mpi4py.util import dtlib

from mpicoll.errors import UnsupportedError
from mpicoll.runtime.arguments.arrays import Array, Flat, device_of, empty_on, flatten, pointer_of
from mpicoll.runtime.arguments.strided import MOST, lattices_of

#: bytes behind address 0 at which items begin that are given by address
BEGIN = 4096

@dataclass(frozen=True, eq=False)
class Typemap:
    """Where a derived datatype has its elements.

    The column above has base float64, 3 elements, an extent of 72 B (from its first element to behind its last) and
    the span (0, 72).

    Attributes:
        kind: the datatype, a duplicate that lives as long as this; the caller may free his own.
        base: dtype of its elements, bytes where they are of several types.
        elements: of one item.
        extent: bytes from one item to the next.
        span: first byte of an item and the one behind its last, from where it starts.
    """

    kind: MPI.Datatype
    base: np.dtype
    elements: int
    extent: int
    span: tuple[int, int]

    @staticmethod
    def of(collective: str, name: str, kind: MPI.Datatype, begin: int = 0) -> Typemap:
        """Return the typemap of a datatype.

        Args:
            collective: the call's name, for messages.
            name: the argument's name, for messages.
            kind: the datatype.
            begin: bytes by which items begin later than they are said to.  mpi4py packs nothing at address 0, where
                items that are given by address may begin; so they begin at BEGIN, and their elements lie before them.

        Raises:
            UnsupportedError: its items have no distance, or go backwards.
        """
        extent = kind.Get_extent()[1]
        if extent <= 0 < kind.Get_size():
            raise UnsupportedError(f"{collective}: {name} has a datatype with an extent of {extent} bytes")
        found = {one.handle: one for one in _predefined(kind)}
        base = predefined_dtype(next(iter(found.values()))) if len(found) == 1 else None
        base = base or np.dtype("u1")
        own = kind.Create_hindexed([1], [-begin]).Commit() if begin else kind.Dup()
        low, length = own.Get_true_extent()
        typemap = Typemap(own, base, kind.Get_size() // base.itemsize, extent, (low, low + length))
        weakref.finalize(typemap, _free, own)
        return typemap

    def items(self, nbytes: int) -> int:
        """Return how many items fit into so many bytes; none of those that have no elements."""
        low, end = self.span
        if not self.elements:
            return 0
        return max((nbytes - end) // self.extent + 1, 0) if low >= 0 and end > 0 else nbytes // self.extent

    @property
    def nbytes(self) -> int:
        """Bytes of the elements of one item."""
        return self.elements * self.base.itemsize


def predefined_dtype(kind: MPI.Datatype) -> np.dtype | None:
    """Return the dtype of a predefined datatype, None where NumPy has none."""
    if kind in (MPI.BYTE, MPI.PACKED):
        return np.dtype("u1")
    try:
        return np.dtype(dtlib.to_numpy_dtype(kind))
    except (ValueError, TypeError):
        return None


class Piece(NamedTuple):
    """Items that lie one after the other, the first one from some byte on."""

    typemap: Typemap
    items: int
    start: int

    def fits(self, nbytes: int) -> bool:
        """Tell whether they are within so many bytes."""
        low, end = self.typemap.span
        last = self.start + (self.items - 1) * self.typemap.extent
        return not self.has_elements or (self.start + low >= 0 and last + end <= nbytes)

    @property
    def has_elements(self) -> bool:
        """There is something to pack."""
        return bool(self.items and self.typemap.elements)


def packed(
    collective: str, name: str, memory: Array | None, pieces: list[Piece], dtype: np.dtype, *, writes: bool
) -> Flat:
    """Return the elements of pieces, one after the other, in memory of their own.

    Args:
        collective: the call's name, for messages.
        name: the argument's name, for messages.
        memory: all bytes of the caller's array; None: pieces start at addresses.
        pieces: of the array.
        dtype: of the elements.
        writes: the call writes the elements, so that they are put back.

    Raises:
        UnsupportedError: the memory is on a device, and a datatype has no strides.
        ValueError: the items are not within the memory.
    """
    address, nbytes = 0, sum(piece.items * piece.typemap.nbytes for piece in pieces)
    if memory is not None:
        for number, piece in enumerate(pieces):
            if not piece.fits(memory.nbytes):
                which = f"{piece.items} items from byte {piece.start} on, block {number}"
                raise ValueError(f"{collective}: {name} has {memory.nbytes} bytes, too few for {which}")
        address = flatten(collective, name, memory, writes=writes).pointer
    if not isinstance(memory, np.ndarray | None):
        there = empty_on(0, nbytes // dtype.itemsize, dtype)
        return _packed_there(f"{collective}: {name}", memory, pieces, there, writes=writes)
    held = np.empty(nbytes // dtype.itemsize, dtype)
    flat = Flat(held, pointer_of(held), -1)
    flat.before.append(lambda: _pack(address, pieces, held, memory))
    if writes:
        flat.after.append(lambda: _unpack(address, pieces, held, memory))
    return flat


def _packed_there(what: str, memory: Array, pieces: list[Piece], held: Array, *, writes: bool) -> Flat:
    """Return the elements of pieces of memory on a device, in memory there; `what` they are, for messages."""
    views, position, bytes_held = list[tuple[Array, Array]](), 0, held.view("u1")
    for piece in pieces:
        kind = piece.typemap
        lattices = lattices_of(kind.kind) if piece.has_elements else []
        if lattices is None:
            unlike = f"is on a device and has a datatype without strides, or of more than {MOST} parts"
            raise UnsupportedError(f"{what} {unlike}; pass a strided view, or an array for each")
        rows = (one.repeated(piece.items, kind.extent, kind.nbytes) for one in lattices)
        views += [row.views(memory, piece.start, bytes_held, position) for row in rows if row.elements]
        position += piece.items * kind.nbytes
    flat = Flat(held, pointer_of(held), device_of(memory))
    flat.before += [partial(there.__setitem__, ..., here) for here, there in views]
    if writes:
        flat.after += [partial(here.__setitem__, ..., there) for here, there in views]
    return flat


def _pack(address: int, pieces: list[Piece], held: np.ndarray, keep: object) -> None:
    """Pack the pieces of memory at an address, which is kept."""
    position, bytes_held = 0, held.view("u1")
    for piece in pieces:
        if piece.has_elements:
            position = piece.typemap.kind.Pack(_memory(address, piece), bytes_held, position, MPI.COMM_SELF)


def _unpack(address: int, pieces: list[Piece], held: np.ndarray, keep: object) -> None:
    """Unpack the pieces of memory at an address, which is kept."""
    position, bytes_held = 0, held.view("u1")
    for piece in pieces:
        if piece.has_elements:
            position = piece.typemap.kind.Unpack(bytes_held, position, _memory(address, piece), MPI.COMM_SELF)


def _memory(address: int, piece: Piece) -> MPI.buffer:
    """Return the memory of a piece by its extent, in which MPI counts items; elements may be before and behind it."""
    return MPI.buffer.fromaddress(address + piece.start, piece.items * piece.typemap.extent)


def _predefined(kind: MPI.Datatype) -> Iterable[MPI.Datatype]:
    """Yield the predefined datatypes of which a datatype is made."""
    if kind.is_predefined:
        yield kind
        return
    for part in kind.Get_contents()[-1]:
        yield from _predefined(part)
        if not part.is_predefined:
            part.Free()


def _free(kind: MPI.Datatype) -> None:
    if not MPI.Is_finalized():
        kind.Free()
