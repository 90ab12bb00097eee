"""The key of a call: everything that was read of its arguments, so that equal keys mean equal calls.

A remembered call is found by its key, and nothing of it is decided again.  What reading looks at and
the key leaves out would be a call that is taken for another one; so both are kept side by side, and
a test changes each of these things and asks that the key differs.  Of an array the key has address,
size, dtype, flags and place, but not the array itself, which it must not keep alive.

A key is (*signature, address, address).  Calls of one signature differ in nothing but where their arrays are: one
that is decided is so for all of them.  So the signature has the distance of arrays that overlap.  It is one flat
tuple, for of many calls in turn each part is far away in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

from mpicoll.algorithms import registry
from mpicoll.runtime.arguments import tensors
from mpicoll.runtime.arguments.bufspec import is_endless
from mpicoll.runtime.arguments.operators import Average, Op
from mpicoll.schedule.neighbourhood import Neighbourhood
from mpicoll.settings import settings

#: signature, and the addresses of a call's first two arguments, 0 for what is no array or has no elements
CallKey = tuple[Any, ...]
#: what reading sees of a buffer argument but its address; the address, 0 for none, and bytes from there on
Read = tuple[Any, int, int]

#: NumPy's own ways to an address take ten times as long
_address = MPI.Get_address
#: what changes with every setting and algorithm; asking for it by name takes several times as long
_setting, _scope, _changes = settings.__dict__, settings.scope, registry.changes


class UnreadableError(Exception):
    """An argument of which more could change than a key says: a call with it is not remembered."""


def call_key(
    method: str, arguments: tuple[Any, ...], algorithm: Any, rules: str, where: tuple[Any, ...]
) -> CallKey | None:
    """Return the key of a call, the same in all forms; None if it must not be remembered.

    Args:
        method: the call, such as "Allreduce".
        arguments: as in the call: at most two buffers, then what is no buffer.
        algorithm: as in the call.
        rules: of the communicator.
        where: device and stream on which it would run (see `streams.where`).
    """
    first = second = distance = None
    here = there = 0
    try:
        others = [_others[type(argument)](argument) for argument in arguments[2:]]
        if len(arguments) > 1:
            one, other = arguments[:2]
            first, here, long = _sent[type(one)](one)
            second, there, wide = _buffers[type(other)](other)
            distance = there - here if here < there + wide and there < here + long else None
        elif arguments:
            first, here, _ = _sent[type(arguments[0])](arguments[0])
    except UnreadableError:
        return None
    settled = algorithm, rules, _setting["assigned"], _scope().version, _changes[0]
    return (method, *settled, *where, distance, first, second, *others, here, there)


class _Readers(dict[type, Callable[[Any], Any]]):
    """Readers of arguments by their type, each made when it is first needed."""

    def __init__(self, make: Callable[[type], Callable[[Any], Any]]) -> None:
        self.make = make

    def __missing__(self, kind: type) -> Callable[[Any], Any]:
        reader = self[kind] = self.make(kind)
        return reader


def _buffer_reader(kind: type) -> Callable[[Any], Read]:
    """Return the reader of everything that reading sees of a buffer argument of a type."""
    if kind is np.ndarray:
        return _numpy_array
    if kind in (list, tuple):
        return _specification
    if kind is MPI.buffer:
        return _memory
    if kind.__name__ == "ndarray" and kind.__module__.startswith("cupy"):
        return _cupy_array if hasattr(kind, "_c_contiguous") else _strided_cupy_array
    return _tensor if tensors.is_tensor_class(kind) else lambda item: (_others[kind](item), 0, 0)


def _sent_reader(kind: type) -> Callable[[Any], Read]:
    """Return the same for a call's first buffer: a scalar, which is copied into other memory for each call, is none."""
    return _unreadable if issubclass(kind, np.generic) else _buffers[kind]


def _specification(spec: Any) -> Read:
    """Read a list or tuple of an array, counts, displacements and type."""
    if not spec:
        return _plain(spec), 0, 0
    first = spec[0]
    state, address, nbytes = _buffers[type(first)](first)
    return (type(spec), state, tuple([_others[type(item)](item) for item in spec[1:]])), address, nbytes


def _numpy_array(array: np.ndarray) -> Read:
    """Read a NumPy array, if it is contiguous: what is packed is not remembered."""
    flags = array.flags
    if not flags.c_contiguous:
        raise UnreadableError
    nbytes = array.nbytes
    try:  # aligned and writeable: what reading looks at
        return (array.size, array.dtype, flags.num & 0x500), nbytes and _address(array), nbytes
    except (ValueError, BufferError):  # a dtype that the buffer protocol cannot express, such as a date
        raise UnreadableError from None


def _memory(memory: MPI.buffer) -> Read:
    """Read memory of mpi4py's; where nobody has said how long it is, it may go on to any other one."""
    address, nbytes, endless = memory.address, memory.nbytes, is_endless(memory)
    return (nbytes, memory.readonly, endless), address, _ENDLESS if endless else nbytes


def _cupy_array(array: Any) -> Read:
    """Read a CuPy array; of a contiguous one the shape does not matter.

    The dtype comes first, so that it equals no NumPy array's state: managed memory has one address for both.
    """
    if not array._c_contiguous:
        return _strided_cupy_array(array)
    data, dtype, size = array.data, array.dtype, array.size
    return (dtype, data.device_id, size), size and data.ptr, size * dtype.itemsize


def _tensor(tensor: Any) -> Read:
    """Read one of PyTorch's tensors, if its elements are in memory as they are."""
    state = tensors.state_of(tensor)
    if state is None:
        raise UnreadableError
    return state


def _strided_cupy_array(array: Any) -> Read:
    """Read a CuPy array of which nothing more is known."""
    return (array.dtype, array.device.id, array.shape, array.strides), array.data.ptr, array.size * array.dtype.itemsize


def _plain(item: Any) -> Any:
    """Return an argument that is no array of data as something that can be compared, with its type.

    Equal numbers of different types are read differently: 0 and 0.0 as a root, [2, 3] and (2, 3) as counts.
    """
    return _others[type(item)](item)


def _other_reader(kind: type) -> Callable[[Any], Any]:
    """Return the reader of a type's objects that are no arrays of data."""
    if kind is MPI.Op:
        return _op
    if kind in (type(None), int, bool, str, Op, Average, Neighbourhood) or issubclass(kind, np.integer):
        return lambda item: (kind, item)
    if kind in (list, tuple):
        return lambda items: (kind, tuple([_plain(item) for item in items]))
    if kind is np.ndarray:
        return lambda items: (kind, items.dtype, items.shape, tuple(items.ravel().tolist()))
    if kind is MPI.Datatype:
        return _datatype
    return _in_place if kind is type(MPI.IN_PLACE) else _unreadable


def _unreadable(item: Any) -> Any:
    raise UnreadableError


def _in_place(item: Any) -> Any:
    """Return a key for MPI.IN_PLACE, whose type has another constant, too."""
    return _IN_PLACE if item is MPI.IN_PLACE else (type(item), int(item))


def _datatype(given: MPI.Datatype) -> Any:
    """Return a predefined type; others' handles are given out again."""
    if is_own_type(given):
        return MPI.Datatype, id(given)
    if not given.is_predefined:
        raise UnreadableError
    return MPI.Datatype, given.handle


def is_own_type(item: Any) -> bool:
    """Tell whether this is one of mpi4py's types, of which each is the only object with its meaning for ever."""
    return id(item) in _OWN_TYPES


def _op(op: MPI.Op) -> Any:
    """Return MPI's operator as something that can be compared: others' handles are given out again."""
    if id(op) in _OWN_OPS:
        return id(op)
    if not op.is_predefined:
        raise UnreadableError
    return op.handle


#: bytes of memory whose end nobody has said, in the place of a number
_ENDLESS = 1 << 64
_IN_PLACE = type(MPI.IN_PLACE), int(MPI.IN_PLACE)
#: MPI can be asked for a type; before it has started there are no other types than mpi4py's own
_STARTED = MPI.Is_initialized() and not MPI.Is_finalized()
_TYPES = [one for one in vars(MPI).values() if type(one) is MPI.Datatype]
#: identities of mpi4py's types, which live for ever
_OWN_TYPES = frozenset(id(one) for one in _TYPES if not _STARTED or one.is_predefined)
#: identities of mpi4py's operators, which live for ever
_OWN_OPS = frozenset(map(id, (MPI.SUM, MPI.PROD, MPI.MAX, MPI.MIN, MPI.LAND, MPI.LOR, MPI.BAND, MPI.BOR)))



def reader_of(kind: type) -> Callable[[Any], Read]:
    """Return the reader of a buffer argument of a type, which raises UnreadableError where more could change."""
    return _buffers[kind]


_buffers, _others, _sent = _Readers(_buffer_reader), _Readers(_other_reader), _Readers(_sent_reader)
