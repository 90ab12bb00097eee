"""Buffer arguments as mpi4py takes them: an array, or a list of array, counts, displacements, type."""

from __future__ import annotations

import sys
from collections.abc import Container
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI

from mpicoll.errors import UnsupportedError
from mpicoll.runtime.arguments.arrays import Array, Flat, as_array, flatten
from mpicoll.runtime.arguments.typemap import BEGIN, Piece, Typemap, packed, predefined_dtype


@dataclass(frozen=True)
class Spec:
    """A buffer argument, taken apart.

    Attributes:
        array: the array, None where the argument was None.
        count: number of elements (per block where the argument has blocks), None if not given.
        counts: elements of each block, None if not given.
        displs: where each block starts, in elements, None if not given.
        displ: a displacement that is one number, in elements: where the block starts, or equal blocks start;
            in the v-variants the distance of the blocks' starts.
        raw: the type that was given, where no operator is defined for it, such as MPI.BYTE; "" for others.
        typemap: of a derived datatype; the array is the memory's bytes then, and all counts are of its items.
        address: of memory whose end nobody has said; the array has its dtype then, but no elements.  None: it has all.
    """

    array: Array | None
    count: int | None = None
    counts: tuple[int, ...] | None = None
    displs: tuple[int, ...] | None = None
    displ: int | None = None
    raw: str = ""
    typemap: Typemap | None = None
    address: int | None = None

    @property
    def items(self) -> int:
        """Number of elements in the memory, or of a derived datatype's items."""
        assert self.array is not None
        return self.typemap.items(self.array.nbytes) if self.typemap else int(self.array.size)

    @property
    def most(self) -> int:
        """Number of elements or items that counts may ask for."""
        endless = self.address is not None or (self.typemap is not None and not self.typemap.elements)
        return sys.maxsize if endless else self.items

    def reaching(self, elements: int) -> Array:
        """Return the array, with so many elements where nobody has said how many it has."""
        array = self.array
        if self.address is None or array is None or not elements:
            return array
        readonly = not array.flags.writeable
        memory: Any = MPI.buffer.fromaddress(self.address, elements * array.dtype.itemsize, readonly)
        return np.ndarray(elements, array.dtype, memory)

    def packed(self, collective: str, name: str, blocks: list[tuple[int, int]], *, writes: bool) -> Flat:
        """Return the elements of blocks of a derived datatype, one after the other.

        Args:
            collective: the call's name, for messages.
            name: the argument's name, for messages.
            blocks: (items, number of the first one) of each.
            writes: as in `typemap.packed`.
        """
        kind = self.typemap
        assert kind is not None
        begin, memory = (0, self.array) if self.address is None else (self.address, None)
        if memory is None and writes:
            flatten(collective, name, self.array, writes=True)  # which refuses what is read-only
        pieces = [Piece(kind, items, begin + first * kind.extent) for items, first in blocks]
        return packed(collective, name, memory, pieces, kind.base, writes=writes)


def is_in_place(argument: Any) -> bool:
    """Tell whether an argument is MPI.IN_PLACE."""
    return argument is MPI.IN_PLACE or (isinstance(argument, int) and argument == MPI.IN_PLACE)


def read_spec(collective: str, name: str, argument: Any) -> Spec:
    """Take a buffer argument apart.

    Raises:
        TypeError: not a buffer argument.
        ValueError: the array's elements cannot be taken as the given type.
        UnsupportedError: the given type is none for elements.
    """
    if argument is None:
        return Spec(None)
    if not isinstance(argument, list | tuple):
        return Spec(as_array(collective, name, argument))
    if not 1 <= len(argument) <= 4:
        raise TypeError(f"{collective}: {name} has {len(argument)} items, not array, counts, displacements and type")
    first, *rest = argument
    array = None if first is None else as_array(collective, name, first)
    address = _address_alone(first)
    given = rest.pop() if rest and isinstance(rest[-1], MPI.Datatype | str) else None
    count, counts, displs, displ = _read_counts(collective, name, rest)
    raw, typemap = "", None
    if array is not None and given is not None and not array.dtype.hasobject:  # else refused later
        if isinstance(given, MPI.Datatype) and not given.is_predefined:
            array, raw = _bytes_of(collective, name, array, "a derived datatype"), "derived datatypes"
            begin = BEGIN if first is MPI.BOTTOM else 0
            typemap, address = Typemap.of(collective, name, given, begin), begin or address
        else:
            array = _typed(collective, name, array, given, exact=count is None and counts is None)
            raw = "MPI.BYTE" if isinstance(given, MPI.Datatype) and given == MPI.BYTE else ""
    return Spec(array, count, counts, displs, displ, raw, typemap, address)


def is_endless(memory: MPI.buffer) -> bool:
    """Tell whether memory is given by its address alone, as `MPI.memory.fromaddress(address, 0)`.

    MPI takes memory as far as the counts say, and libraries of tensors rely on it.
    """
    return not memory.nbytes and memory.obj is None and bool(memory.address)


def _address_alone(first: Any) -> int | None:
    """Return the address of memory that is given by that alone, None of all else."""
    return int(first.address) if isinstance(first, MPI.buffer) and is_endless(first) else None


def read_types(
    collective: str, name: str, argument: Any, size: int, parts: str, nobody: Container[int] = ()
) -> tuple[Array | None, list[Piece]]:
    """Return (bytes of the memory, or None for all memory; pieces) of a buffer that has a datatype for each block.

    Args:
        collective: the call's name, for messages.
        name: the argument's name, for messages.
        argument: (array, types), (array, (counts, displacements in bytes), types), or all four in a row; MPI.BOTTOM or
            None in the place of the array: displacements are addresses.
        size: number of blocks.
        parts: for whom they are, for messages.
        nobody: numbers of blocks that do not travel, which are taken as empty.

    Raises:
        TypeError: it is none of these.
        ValueError: there is not one of each for every block.
    """
    if not isinstance(argument, list | tuple) or not 2 <= len(argument) <= 4:
        raise TypeError(f"{collective}: {name} is not (array, (counts, displacements), types)")
    first, *rest, kinds = argument
    counts, displs = (*(rest[0] if len(rest) == 1 else rest), None, None)[:2]
    numbers = [1] * size if counts is None else integers(collective, name, counts)
    starts = [0] * size if displs is None else _places(displs)
    if not len(numbers) == len(starts) == len(kinds) == size:
        have = f"{len(numbers)} counts, {len(starts)} displacements and {len(kinds)} types"
        raise ValueError(f"{collective}: {name} has {have} for {size} {parts}")
    numbers = [0 if k in nobody else number for k, number in enumerate(numbers)]
    begin = BEGIN if first is None or first is MPI.BOTTOM else 0
    address = begin or _address_alone(first)
    memory = None if address else _bytes_of(collective, name, as_array(collective, name, first), "derived datatypes")
    pieces = []
    for kind, number, start in zip(kinds, numbers, starts, strict=True):
        typemap = Typemap.of(collective, name, kind if number else MPI.BYTE, begin)  # of no items it may be any type
        pieces.append(Piece(typemap, number, (address or 0) + start))
    return memory, pieces


def _places(displs: Any) -> list[int]:
    """Return displacements in bytes, or addresses, which may be beyond what signed integers hold."""
    return [int(start) for start in displs]


def _read_counts(
    collective: str, name: str, rest: list[Any]
) -> tuple[int | None, tuple[int, ...] | None, tuple[int, ...] | None, int | None]:
    """Return (count, counts, displs, displ); a tuple of two is (counts, displacements), as in mpi4py."""
    if len(rest) == 1 and isinstance(rest[0], tuple) and len(rest[0]) == 2:
        rest = list(rest[0])
    counts, displs = (*rest, None, None)[:2]
    count, many = _one_or_many(collective, name, counts)
    displ, places = _one_or_many(collective, name, displs)
    return count, many, places, displ


def _one_or_many(collective: str, name: str, given: Any) -> tuple[int | None, tuple[int, ...] | None]:
    if given is None:
        return None, None
    numbers = integers(collective, name, given)
    return (numbers[0], None) if np.ndim(_to_host(given)) == 0 else (None, numbers)


def _to_host(values: Any) -> Any:
    return values.get() if hasattr(values, "get") and hasattr(values, "device") else values


def integers(collective: str, name: str, values: Any) -> tuple[int, ...]:
    """Return counts or displacements, on the host or a device, as a tuple.

    Raises:
        TypeError: they are not integers.
        ValueError: one is negative.
    """
    flat = np.atleast_1d(np.asarray(_to_host(values)))
    if flat.size and flat.dtype.kind not in "iu":
        raise TypeError(f"{collective}: counts and displacements of {name} are {flat.dtype}, not integers")
    numbers = tuple(int(v) for v in flat)
    if any(v < 0 for v in numbers):
        raise ValueError(f"{collective}: {name} has negative counts or displacements {list(numbers)}")
    return numbers


def _typed(collective: str, name: str, array: Array, given: MPI.Datatype | str, *, exact: bool) -> Array:
    """Return an array's memory as elements of the given type, as MPI takes it.

    Args:
        collective: the call's name, for messages.
        name: the argument's name, for messages.
        array: the array.
        given: a predefined datatype, or a type's name.
        exact: no count is given, so that all of the memory is meant.
    """
    wanted = np.dtype(given) if isinstance(given, str) else predefined_dtype(given)
    if wanted is None:
        raise UnsupportedError(f"{collective}: {name} has a datatype that NumPy has not; pass MPI.BYTE and bytes")
    if wanted in (array.dtype, array.dtype.newbyteorder("=")):  # the other byte order is refused where it matters
        return array
    memory = _bytes_of(collective, name, array, f"{wanted}, but is {array.dtype},")
    number, rest = divmod(memory.size, wanted.itemsize)
    if rest and exact:
        raise ValueError(
            f"{collective}: {name} has {memory.size} bytes, not a multiple of its type's {wanted.itemsize}"
        )
    return memory[: number * wanted.itemsize].view(wanted)


def _bytes_of(collective: str, name: str, array: Array, wanted: str) -> Array:
    """Return the bytes of an array's memory; raises ValueError where they are not one after the other."""
    if not array.flags.c_contiguous and array.flags.f_contiguous:
        array = array.T  # MPI takes memory as it lies
    if not array.flags.c_contiguous:
        raise ValueError(f"{collective}: {name} is taken as {wanted} and not contiguous")
    return array.reshape(-1).view(np.uint8)
