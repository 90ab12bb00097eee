"""MPI's derived datatypes: their elements packed one after the other, as schedules take them, and put back afterwards.

A column of a (3, 4) array of doubles is one item of the type `DOUBLE.Create_vector(3, 1, 4)`, of 3 elements:

    [a, 1, column]: packed a[0, 0], a[1, 0], a[2, 0]

Other ranks need not know: to them it is 3 doubles.  MPI itself packs and unpacks, so that every type is served.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from mpi4py import MPI
from mpi4py.util import dtlib

from mpicoll.errors import UnsupportedError
from mpicoll.runtime.arguments.arrays import Array, Flat, flatten, pointer_of

#: (number of items, first item) of each block
Items = list[tuple[int, int]]


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
    def of(collective: str, name: str, kind: MPI.Datatype) -> Typemap:
        """Return the typemap of a datatype.

        Args:
            collective: the call's name, for messages.
            name: the argument's name, for messages.
            kind: the datatype.

        Raises:
            UnsupportedError: its items have no distance, or go backwards.
        """
        low, length = kind.Get_true_extent()
        extent = kind.Get_extent()[1]
        if extent <= 0:
            raise UnsupportedError(f"{collective}: {name} has a datatype with an extent of {extent} bytes")
        found = {one.handle: one for one in _predefined(kind)}
        base = predefined_dtype(next(iter(found.values()))) if len(found) == 1 else None
        base = base or np.dtype("u1")
        own = kind.Dup()
        typemap = Typemap(own, base, kind.Get_size() // base.itemsize, extent, (low, low + length))
        weakref.finalize(typemap, _free, own)
        return typemap

    def items(self, nbytes: int) -> int:
        """Return how many items fit into so many bytes."""
        low, end = self.span
        return max((nbytes - end) // self.extent + 1, 0) if low >= 0 and end > 0 else nbytes // self.extent

    def fits(self, items: Items, nbytes: int) -> bool:
        """Tell whether blocks of items are within so many bytes."""
        low, end = self.span
        ends = [(at * self.extent + low, (at + n - 1) * self.extent + end) for n, at in items if n]
        return all(first >= 0 and last <= nbytes for first, last in ends)


def predefined_dtype(kind: MPI.Datatype) -> np.dtype | None:
    """Return the dtype of a predefined datatype, None where NumPy has none."""
    if kind in (MPI.BYTE, MPI.PACKED):
        return np.dtype("u1")
    try:
        return np.dtype(dtlib.to_numpy_dtype(kind))
    except (ValueError, TypeError):
        return None


def packed(collective: str, name: str, memory: Array, typemap: Typemap, items: Items, *, writes: bool) -> Flat:
    """Return the elements of blocks of items, one after the other, in memory of their own.

    Args:
        collective: the call's name, for messages.
        name: the argument's name, for messages.
        memory: all bytes of the caller's array.
        typemap: of the datatype.
        items: of each block.
        writes: the call writes the elements, so that they are put back.

    Raises:
        UnsupportedError: the memory is on a device.
        ValueError: the items are not within the memory.
    """
    if not isinstance(memory, np.ndarray):
        raise UnsupportedError(f"{collective}: {name} is on a device and has a derived datatype; pass a strided view")
    if not typemap.fits(items, memory.nbytes):
        most = max(count + start for count, start in items)
        raise ValueError(f"{collective}: {name} has {memory.nbytes} bytes, too few for {most} items of its datatype")
    user = flatten(collective, name, memory, writes=writes)
    held = np.empty(sum(count for count, _ in items) * typemap.elements, typemap.base)
    flat = Flat(held, pointer_of(held), -1)
    flat.before.append(lambda: _move(user, typemap, items, held, typemap.kind.Pack))
    if writes:
        flat.after.append(lambda: _move(user, typemap, items, held, _unpack(typemap.kind)))
    return flat


def _unpack(kind: MPI.Datatype) -> Callable[..., int]:
    """Return MPI's unpack with the arguments in the order of pack."""
    return lambda inbuf, outbuf, position, comm: kind.Unpack(outbuf, position, inbuf, comm)


def _move(user: Flat, typemap: Typemap, items: Items, held: np.ndarray, move: Callable[..., int]) -> None:
    """Pack or unpack each block; an item may begin before its extent or end behind it, so memory goes by address."""
    position, packed_bytes = 0, held.view("u1")
    for count, start in items:
        if count:
            memory = MPI.buffer.fromaddress(user.pointer + start * typemap.extent, count * typemap.extent)
            position = move(memory, packed_bytes, position, MPI.COMM_SELF)


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
