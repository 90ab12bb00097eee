"""Helpers of all functions: arrays of what they get, and results of the same kind."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from mpi4py import MPI

from mpicoll.buffers import Comm
from mpicoll.communicator import Communicator
from mpicoll.runtime.arguments.arrays import Array, as_array, is_plain
from mpicoll.runtime.call.agreement import Word
from mpicoll.runtime.call.conductor import tell


def communicator(comm: Comm = None) -> Communicator:
    """Return a communicator as `Communicator`; COMM_WORLD for None."""
    if isinstance(comm, Communicator):
        return comm
    return Communicator(MPI.COMM_WORLD if comm is None else comm)


def told(where: Communicator, name: str, mine: Any) -> list[Any]:
    """Return every rank's facts of its arrays, before a call whose result depends on all of them."""
    words = tell(where._get_context(), Word(f"the shapes of {name}", told=mine), None)
    return [word.told for word in words]


def divided(where: Communicator, name: str, array: Array) -> tuple[int, ...]:
    """Return the shape of a part of the first axis; a mistake is told to the other ranks."""
    try:
        return divided_shape(name, array.shape, where.size)
    except ValueError as error:
        where._tell(name, error)


def divided_shape(name: str, shape: tuple[int, ...], size: int) -> tuple[int, ...]:
    """Return the shape of one of `size` parts along the first axis."""
    if not shape or shape[0] % size:
        raise ValueError(f"{name}: the first axis of x, of shape {shape}, is not a multiple of {size} ranks")
    return (shape[0] // size, *shape[1:])


def array_of(where: Communicator, name: str, x: Any, argument: str = "x") -> Array:
    """Return an array over the memory of an argument; a mistake is told to the other ranks."""
    if isinstance(x, bool | int | float | complex):
        return np.asarray(x)
    try:
        return as_array(name, argument, x)
    except Exception as error:
        where._tell(name, error)


def result_of(
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
