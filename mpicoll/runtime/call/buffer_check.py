"""Checks of buffers: whether reading would see the same as before, in as little Python as can be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

from mpicoll.runtime.arguments.tensors import check_of, is_tensor_class
from mpicoll.runtime.call.call_key import UnreadableError, is_own_type, reader_of

_address = MPI.Get_address


def buffer_check(buffer: Any) -> Callable[[Any], bool]:
    """Return what tells whether reading would see the same buffer as now, whatever object it is.

    Raises:
        UnreadableError: more could change than reading says.
    """
    kind = type(buffer)
    if kind is np.ndarray:
        return _numpy_check(buffer)
    if buffer is None or buffer is MPI.IN_PLACE or kind is int:
        return lambda now: now is buffer
    if hasattr(kind, "_c_contiguous") and buffer._c_contiguous:
        return _cupy_check(buffer)
    if kind in (list, tuple) and buffer and all(type(item) in (int, str) or is_own_type(item) for item in buffer[1:]):
        return _specification_check(buffer)
    read = reader_of(kind)
    state = read(buffer)
    if is_tensor_class(kind):
        return check_of(buffer)
    return lambda now: type(now) is kind and _reads_as(state, read, now)


def _specification_check(spec: Any) -> Callable[[Any], bool]:
    """Return what tells whether a list or tuple of an array, count and type is as this one.

    The types come first: what else could be there, such as an array of counts, cannot be compared.
    """
    kind, kinds, first, rest = type(spec), list(map(type, spec)), buffer_check(spec[0]), spec[1:]
    return lambda now: type(now) is kind and list(map(type, now)) == kinds and now[1:] == rest and first(now[0])


def _reads_as(state: Any, read: Callable[[Any], Any], now: Any) -> bool:
    try:
        return bool(read(now) == state)
    except UnreadableError:  # by now
        return False


def _cupy_check(array: Any) -> Callable[[Any], bool]:
    """Return what tells whether an array is as this contiguous one of CuPy's."""
    kind, size, dtype, address, device = type(array), array.size, array.dtype, array.data.ptr, array.data.device_id
    return lambda now: (
        type(now) is kind
        and now.data.ptr == address
        and now.size == size
        and now.dtype is dtype
        and now._c_contiguous
        and now.data.device_id == device
    )


def _numpy_check(array: np.ndarray) -> Callable[[Any], bool]:
    """Return what tells whether an array is as this contiguous one; its flags say that, so the shape does not matter.

    An equal dtype that is another object is not taken for the same: comparing takes longer than reading.
    """
    size, dtype, flags, address = array.size, array.dtype, array.flags.num, _address(array)
    return lambda now: (
        type(now) is np.ndarray
        and now.size == size
        and now.dtype is dtype
        and now.flags.num == flags
        and _address(now) == address
    )
