"""The function that spreads an array, of which the root alone knows the shape."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from mpicoll.buffers import A, Buffer, Comm, Number, S
from mpicoll.functional.results import array_of, communicator, divided_shape, result_of, told
from mpicoll.runtime.arguments.arrays import Array, device_of
from mpicoll.runtime.arguments.reader import read_root

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Unpack

    from mpicoll.buffers import Options


@overload
def scatter(
    x: NDArray[S], root: int = ..., comm: Comm = ..., out: NDArray[S] | None = ..., **options: Unpack[Options]
) -> NDArray[S]: ...
@overload
def scatter(x: A, root: int = ..., comm: Comm = ..., out: A | None = ..., **options: Unpack[Options]) -> A: ...
@overload
def scatter(
    x: Buffer | Number | None, root: int = ..., comm: Comm = ..., out: Any = ..., **options: Unpack[Options]
) -> Any: ...
def scatter(
    x: Any,
    root: int = 0,
    comm: Comm = None,
    out: Any = None,
    *,
    algorithm: str | None = None,
    stream: Any = None,
) -> Any:
    """Return this rank's part of the first axis of the root's array, which the ranks must divide.

    The root alone says what is scattered.  The ranks tell each other first, so that a mistake is everybody's.

    Args:
        x: at the root the whole array; elsewhere any array of the kind and dtype of the result, whatever its
            shape.  Where `out` is given, or for NumPy's, it may be None there.
        root: rank that sends.
        comm: communicator.
        out: receives the part: as many elements, of any shape.
        algorithm: as in the methods of `Communicator`.
        stream: the same.

    Raises:
        ValueError: on every rank, if the ranks do not divide the axis, or a rank's dtype, kind of memory or `out`
            does not fit the root's array.
    """
    where = communicator(comm)
    root = read_root("scatter", root, where.size)
    array = None if x is None and where.rank != root else array_of(where, "scatter", x)
    target = None if out is None else array_of(where, "scatter", out, "out")
    facts = told(where, "scatter", _Facts.of(array if target is None or where.rank == root else None, target))
    shape, dtype = _part_of(facts, root)
    if array is None:
        array = np.zeros(0, dtype)
    result = out
    if target is None:
        result, target = result_of("scatter", x, array, shape, None)
    where.Scatter(array if where.rank == root else None, target, root, algorithm=algorithm, stream=stream)
    return result


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
    part = divided_shape("scatter", shape, len(facts))
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
