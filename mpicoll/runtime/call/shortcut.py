"""The shortcut: an equal call that comes again, in as little Python as can be.

A call on the path mapped is one launch of about 2 us, and one of 8 bytes on the host takes 4.  So where
`Communicator._run` sees the same objects as in an earlier call, or others in the same places, it computes no key:

    ("Allreduce", algorithm, id(x), id(y)) -> (arguments as they were, device and stream as they were, what is run)
    ("Allreduce", algorithm, (address, elements), (address, elements)) -> the same

The algorithm, mostly None, is in it so that calls that compare algorithms on the same arrays do not take turns in vain.

A CuPy array cannot be given other memory, another dtype or another size, so its identity says it all, as long as
it lives.  Of all else identity and place are hints, and what reading sees is compared: a NumPy array can be changed
in place, and views or lists that are made for each call are in the places of the ones before.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from operator import is_
from typing import Any

import numpy as np
from mpi4py import MPI

from mpicoll.algorithms import registry
from mpicoll.runtime.arguments.tensors import is_tensor_class
from mpicoll.runtime.call.buffer_check import buffer_check
from mpicoll.runtime.call.call_key import UnreadableError
from mpicoll.runtime.context.context import Context
from mpicoll.runtime.context.remembered import Identity, Remembered
from mpicoll.runtime.paths.native import NativeCall
from mpicoll.runtime.program.bound import Bound
from mpicoll.runtime.program.local_work import Action
from mpicoll.runtime.progress import running
from mpicoll.settings import settings

_address = MPI.Get_address
#: what changes with every setting and algorithm, at hand
_setting, _scope_of_now, _changes = settings.__dict__, settings.scope, registry.changes
#: in the place of (current stream, its value, current device, its value) for arrays on the host: always as it was
NOWHERE = bool, False, bool, False
#: times that a call is found by its key before it takes over a place under which another one was noted
PATIENCE = 4


def note(
    context: Context, asked_for: tuple[str, tuple[Any, ...], Any, Any, str], call: Remembered, bound: Bound
) -> None:
    """Let the shortcut find a call that was just found by its key, if it may.

    It is noted by the identity of its arrays and by their places.  Where another call was noted so, such as one with
    another operator, they would take turns in vain: that one stays at first.

    Args:
        context: the communicator's.
        asked_for: method, arguments, algorithm, stream, and the communicator's rules.
        call: the same, as it is remembered.
        bound: its program.
    """
    method, arguments, algorithm, stream, rules = asked_for
    buffers, rest = arguments[:2], arguments[2:]
    if len(buffers) < 2 or not _may_be_noted(rest, call, bound):
        return
    try:
        checks = tuple(map(buffer_check, buffers))
    except UnreadableError:
        return
    exact = any(isinstance(item, int) for item in rest)  # 0.0 would be equal, but is no root
    asked = rest, exact, algorithm, stream, rules, settings.scope(), settings.assigned, registry.changes[0]
    run = context, context.turn, bound, _actions(context, call, bound)
    where, cache, taken = _where_now(call), context.cache, context.cache.identities if call.found <= PATIENCE else ()
    place, identity = place_of(*asked_for[:3]), (method, algorithm, id(arguments[0]), id(arguments[1]))
    if place not in taken:
        cache.note_identity(call, place, [], [], (asked, where, (*run, checks), call))
    if identity in taken:
        return
    arrays = _lasting(buffers)
    if arrays:
        others = [b for b in buffers if not any(b is array for array in arrays)]
        cache.note_identity(call, identity, arrays, others, (asked, where, (*run, None), call))
    elif any(type(b) is np.ndarray or is_tensor_class(type(b)) for b in buffers):
        # which are not watched: an array that is could not be resized
        cache.note_identity(call, identity, [], [], (asked, where, (*run, checks), call))


def _may_be_noted(rest: tuple[Any, ...], call: Remembered, bound: Bound) -> bool:
    """Tell whether nothing but its buffers can change in a call, and it need not be refused in a capture."""
    if Bound.observer is not None or any(hasattr(item, "__len__") for item in rest):  # counts could change in place
        return False
    return call.operands.device < 0 or not (_waits(bound) or call.operands.held)


def _where_now(call: Remembered) -> Any:
    """Return the functions that give the current stream and device, each with its value now."""
    if call.operands.device < 0:
        return NOWHERE
    cuda = sys.modules["cupy"].cuda
    stream_of_now, device_of_now = cuda.get_current_stream, cuda.runtime.getDevice
    return stream_of_now, stream_of_now(), device_of_now, device_of_now()


def _actions(context: Context, call: Remembered, bound: Bound) -> list[Action]:
    """Return what a call that takes the shortcut does."""
    if bound.limited:
        return [partial(running.run, bound, context)]
    if call.operands.device >= 0:
        return bound.actions
    if len(bound.actions) == 1 and isinstance(bound.actions[0], NativeCall):
        return [bound.actions[0].call]
    return [bound.run]


def noted(
    identities: dict[Identity, tuple[Any, ...]], method: str, arguments: tuple[Any, ...], algorithm: Any
) -> tuple[Any, ...] | None:
    """Return what was noted of a call whose buffers are where these are, and equal; None if there is none.

    Args:
        identities: of a communicator's cache.
        method: the call.
        arguments: as in the call.
        algorithm: as in the call.
    """
    if len(arguments) < 2 or not identities:
        return None
    known = identities.get(place_of(method, arguments, algorithm))
    if known is None:
        return None
    one, other = known[2][4]
    return known if one(arguments[0]) and other(arguments[1]) else None


def looked_up(
    identities: dict[Identity, tuple[Any, ...]], method: str, arguments: tuple[Any, ...], algorithm: Any
) -> tuple[Any, ...] | None:
    """Return what was noted of a call with these buffers, or in their places; as `Communicator._run` does in line."""
    if len(arguments) < 2 or MPI.Is_finalized():
        return None
    one, other = arguments[0], arguments[1]
    try:
        known = identities.get((method, algorithm, id(one), id(other)))
    except TypeError:  # a list for an algorithm's name, which is refused later
        return None
    checks = known and known[2][4]
    if known is None or not (checks is None or (checks[0](one) and checks[1](other))):
        return noted(identities, method, arguments, algorithm)
    return known


def place_of(method: str, arguments: tuple[Any, ...], algorithm: Any) -> Identity:
    """Return under what a call is noted whatever objects its buffers are; what it leaves out is compared.

    Args:
        method: the call, such as "Allreduce".
        arguments: as in the call, at least two.
        algorithm: as in the call.
    """
    one, other = arguments[0], arguments[1]
    return method, algorithm, _places[type(one)](one), _places[type(other)](other)


class _Places(dict[type, Callable[[Any], Any]]):
    """Functions by type that return where a buffer is, as far as that takes little time."""

    def __missing__(self, kind: type) -> Callable[[Any], Any]:
        found = self[kind] = _place_reader(kind)
        return found


def _place_reader(kind: type) -> Callable[[Any], Any]:
    """Return the function that tells where a buffer of a type is; what cannot be told is known by its identity."""
    if kind is np.ndarray:
        return _numpy_place
    if hasattr(kind, "_c_contiguous"):  # CuPy's
        return lambda array: (array.data.ptr, array.size)
    if kind is MPI.buffer:
        return lambda memory: (memory.address, memory.nbytes)
    if kind in (list, tuple):
        return lambda spec: (_places[type(spec[0])](spec[0]), len(spec)) if spec else None
    return _tensor_place if is_tensor_class(kind) else id


def _numpy_place(array: np.ndarray) -> Any:
    try:
        return _address(array), array.size
    except (ValueError, BufferError):  # as in `call_key`
        return id(array)


def _tensor_place(tensor: Any) -> Any:
    try:
        return tensor.data_ptr(), tensor.numel()
    except RuntimeError:  # one without memory, such as a fake one
        return id(tensor)


_places = _Places()


def found(
    known: tuple[Any, ...] | None, arguments: tuple[Any, ...], algorithm: Any, stream: Any, rules: str
) -> Remembered | None:
    """Return the call that was noted, if nothing else has changed: what `Communicator._run` asks, too.

    Args:
        known: what was noted of it, None for nothing.
        arguments: as in the call.
        algorithm: as in the call.
        stream: as in the call.
        rules: of the communicator.
    """
    if known is None:
        return None
    asked, where, (_, _, bound, _, _), call, _ = known
    rest, exact, wanted, given, ruled, scope, assigned, registered = asked
    get_stream, current, get_device, device = where
    same = (
        arguments[2:] == rest
        and (not exact or all(map(is_, arguments[2:], rest)))
        and algorithm == wanted
        and stream is given
        and rules is ruled
        and _scope_of_now() is scope
        and _setting["assigned"] == assigned
        and _changes[0] == registered
        and get_stream() is current
        and get_device() == device
        and bound.alive
    )
    return call if same else None


def _lasting(buffers: tuple[Any, ...]) -> list[Any]:
    """Return the CuPy arrays among a call's buffers, on one device; none where another buffer can change in place."""
    cupy = sys.modules.get("cupy")
    if cupy is None:
        return []
    arrays = [b for b in buffers if type(b) is cupy.ndarray]
    others = [b for b in buffers if not (b is None or b is MPI.IN_PLACE or type(b) is int)]
    if len(arrays) != len(others) or any(a.device.id != arrays[0].device.id for a in arrays):
        return []
    return arrays


def _waits(bound: Bound) -> bool:
    """Tell whether a program is more than launches that follow each other."""
    return bool(bound.requests) or any(poll is not None for poll in bound.polls)
