"""The functional layer: arrays in, arrays of the same kind out.

    total = mpicoll.allreduce(x)                     # shape, dtype and device are kept
    everything, counts = mpicoll.allgatherv(x)       # finds out by itself how much each rank has

Takes NumPy and CuPy arrays, PyTorch tensors (CPU and CUDA, without copying), scalars, and anything
that speaks DLPack or the CUDA array interface.  `out` receives the result if it is given, and is
returned.  `comm` is any intracommunicator; None is COMM_WORLD.  `algorithm` and `stream` are as in
the methods of `Communicator`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from mpi4py import MPI

from mpicoll.communicator import Communicator
from mpicoll.runtime.arguments.arrays import Array, as_array, device_of, is_plain
from mpicoll.runtime.arguments.reader import read_root
from mpicoll.runtime.call.agreement import Word
from mpicoll.runtime.call.conductor import tell


def communicator(comm: MPI.Intracomm | None = None) -> Communicator:
    """Return a communicator as `Communicator`; COMM_WORLD for None."""
    if isinstance(comm, Communicator):
        return comm
    return Communicator(MPI.COMM_WORLD if comm is None else comm)


def barrier(comm: MPI.Intracomm | None = None, **options: Any) -> None:
    """Return when every rank has called it."""
    communicator(comm).Barrier(**options)


def bcast(x: Any, root: int = 0, comm: MPI.Intracomm | None = None, **options: Any) -> Any:
    """Send the root's array to all ranks, in place; returns it.  Of a number, the root's is returned.

    Args:
        x: the array or number; of the same shape and dtype on all ranks.
        root: rank that sends.
        comm: communicator.
        options: algorithm, stream.
    """
    where = communicator(comm)
    array = _array(where, "bcast", x)
    if isinstance(x, bool | int | float | complex | np.generic):
        array = array.copy()
        where.Bcast(array, root, **options)
        return array[()] if isinstance(x, np.generic) else array.item()
    where.Bcast(array, root, **options)
    return x


def allreduce(x: Any, op: Any = MPI.SUM, comm: MPI.Intracomm | None = None, out: Any = None, **options: Any) -> Any:
    """Combine all ranks' arrays on every rank."""
    return _reduction("Allreduce", x, (op,), comm, out, options)


def reduce(
    x: Any, op: Any = MPI.SUM, root: int = 0, comm: MPI.Intracomm | None = None, out: Any = None, **options: Any
) -> Any:
    """Combine all ranks' arrays at the root; None elsewhere."""
    where = communicator(comm)
    if where.rank == root:
        return _reduction("Reduce", x, (op, root), comm, out, options)
    where.Reduce(_array(where, "reduce", x), None, op, root, **options)
    return None


def scan(x: Any, op: Any = MPI.SUM, comm: MPI.Intracomm | None = None, out: Any = None, **options: Any) -> Any:
    """Combine the arrays of ranks 0 to r on each rank r."""
    return _reduction("Scan", x, (op,), comm, out, options)


def exscan(x: Any, op: Any = MPI.SUM, comm: MPI.Intracomm | None = None, out: Any = None, **options: Any) -> Any:
    """Combine the arrays of the ranks before r on each rank r; zeros on rank 0 unless `out` is given."""
    return _reduction("Exscan", x, (op,), comm, out, options)


def reduce_scatter(
    x: Any, op: Any = MPI.SUM, comm: MPI.Intracomm | None = None, out: Any = None, **options: Any
) -> Any:
    """Combine all ranks' arrays, and return this rank's part of the first axis, which the ranks must divide."""
    where = communicator(comm)
    array = _array(where, "reduce_scatter", x)
    part = _divided(where, "reduce_scatter", array)
    result, target = _result("reduce_scatter", x, array, part, out)
    where.Reduce_scatter_block(array, target, op, **options)
    return result


def allgather(x: Any, comm: MPI.Intracomm | None = None, out: Any = None, **options: Any) -> Any:
    """Stack all ranks' arrays, of equal shape, along a new first axis on every rank."""
    where = communicator(comm)
    array = _array(where, "allgather", x)
    result, target = _result("allgather", x, array, (where.size, *array.shape), out)
    where.Allgather(array, target, **options)
    return result


def gather(x: Any, root: int = 0, comm: MPI.Intracomm | None = None, out: Any = None, **options: Any) -> Any:
    """Stack all ranks' arrays, of equal shape, along a new first axis at the root; None elsewhere."""
    where = communicator(comm)
    array = _array(where, "gather", x)
    if where.rank != root:
        where.Gather(array, None, root, **options)
        return None
    result, target = _result("gather", x, array, (where.size, *array.shape), out)
    where.Gather(array, target, root, **options)
    return result


def scatter(x: Any, root: int = 0, comm: MPI.Intracomm | None = None, out: Any = None, **options: Any) -> Any:
    """Return this rank's part of the first axis of the root's array, which the ranks must divide.

    The root alone says what is scattered.  The ranks tell each other first, so that a mistake is everybody's.

    Args:
        x: at the root the whole array; elsewhere any array of the kind and dtype of the result, whatever its
            shape.  Where `out` is given, or for NumPy's, it may be None there.
        root: rank that sends.
        comm: communicator.
        out: receives the part: as many elements, of any shape.
        options: algorithm, stream.

    Raises:
        ValueError: on every rank, if the ranks do not divide the axis, or a rank's dtype, kind of memory or `out`
            does not fit the root's array.
    """
    where = communicator(comm)
    root = read_root("scatter", root, where.size)
    array = None if x is None and where.rank != root else _array(where, "scatter", x)
    target = None if out is None else _array(where, "scatter", out, "out")
    facts = _told(where, "scatter", _Facts.of(array if target is None or where.rank == root else None, target))
    shape, dtype = _part_of(facts, root)
    if array is None:
        array = np.zeros(0, dtype)
    result = out
    if target is None:
        result, target = _result("scatter", x, array, shape, None)
    where.Scatter(array if where.rank == root else None, target, root, **options)
    return result


def _told(where: Communicator, name: str, mine: Any) -> list[Any]:
    """Return every rank's facts of its arrays, before a call whose result depends on all of them."""
    words = tell(where._get_context(), Word(f"the shapes of {name}", told=mine), None)
    return [word.told for word in words]


@dataclass(frozen=True)
class _Facts:
    """Facts of a rank for the others: of x, None where it does not matter, and of `out`, None if not given."""

    x: tuple[tuple[int, ...], np.dtype, bool] | None
    out: tuple[tuple[int, ...], np.dtype, bool] | None

    @staticmethod
    def of(x: Array | None, out: Array | None) -> _Facts:
        """Return shape, dtype and whether it is on the host of both."""
        return _Facts(*(None if a is None else (a.shape, a.dtype, device_of(a) < 0) for a in (x, out)))


def _part_of(facts: list[_Facts], root: int) -> tuple[tuple[int, ...], np.dtype]:
    """Return shape and dtype of a part of the root's array; raises ValueError where a rank's do not fit."""
    whole = facts[root].x
    assert whole is not None
    shape, dtype, host = whole
    part = _divided_shape("scatter", shape, len(facts))
    for rank, fact in enumerate(facts):
        for name, found in (("x", fact.x), ("out", fact.out)):
            if found is not None and found[1:] != (dtype, host):
                places = [f"{kind} on {'the host' if here else 'a device'}" for _, kind, here in (found, whole)]
                raise ValueError(f"scatter: {name} is {places[0]} on rank {rank}, the root's array is {places[1]}")
        if fact.out is not None and prod(fact.out[0]) != prod(part):
            raise ValueError(f"scatter: out has shape {fact.out[0]} on rank {rank}, the parts have {part}")
        if fact.x is None and fact.out is None and not host:
            raise ValueError(f"scatter: x is None on rank {rank}, but the root's array is on a device")
    return part, dtype


def alltoall(x: Any, comm: MPI.Intracomm | None = None, out: Any = None, **options: Any) -> Any:
    """Exchange parts of the first axis, which the ranks must divide: part q goes to rank q."""
    where = communicator(comm)
    array = _array(where, "alltoall", x)
    _divided(where, "alltoall", array)
    result, target = _result("alltoall", x, array, array.shape, out)
    where.Alltoall(array, target, **options)
    return result


def allgatherv(x: Any, comm: MPI.Intracomm | None = None, **options: Any) -> tuple[Any, list[int]]:
    """Join all ranks' arrays along the first axis, in which they may differ, on every rank.

    Returns:
        The joined array, and each rank's extent of the first axis.

    Raises:
        ValueError: on every rank, if shapes differ in other axes, or dtypes differ.
    """
    where = communicator(comm)
    array = _array(where, "allgatherv", x)
    extents, row = _extents("allgatherv", where, array)
    result, target = _result("allgatherv", x, array, (sum(extents), *array.shape[1:]), None)
    where.Allgatherv(array, [target, [n * row for n in extents]], **options)
    return result, extents


def gatherv(x: Any, root: int = 0, comm: MPI.Intracomm | None = None, **options: Any) -> tuple[Any, list[int]]:
    """Join all ranks' arrays along the first axis, in which they may differ, at the root.

    Returns:
        The joined array (None elsewhere), and each rank's extent of the first axis.
    """
    where = communicator(comm)
    array = _array(where, "gatherv", x)
    extents, row = _extents("gatherv", where, array)
    if where.rank != root:
        where.Gatherv(array, None, root, **options)
        return None, extents
    result, target = _result("gatherv", x, array, (sum(extents), *array.shape[1:]), None)
    where.Gatherv(array, [target, [n * row for n in extents]], root, **options)
    return result, extents


def _extents(name: str, where: Communicator, array: Array) -> tuple[list[int], int]:
    """Return (every rank's extent of the first axis, elements of a row); a mistake is everybody's."""
    shapes = _told(where, name, (array.shape, array.dtype))
    for rank, (shape, dtype) in enumerate(shapes):
        if not shape:
            raise ValueError(f"{name}: x has no axis to join along on rank {rank}")
        if shape[1:] != shapes[0][0][1:] or dtype != shapes[0][1]:
            first, other = (f"of shape {s}, {d}" for s, d in (shapes[0], (shape, dtype)))
            raise ValueError(f"{name}: x is {first} on rank 0, {other} on rank {rank}")
    return [shape[0] for shape, _ in shapes], int(np.prod(array.shape[1:], dtype=np.int64))


def _reduction(method: str, x: Any, rest: tuple[Any, ...], comm: Any, out: Any, options: dict[str, Any]) -> Any:
    where = communicator(comm)
    array = _array(where, method.lower(), x)
    blank = method == "Exscan" and where.rank == 0  # which receives nothing
    result, target = _result(method.lower(), x, array, array.shape, out, blank)
    getattr(where, method)(array, target, *rest, **options)
    return result


def _divided(where: Communicator, name: str, array: Array) -> tuple[int, ...]:
    try:
        return _divided_shape(name, array.shape, where.size)
    except ValueError as error:
        where._tell(name, error)


def _divided_shape(name: str, shape: tuple[int, ...], size: int) -> tuple[int, ...]:
    """Return the shape of one of `size` parts along the first axis."""
    if not shape or shape[0] % size:
        raise ValueError(f"{name}: the first axis of x, of shape {shape}, is not a multiple of {size} ranks")
    return (shape[0] // size, *shape[1:])


def _array(where: Communicator, name: str, x: Any, argument: str = "x") -> Array:
    if isinstance(x, bool | int | float | complex):
        return np.asarray(x)
    try:
        return as_array(name, argument, x)
    except Exception as error:
        where._tell(name, error)


def _result(
    name: str, x: Any, array: Array, shape: tuple[int, ...], out: Any, blank: bool = False
) -> tuple[Any, Array]:
    """Return (result in the caller's kind, array that shares its memory).

    Args:
        name: of the function, for messages.
        x: as in the call.
        array: over its memory.
        shape: of the result.
        out: is the result, if it is given.
        blank: the result is zeros, else whatever was in its memory.
    """
    if out is not None:
        return out, as_array(name, "out", out)
    if not is_plain(x) and type(x).__module__.partition(".")[0] == "torch":
        result = x.detach().new_zeros(shape) if blank else x.detach().new_empty(shape)
        return result, as_array(name, "out", result)
    module: Any = np if isinstance(array, np.ndarray) else sys.modules["cupy"]
    result = module.zeros(shape, array.dtype) if blank else module.empty(shape, array.dtype)
    return result, result
