"""Functions that join arrays of different lengths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

import numpy as np

from mpicoll.buffers import A, Buffer, Comm, Number, S
from mpicoll.communicator import Communicator
from mpicoll.functional.results import array_of, communicator, result_of, told
from mpicoll.runtime.arguments.arrays import Array

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Unpack

    from mpicoll.buffers import Options


@overload
def allgatherv(x: NDArray[S], comm: Comm = ..., **options: Unpack[Options]) -> tuple[NDArray[S], list[int]]: ...
@overload
def allgatherv(x: A, comm: Comm = ..., **options: Unpack[Options]) -> tuple[A, list[int]]: ...
@overload
def allgatherv(x: Buffer | Number, comm: Comm = ..., **options: Unpack[Options]) -> tuple[Any, list[int]]: ...
def allgatherv(x: Any, comm: Comm = None, *, algorithm: str | None = None, stream: Any = None) -> tuple[Any, list[int]]:
    """Join all ranks' arrays along the first axis, in which they may differ, on every rank.

    Returns:
        The joined array, and each rank's extent of the first axis.

    Raises:
        ValueError: on every rank, if shapes differ in other axes, or dtypes differ.
    """
    where = communicator(comm)
    array = array_of(where, "allgatherv", x)
    extents, row = _extents("allgatherv", where, array)
    result, target = result_of("allgatherv", x, array, (sum(extents), *array.shape[1:]), None)
    where.Allgatherv(array, [target, [n * row for n in extents]], algorithm=algorithm, stream=stream)
    return result, extents


@overload
def gatherv(
    x: NDArray[S], root: int = ..., comm: Comm = ..., **options: Unpack[Options]
) -> tuple[NDArray[S] | None, list[int]]: ...
@overload
def gatherv(x: A, root: int = ..., comm: Comm = ..., **options: Unpack[Options]) -> tuple[A | None, list[int]]: ...
@overload
def gatherv(
    x: Buffer | Number, root: int = ..., comm: Comm = ..., **options: Unpack[Options]
) -> tuple[Any, list[int]]: ...
def gatherv(
    x: Any, root: int = 0, comm: Comm = None, *, algorithm: str | None = None, stream: Any = None
) -> tuple[Any, list[int]]:
    """Join all ranks' arrays along the first axis, in which they may differ, at the root.

    Returns:
        The joined array (None elsewhere), and each rank's extent of the first axis.
    """
    where = communicator(comm)
    array = array_of(where, "gatherv", x)
    extents, row = _extents("gatherv", where, array)
    if where.rank != root:
        where.Gatherv(array, None, root, algorithm=algorithm, stream=stream)
        return None, extents
    result, target = result_of("gatherv", x, array, (sum(extents), *array.shape[1:]), None)
    where.Gatherv(array, [target, [n * row for n in extents]], root, algorithm=algorithm, stream=stream)
    return result, extents


def _extents(name: str, where: Communicator, array: Array) -> tuple[list[int], int]:
    """Return (every rank's extent of the first axis, elements of a row); a mistake is everybody's."""
    shapes = told(where, name, (array.shape, array.dtype))
    for rank, (shape, dtype) in enumerate(shapes):
        if not shape:
            raise ValueError(f"{name}: x has no axis to join along on rank {rank}")
        if shape[1:] != shapes[0][0][1:] or dtype != shapes[0][1]:
            first, other = (f"of shape {s}, {d}" for s, d in (shapes[0], (shape, dtype)))
            raise ValueError(f"{name}: x is {first} on rank 0, {other} on rank {rank}")
    return [shape[0] for shape, _ in shapes], int(np.prod(array.shape[1:], dtype=np.int64))
