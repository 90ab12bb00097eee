"""The collective calls of a group: those that are alike are made as one.

    Allreduce(x1, y1), Bcast(z), Allreduce(x2, y2)   ->   Allreduce of (x1, x2), Bcast(z)

What they are is read once.  The same calls of the same arrays are found by the arrays' identity from then on.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from mpicoll.runtime.arguments.bufspec import is_in_place
from mpicoll.runtime.arguments.methods import read_call
from mpicoll.runtime.arguments.operands import Operands, check_options
from mpicoll.runtime.call.call_key import UnreadableError
from mpicoll.runtime.call.shortcut import buffer_check
from mpicoll.runtime.context.context import Context
from mpicoll.runtime.cuda.streams import given, on
from mpicoll.runtime.groups.packed import MOST, PACKABLE, Copies, PackedCalls, can_be_packed

#: method, arguments, algorithm, stream
GroupedCall = tuple[str, tuple[Any, ...], Any, Any]
#: makes one call
Run = Callable[[str, tuple[Any, ...], Any, Any], None]
#: packed calls, and groups, that a communicator remembers
MOST_REMEMBERED = 64
T = TypeVar("T")


@dataclass
class Part:
    """Calls of a group that are made as one, or one call.

    Attributes:
        first: number of the call, or of the first of those.
        packed: makes them as one; None for one call.
        copies: to and from its packed arrays.
        before: functions that fill contiguous copies of strided arrays.
        after: functions that write these back.
    """

    first: int
    packed: PackedCalls | None = None
    copies: Copies = ((), ())
    before: list[Callable[[], None]] = field(default_factory=list)
    after: list[Callable[[], None]] = field(default_factory=list)

    def run(self, calls: list[GroupedCall], run: Run) -> None:
        """Make it; `run` makes one call."""
        call = calls[self.first]
        if self.packed is None:
            run(*call)
            return
        for act in self.before:
            act()
        self.packed.run(self.copies, run, *call[2:])
        for act in self.after:
            act()


@dataclass
class ReadGroup:
    """A group's calls, read.

    Attributes:
        parts: what is made.
        checks: (call, argument, what tells whether that buffer is as it was) where its identity does not say so.
        watched: weak references to the other buffers.
        keep: operators and streams, by whose identity it is known, too.
    """

    parts: list[Part]
    checks: list[tuple[int, int, Callable[[Any], bool]]] = field(default_factory=list)
    watched: list[Any] = field(default_factory=list)
    keep: Any = None

    def holds(self, calls: list[GroupedCall]) -> bool:
        """Tell whether all buffers are as they were."""
        return all(check(calls[number][1][place]) for number, place, check in self.checks)


class Grouped:
    """The packed calls of a communicator by signature, and its groups by the identity of their arrays."""

    def __init__(self) -> None:
        """Start empty."""
        self.turn = threading.RLock()
        self.packed: dict[Hashable, PackedCalls] = {}
        self.groups: dict[Hashable, ReadGroup] = {}


def run_calls(calls: list[GroupedCall], context: Context, run: Run) -> None:
    """Make calls, those that are alike as one; all ranks make the same calls in the same order.

    Args:
        calls: in their order.
        context: the communicator's.
        run: makes one call.
    """
    grouped = context.kept("groups", Grouped)
    key = (_current_stream(), *map(_identity, calls))
    with grouped.turn:
        found = grouped.groups.get(key)
        if found is None or not found.holds(calls):
            found = ReadGroup(_parts(calls, context, grouped))
            _note(grouped, key, found, calls)
        for part in found.parts:
            part.run(calls, run)


def listed(method: str, arguments: tuple[Any, ...]) -> list[tuple[Any, ...]] | None:
    """Return the arguments of a call for each array, where its buffers are lists of arrays; None where they are not.

    Args:
        method: the call, such as "Allreduce".
        arguments: as in the call.
    """
    if method not in PACKABLE:
        return None
    buffers, rest = arguments[: _places(method)], arguments[_places(method) :]
    lengths = {len(one) for one in buffers if _is_list_of_arrays(one)}
    if not lengths:
        return None
    if len(lengths) > 1 or any(not (_is_list_of_arrays(b) or b is None or is_in_place(b)) for b in buffers):
        raise ValueError(f"{method.lower()}: the buffers are not lists of equally many arrays")
    columns = [one if _is_list_of_arrays(one) else [one] * min(lengths) for one in buffers]
    return [(*row, *rest) for row in zip(*columns, strict=True)]


def _is_list_of_arrays(buffer: Any) -> bool:
    """Tell whether a buffer is two arrays or more; one array in a list is what mpi4py takes for a buffer."""
    return (
        type(buffer) in (list, tuple)
        and len(buffer) > 1
        and all(getattr(one, "ndim", 0) and hasattr(one, "dtype") for one in buffer)
    )


def _identity(call: GroupedCall) -> Hashable:
    """Return under what a call is known: numbers by their value, all else by its identity."""
    method, arguments, algorithm, stream = call
    return method, *[a if type(a) is int else id(a) for a in arguments], algorithm, id(stream)


def _current_stream() -> int:
    """Return the address of CuPy's current stream, 0 where CuPy is not used."""
    cupy = sys.modules.get("cupy")
    return int(cupy.cuda.get_current_stream().ptr) if cupy is not None else 0


def _parts(calls: list[GroupedCall], context: Context, grouped: Grouped) -> list[Part]:
    """Return the parts of a group, in the order of their first calls."""
    alike: dict[Hashable, list[tuple[int, Operands]]] = {}
    for number, (method, arguments, algorithm, stream) in enumerate(calls):
        with given(stream):
            operands = read_call(method, context.rank, context.size, arguments, {})
        check_options(operands, algorithm, stream)
        kind = method, operands.root, id(operands.op), operands.dtype, operands.device, algorithm, id(stream)
        alike.setdefault(kind if can_be_packed(method, operands) else number, []).append((number, operands))
    return [_part(piece, calls, context, grouped) for same in alike.values() for piece in _pieces(same)]


def _pieces(same: list[tuple[int, Operands]]) -> list[list[tuple[int, Operands]]]:
    """Return calls that are alike in as few pieces as there may be."""
    pieces: list[list[tuple[int, Operands]]] = [[]]
    nbytes = 0
    for one in same:
        nbytes += one[1].nbytes or 0
        if nbytes > MOST and pieces[-1]:
            pieces.append([])
            nbytes = one[1].nbytes or 0
        pieces[-1].append(one)
    return pieces


def _part(same: list[tuple[int, Operands]], calls: list[GroupedCall], context: Context, grouped: Grouped) -> Part:
    """Return calls that are alike as one part.

    Args:
        same: number and operands of each.
        calls: all calls of the group.
        context: the communicator's.
        grouped: what it remembers.
    """
    number, first = same[0]
    if len(same) == 1:
        return Part(number)
    method, arguments, _, stream = calls[number]
    rest, operands = arguments[_places(method) :], [one for _, one in same]
    sizes = tuple(one.count for one in operands)
    with on(first.device, stream) as address:
        key = method, first.root, first.op, first.dtype, first.device, address, sizes
        packed = grouped.packed.get(key)
        if packed is None:
            packed = PackedCalls(method, operands, rest, context.rank, context.size, address)
            _keep(grouped.packed, key, packed)
    before, after = ([act for one in operands for act in getattr(one, name)] for name in ("before", "after"))
    return Part(number, packed, packed.copies(operands), before, after)


def _places(method: str) -> int:
    """Return how many of a call's arguments are buffers."""
    return 1 if method == "Bcast" else 2


def _buffers(call: GroupedCall) -> tuple[Any, ...]:
    """Return a call's buffers."""
    return call[1][: _places(call[0])]


def _note(grouped: Grouped, key: Hashable, group: ReadGroup, calls: list[GroupedCall]) -> None:
    """Let a group be found by the identity of its arrays, as long as they live and are as they are."""
    if any(part.before or part.after for part in group.parts):  # these hold their arrays
        return
    here = weakref.ref(grouped)

    def gone(_: object) -> None:  # another array may then have its identity
        owner = here()
        if owner is not None:
            owner.groups.pop(key, None)

    try:
        for number, call in enumerate(calls):
            _watch(group, number, _buffers(call), gone)
    except UnreadableError:  # what could change is read each time
        return
    group.keep = [(call[1][_places(call[0]) :], call[3]) for call in calls]
    _keep(grouped.groups, key, group)


def _watch(group: ReadGroup, number: int, buffers: tuple[Any, ...], gone: Callable[[Any], None]) -> None:
    """Note of each buffer of a call how to see that it is as it was.

    Args:
        group: where it is noted.
        number: of the call.
        buffers: of the call.
        gone: is called at the end of a buffer whose identity says all.
    """
    cupy = sys.modules.get("cupy")
    for place, buffer in enumerate(buffers):
        if cupy is not None and type(buffer) is cupy.ndarray:
            group.watched.append(weakref.ref(buffer, gone))
        elif not (buffer is None or is_in_place(buffer)):
            group.checks.append((number, place, buffer_check(buffer)))


def _keep(table: dict[Hashable, T], key: Hashable, made: T) -> None:
    """Keep something; the oldest goes where there are too many."""
    if len(table) >= MOST_REMEMBERED:
        del table[next(iter(table))]
    table[key] = made
