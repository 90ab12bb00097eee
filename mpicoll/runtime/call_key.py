"""The key of a call: everything that was read of its arguments, so that equal keys mean equal calls.

A remembered call is found by its key, and nothing of it is decided again.  What reading looks at and
the key leaves out would be a call that is taken for another one; so both are kept side by side, and
a test changes each of these things and asks that the key differs.  Of an array the key has address,
size, dtype, flags and place, but not the array itself, which it must not keep alive.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

from mpicoll.algorithms.registry import revision
from mpicoll.runtime.ops import Average, Op
from mpicoll.settings import settings

Key = tuple[Any, ...]

#: NumPy's own ways to an address take ten times as long
_address = MPI.Get_address


class UnreadableError(Exception):
    """An argument of which more could change than a key says: a call with it is not remembered."""


def call_key(
    form: str, method: str, arguments: tuple[Any, ...], algorithm: Any, rules: str, where: tuple[Any, ...]
) -> Key | None:
    """Return the key of a call, None if it must not be remembered.

    Args:
        form: "blocking", "nonblocking" or "persistent".
        method: the call, such as "Allreduce".
        arguments: as in the call: at most two buffers, then what is no buffer.
        algorithm: as in the call.
        rules: of the communicator.
        where: device and stream on which it would run (see `streams.where`).
    """
    if algorithm is not None and type(algorithm) is not str:
        return None  # it is refused where it is read
    try:
        buffers = [_buffer(argument) for argument in arguments[:2]]
        rest = [_plain(argument) for argument in arguments[2:]]
    except UnreadableError:
        return None
    return (form, method, *buffers, *rest, algorithm, rules, *where, settings.version, revision())


def _buffer(argument: Any) -> Any:
    """Return everything that reading sees of a buffer argument."""
    kind = type(argument)
    if kind is np.ndarray:
        return _numpy_array(argument)
    read = _readers.get(kind)
    if read is None:
        read = _readers[kind] = _reader(kind)
    return read(argument)


def _reader(kind: type) -> Callable[[Any], Any]:
    """Return the reader of a type's objects."""
    if kind in (list, tuple):
        return lambda spec: (kind, _buffer(spec[0]), *[_plain(one) for one in spec[1:]]) if spec else _plain(spec)
    if kind.__name__ != "ndarray" or not kind.__module__.startswith("cupy"):
        return _plain
    return _cupy_array if hasattr(kind, "_c_contiguous") else lambda a: (*_cupy_data(a), a.shape, a.strides)


def _numpy_array(array: np.ndarray) -> Any:
    """Return a NumPy array's state, if it is contiguous: what is packed is not remembered."""
    flags = array.flags
    if not flags.c_contiguous:
        raise UnreadableError
    try:
        return _address(array), array.size, array.dtype, flags.num
    except (ValueError, BufferError):  # a dtype that the buffer protocol cannot express, such as a date
        raise UnreadableError from None


def _cupy_array(array: Any) -> Any:
    """Return a CuPy array's state; of a contiguous one the shape does not matter.

    The dtype comes first, so that it equals no NumPy array's state: managed memory has one address for both.
    """
    data = array.data
    if array._c_contiguous:
        return array.dtype, data.ptr, data.device_id, array.size
    return array.dtype, data.ptr, data.device_id, array.shape, array.strides


def _cupy_data(array: Any) -> tuple[Any, ...]:
    return array.dtype, array.data.ptr, array.device.id


_readers: dict[type, Callable[[Any], Any]] = {}


def _plain(item: Any) -> Any:
    """Return an argument that is no array of data as something that can be compared, with its type.

    Equal numbers of different types are read differently: 0 and 0.0 as a root, [2, 3] and (2, 3) as counts.
    """
    kind = type(item)
    if kind is MPI.Op:
        return _op(item)
    if item is None or kind in (int, bool, str, Op, Average) or isinstance(item, np.integer):
        return kind, item
    if kind in (list, tuple):
        return kind, tuple([_plain(one) for one in item])
    if kind is np.ndarray:
        return kind, item.dtype, item.shape, tuple(item.ravel().tolist())
    if kind is MPI.Datatype and item.is_predefined:  # others' handles are given out again
        return kind, item.handle
    if item is MPI.IN_PLACE:
        return kind, int(item)
    raise UnreadableError


def _op(op: MPI.Op) -> Any:
    """Return MPI's operator as something that can be compared: others' handles are given out again."""
    if not op.is_predefined:
        raise UnreadableError
    return op.handle
