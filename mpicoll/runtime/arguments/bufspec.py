"""Buffer arguments as mpi4py takes them: an array, or a list of array, counts, displacements, type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI
from mpi4py.util import dtlib

from mpicoll.errors import UnsupportedError
from mpicoll.runtime.arguments.arrays import Array, as_array


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
        raw: the elements are taken as bytes (MPI.BYTE was given).
    """

    array: Array | None
    count: int | None = None
    counts: tuple[int, ...] | None = None
    displs: tuple[int, ...] | None = None
    displ: int | None = None
    raw: bool = False


def is_in_place(argument: Any) -> bool:
    """Tell whether an argument is MPI.IN_PLACE."""
    return argument is MPI.IN_PLACE or (isinstance(argument, int) and argument == MPI.IN_PLACE)


def read_spec(collective: str, name: str, argument: Any) -> Spec:
    """Take a buffer argument apart.

    Raises:
        TypeError: not a buffer argument, or the given type is not the array's.
        UnsupportedError: a derived datatype.
    """
    if argument is None:
        return Spec(None)
    if not isinstance(argument, list | tuple):
        return Spec(as_array(collective, name, argument))
    if not 1 <= len(argument) <= 4:
        raise TypeError(f"{collective}: {name} has {len(argument)} items, not array, counts, displacements and type")
    first, *rest = argument
    array = None if first is None else as_array(collective, name, first)
    raw = bool(rest) and isinstance(rest[-1], MPI.Datatype) and rest[-1] == MPI.BYTE
    if rest and isinstance(rest[-1], MPI.Datatype | str):
        array = _typed(collective, name, array, rest.pop())
    count, counts, displs, displ = _read_counts(collective, name, rest)
    return Spec(array, count, counts, displs, displ, raw)


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


def _typed(collective: str, name: str, array: Array | None, given: MPI.Datatype | str) -> Array | None:
    """Return the array as elements of the given type, which must be its own or MPI.BYTE.

    Args:
        collective: the call's name, for messages.
        name: the argument's name, for messages.
        array: the array, None where the argument was None.
        given: MPI's type, or its name.
    """
    if array is None:
        return None
    if isinstance(given, MPI.Datatype) and given == MPI.BYTE:
        if not array.flags.c_contiguous:
            raise ValueError(f"{collective}: {name} is taken as MPI.BYTE, but is not contiguous")
        return array.reshape(-1).view(np.uint8)
    try:
        wanted = np.dtype(given) if isinstance(given, str) else np.dtype(dtlib.to_numpy_dtype(given))
    except (ValueError, TypeError):
        wanted = None
    predefined = isinstance(given, str) or given.is_predefined
    if wanted is None or not predefined:
        raise UnsupportedError(f"{collective}: {name} has a derived datatype; pass an array of the elements instead")
    if wanted != array.dtype:
        raise TypeError(f"{collective}: {name} is {array.dtype}, its given type is {wanted}")
    return array
