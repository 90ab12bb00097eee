"""Arrays as the executor sees them: flat, contiguous, on the host or on one device."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from mpicoll.runtime.arguments import tensors

#: numpy.ndarray or cupy.ndarray; both have dtype, shape, flags and strides
Array = Any


class Extent(NamedTuple):
    """Dtype and size of a flat array, in the place of an array that a remembered call must not keep alive."""

    dtype: np.dtype
    size: int

    @property
    def nbytes(self) -> int:
        """Number of bytes."""
        return self.size * self.dtype.itemsize


@dataclass
class Flat:
    """One user array, flat.

    Of a (3, 4) array of float32 at address 4096 `part(4, 8)` has 8 elements from address 4112 on.

    Attributes:
        array: one-dimensional and contiguous; the user's own memory unless packed; its extent in a remembered call.
        pointer: address of its first element.
        device: device number, -1 on the host.
        before: functions that fill a packed copy before the call.
        after: functions that write a packed copy back after the call.
    """

    array: Array
    pointer: int
    device: int
    before: list[Callable[[], None]] = field(default_factory=list)
    after: list[Callable[[], None]] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(self.array.size)

    def part(self, start: int, count: int) -> Flat:
        """Return `count` elements from `start` on; the whole is packed and unpacked all the same."""
        if (start, count) == (0, self.size):
            return self
        address = self.pointer + start * self.array.dtype.itemsize
        return replace(self, array=self.array[start : start + count], pointer=address)

    def in_bytes(self) -> Flat:
        """Return the same memory as bytes."""
        return replace(self, array=self.array.view("u1"))


def is_cupy(array: object) -> bool:
    """Tell whether this is a CuPy array or of a class made from it, without importing CuPy."""
    modules = {kind.__module__.partition(".")[0] for kind in type(array).__mro__}
    return "cupy" in modules and isinstance(array, sys.modules["cupy"].ndarray)


def empty(shape: tuple[int, ...], like: Array) -> Array:
    """Return a new array with another one's dtype, on its device if that is the current one."""
    return empty_on(-1 if isinstance(like, np.ndarray) else 0, shape, like.dtype)


def empty_on(device: int, shape: tuple[int, ...] | int, dtype: np.dtype) -> Array:
    """Return a new array on the host (-1), or on the current device."""
    module: Any = np if device < 0 else sys.modules["cupy"]
    return module.empty(shape, dtype)


def is_plain(value: Any) -> bool:
    """Tell whether this is an array of NumPy's or CuPy's own class."""
    kind = type(value)
    return kind is np.ndarray or kind is getattr(sys.modules.get("cupy"), "ndarray", None)


def as_array(collective: str, name: str, value: Any) -> Array:
    """Return a NumPy or CuPy array, of no class made from these, that shares the value's memory."""
    if is_plain(value):
        plain: Array = value
        return plain
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value)  # of a masked array all elements
    if is_cupy(value):
        return sys.modules["cupy"].ndarray(value.shape, value.dtype, value.data, value.strides)
    if type(value).__module__.partition(".")[0] == "torch":
        return tensors.array_of(collective, name, value)
    if hasattr(value, "__cuda_array_interface__"):
        import cupy

        return cupy.asarray(value)
    if hasattr(value, "__dlpack__"):
        return _from_dlpack(value)
    try:
        return np.asarray(memoryview(value))
    except TypeError:
        raise TypeError(f"{collective}: {name} is a {type(value).__name__}, not an array") from None


def _from_dlpack(value: Any) -> Array:
    if value.__dlpack_device__()[0] in (1, 3):  # host, pinned host
        return np.from_dlpack(value)
    import cupy

    return cupy.from_dlpack(value)


def are_alike(one: np.dtype, other: np.dtype) -> bool:
    """Tell whether two dtypes have the same elements; the names of a record's fields do not matter."""
    if one == other:
        return True
    if not (one.names and other.names and one.itemsize == other.itemsize):
        return False
    mine, theirs = _places(one), _places(other)
    return len(mine) == len(theirs) and all(
        at == there and are_alike(part, its) for (part, at), (its, there) in zip(mine, theirs, strict=True)
    )


def _places(record: np.dtype) -> list[tuple[np.dtype, int]]:
    """Return (dtype, first byte) of each field of a record."""
    assert record.fields is not None
    assert record.names is not None
    return [record.fields[name][:2] for name in record.names]


def pointer_of(array: Array) -> int:
    """Return the address of an array's first element."""
    return int(array.ctypes.data) if isinstance(array, np.ndarray) else int(array.data.ptr)


def device_of(array: Array) -> int:
    """Return an array's device number, -1 on the host."""
    return -1 if isinstance(array, np.ndarray) else int(array.device.id)


def flatten(collective: str, name: str, array: Array, *, writes: bool) -> Flat:
    """Return the array flat in C order: a view if it is contiguous, else a packed copy.

    Args:
        collective: for messages.
        name: the argument's name, for messages.
        array: NumPy or CuPy array.
        writes: the collective writes it.

    Raises:
        TypeError: it holds Python objects.
        ValueError: it is to be written, but read-only or overlapping itself.
    """
    if array.dtype.hasobject:
        raise TypeError(f"{collective}: {name} holds Python objects; use the lower-case methods of mpi4py")
    if writes:
        _check_writable(collective, name, array)
    if array.flags.c_contiguous:
        flat = array.reshape(-1)
        return Flat(flat, pointer_of(flat), device_of(array))
    packed = empty(array.shape, array)
    flat = packed.reshape(-1)
    result = Flat(flat, pointer_of(flat), device_of(array))
    result.before.append(lambda: packed.__setitem__(..., array))  # also what is only written, perhaps in part
    if writes:
        result.after.append(lambda: array.__setitem__(..., packed))
    return result


def _check_writable(collective: str, name: str, array: Array) -> None:
    if isinstance(array, np.ndarray) and not array.flags.writeable:
        raise ValueError(f"{collective}: {name} is read-only")
    if array.size and _overlaps_itself(array):
        raise ValueError(f"{collective}: {name} overlaps itself (shape {array.shape}, strides {array.strides})")


def _overlaps_itself(array: Array) -> bool:
    """Tell whether two elements may share memory; never so for what slicing and transposing give."""
    covered = array.dtype.itemsize
    for stride, extent in sorted((abs(s), n) for s, n in zip(array.strides, array.shape, strict=True) if n > 1):
        if stride < covered:
            return True
        covered += stride * (extent - 1)
    return False


def overlap(a: Flat, b: Flat) -> bool:
    """Tell whether two flat arrays share memory."""
    if a.device != b.device or not a.size or not b.size:
        return False
    return bool(a.pointer < b.pointer + b.array.nbytes and b.pointer < a.pointer + a.array.nbytes)
