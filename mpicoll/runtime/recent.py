"""Recent calls: where equal arguments come again, everything was decided the last time.

Planning a repeated call costs a look-up here.  What was decided depends on nothing of an array
but its address, shape, dtype and flags, so these are the key: arrays themselves are not held.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from mpi4py import MPI

from mpicoll.dispatch.plan import Plan
from mpicoll.runtime import host
from mpicoll.runtime.arrays import Flat
from mpicoll.runtime.bound import Bound
from mpicoll.runtime.operands import Operands

#: calls remembered for each communicator
MOST = 512

Key = tuple[Any, ...]


class Recent:
    """The remembered calls of one communicator."""

    def __init__(self) -> None:
        """Start empty."""
        self.calls: dict[Key, tuple[tuple[Any, ...], Any]] = {}

    def find(self, key: Key, rest: tuple[Any, ...]) -> Any:
        """Return what is remembered of an equal call: a bound program, or for calls that do not block a decision."""
        known = self.calls.get(key)
        return known[1] if known is not None and known[1].alive and known[0] == rest else None

    def remember(self, key: Key, rest: tuple[Any, ...], found: Bound | Decision) -> None:
        """Remember a call, if all of its buffers have a state."""
        if UNKNOWN not in key:
            if len(self.calls) >= MOST:
                self.calls.clear()
            self.calls[key] = rest, found


@dataclass(frozen=True)
class Decision:
    """A call's operands, over arrays that do not keep the memory alive, and its plan."""

    operands: Operands
    plan: Plan
    alive = True

    @staticmethod
    def of(operands: Operands, plan: Plan) -> Decision:
        """Return what can be remembered."""
        same = operands.output is operands.input
        source = borrowed(operands.input)
        return Decision(replace(operands, input=source, output=source if same else borrowed(operands.output)), plan)


def borrowed(flat: Flat | None) -> Flat | None:
    """Return the same, over an array that does not keep the memory alive."""
    if flat is None or not flat.array.nbytes:
        return flat
    run, dtype = (flat.pointer, flat.array.nbytes), flat.array.dtype
    if isinstance(flat.array, np.ndarray):
        return Flat(host.view(run, dtype), flat.pointer, flat.device)
    from mpicoll.runtime import device

    return Flat(device.view(run, dtype, flat.device), flat.pointer, flat.device)


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
    if kind in (list, tuple):
        return _read_list
    if kind.__name__ != "ndarray" or not kind.__module__.startswith("cupy"):
        return lambda argument: UNKNOWN
    return _read_cupy if hasattr(kind, "_c_contiguous") else lambda a: (*_read_cupy_data(a), a.shape, a.strides)


def _read_list(spec: Sequence[Any]) -> Any:
    """Return the state of a list of array, counts, displacements and type."""
    found = [state(spec[0]), *map(_contents, spec[1:])] if spec else [UNKNOWN]
    return UNKNOWN if UNKNOWN in found else tuple(found)


def _contents(item: Any) -> Any:
    """Return counts, displacements or a type as something that can be compared."""
    if isinstance(item, np.ndarray):
        return tuple(item.ravel().tolist())
    if isinstance(item, list | tuple):
        return tuple(map(_contents, item))
    if isinstance(item, MPI.Datatype):
        return "type", item.handle
    return item if item is None or isinstance(item, int | str | np.integer) else UNKNOWN


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
