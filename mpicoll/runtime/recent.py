"""Recent calls: where equal arguments come again, everything was decided the last time.

Planning a repeated call costs a look-up here.  What was decided depends on nothing of an array
but its address, shape, dtype and flags, so these are the key: arrays themselves are not held.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

from mpicoll.runtime.bound import Bound

#: calls remembered for each communicator
MOST = 512

Key = tuple[Any, ...]


class Recent:
    """The remembered calls of one communicator."""

    def __init__(self) -> None:
        """Start empty."""
        self.calls: dict[Key, tuple[tuple[Any, ...], Bound]] = {}

    def find(self, key: Key, rest: tuple[Any, ...]) -> Bound | None:
        """Return the bound program of an equal call, if it is remembered and still valid."""
        known = self.calls.get(key)
        return known[1] if known is not None and known[1].alive and known[0] == rest else None

    def remember(self, key: Key, rest: tuple[Any, ...], bound: Bound) -> None:
        """Remember a call, if its buffers are arrays, MPI.IN_PLACE or None."""
        if UNKNOWN not in key:
            if len(self.calls) >= MOST:
                self.calls.clear()
            self.calls[key] = rest, bound


#: types of arguments that cannot be changed in place, looked at first since most are of them
_FIXED = frozenset({int, tuple, type(None), MPI.Op})
#: NumPy's own ways to an address take ten times as long
_address = MPI.Get_address

#: state of an argument of which more could change than its key says
UNKNOWN = "unknown"


def state(argument: Any) -> Any:
    """Return all of a buffer argument on which a decision can depend."""
    read = _readers.get(type(argument))
    if read is None:
        read = _readers[type(argument)] = _reader(type(argument))
    return read(argument)


def _reader(kind: type) -> Callable[[Any], Any]:
    """Return what reads the state of a type's objects."""
    if kind is np.ndarray:
        return _read_numpy
    if kind is type(None) or kind is type(MPI.IN_PLACE) or issubclass(kind, int):
        return lambda argument: argument
    if kind.__name__ != "ndarray" or not kind.__module__.startswith("cupy"):
        return lambda argument: UNKNOWN
    return _read_cupy if hasattr(kind, "_c_contiguous") else lambda a: (*_read_cupy_data(a), a.shape, a.strides)


def _read_numpy(array: np.ndarray) -> Any:
    """Return a NumPy array's state, if it is contiguous: what is packed is not remembered."""
    flags = array.flags
    if not flags.c_contiguous:
        return UNKNOWN
    try:
        return _address(array), array.size, array.dtype, flags.num
    except (ValueError, BufferError):  # a dtype that the buffer protocol cannot express, such as a date
        return UNKNOWN


def _read_cupy(array: Any) -> Any:
    """Return a CuPy array's state; of a contiguous one the shape does not matter."""
    data = array.data
    if array._c_contiguous:
        return data.ptr, data.device_id, array.dtype, array.size
    return data.ptr, data.device_id, array.dtype, array.shape, array.strides


def _read_cupy_data(array: Any) -> tuple[Any, ...]:
    return array.data.ptr, array.device.id, array.dtype


_readers: dict[type, Callable[[Any], Any]] = {}


def frozen(rest: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return arguments that stay as they are: counts could be changed in place between calls."""
    if rest and type(rest[0]) not in _FIXED and hasattr(rest[0], "__len__"):
        counts = rest[0].tolist() if hasattr(rest[0], "tolist") else rest[0]
        return (tuple(counts), *rest[1:])
    return rest


def address_of(stream: Any) -> int:
    """Return a CUDA stream's address: CuPy's, or any object that has it in `ptr` or `cuda_stream`."""
    pointer = getattr(stream, "ptr", None)
    return int(stream.cuda_stream if pointer is None else pointer)
