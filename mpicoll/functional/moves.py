"""Functions that move arrays of equal shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

import numpy as np

from mpicoll.buffers import A, B, Buffer, Comm, Number, S
from mpicoll.functional.results import array_of, communicator, divided, result_of

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Unpack

    from mpicoll.buffers import Options


def barrier(comm: Comm = None, *, algorithm: str | None = None) -> None:
    """Return when every rank has called it."""
    communicator(comm).Barrier(algorithm=algorithm)


def bcast(x: B, root: int = 0, comm: Comm = None, *, algorithm: str | None = None, stream: Any = None) -> B:
    """Send the root's array to all ranks, in place; returns it.  Of a number, the root's is returned.

    Args:
        x: the array or number; of the same shape and dtype on all ranks.
        root: rank that sends.
        comm: communicator.
        algorithm: as in the methods of `Communicator`.
        stream: the same.
    """
    where = communicator(comm)
    array = array_of(where, "bcast", x)
    if isinstance(x, bool | int | float | complex | np.generic):
        array = array.copy()
        where.Bcast(array, root, algorithm=algorithm, stream=stream)
        number: B = array[()] if isinstance(x, np.generic) else array.item()
        return number
    where.Bcast(array, root, algorithm=algorithm, stream=stream)
    return x


@overload
def allgather(
    x: NDArray[S], comm: Comm = ..., out: NDArray[S] | None = ..., **options: Unpack[Options]
) -> NDArray[S]: ...
@overload
def allgather(x: A, comm: Comm = ..., out: A | None = ..., **options: Unpack[Options]) -> A: ...
@overload
def allgather(x: Buffer | Number, comm: Comm = ..., out: Any = ..., **options: Unpack[Options]) -> Any: ...
def allgather(x: Any, comm: Comm = None, out: Any = None, *, algorithm: str | None = None, stream: Any = None) -> Any:
    """Stack all ranks' arrays, of equal shape, along a new first axis on every rank."""
    where = communicator(comm)
    array = array_of(where, "allgather", x)
    result, target = result_of("allgather", x, array, (where.size, *array.shape), out)
    where.Allgather(array, target, algorithm=algorithm, stream=stream)
    return result


@overload
def gather(
    x: NDArray[S], root: int = ..., comm: Comm = ..., out: NDArray[S] | None = ..., **options: Unpack[Options]
) -> NDArray[S] | None: ...
@overload
def gather(x: A, root: int = ..., comm: Comm = ..., out: A | None = ..., **options: Unpack[Options]) -> A | None: ...
@overload
def gather(
    x: Buffer | Number, root: int = ..., comm: Comm = ..., out: Any = ..., **options: Unpack[Options]
) -> Any: ...
def gather(
    x: Any,
    root: int = 0,
    comm: Comm = None,
    out: Any = None,
    *,
    algorithm: str | None = None,
    stream: Any = None,
) -> Any:
    """Stack all ranks' arrays, of equal shape, along a new first axis at the root; None elsewhere."""
    where = communicator(comm)
    array = array_of(where, "gather", x)
    if where.rank != root:
        where.Gather(array, None, root, algorithm=algorithm, stream=stream)
        return None
    result, target = result_of("gather", x, array, (where.size, *array.shape), out)
    where.Gather(array, target, root, algorithm=algorithm, stream=stream)
    return result


@overload
def alltoall(
    x: NDArray[S], comm: Comm = ..., out: NDArray[S] | None = ..., **options: Unpack[Options]
) -> NDArray[S]: ...
@overload
def alltoall(x: A, comm: Comm = ..., out: A | None = ..., **options: Unpack[Options]) -> A: ...
@overload
def alltoall(x: Buffer | Number, comm: Comm = ..., out: Any = ..., **options: Unpack[Options]) -> Any: ...
def alltoall(x: Any, comm: Comm = None, out: Any = None, *, algorithm: str | None = None, stream: Any = None) -> Any:
    """Exchange parts of the first axis, which the ranks must divide: part q goes to rank q."""
    where = communicator(comm)
    array = array_of(where, "alltoall", x)
    divided(where, "alltoall", array)
    result, target = result_of("alltoall", x, array, array.shape, out)
    where.Alltoall(array, target, algorithm=algorithm, stream=stream)
    return result
