"""The collective calls of a group: those that are alike are made as one.

    Allreduce(x1, y1), Bcast(z), Allreduce(x2, y2)   ->   Allreduce of (x1, x2), Bcast(z)

What they are is read once.  The same calls of the same arrays are found by the arrays' identity from then on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

from mpicoll.runtime.arguments.bufspec import is_in_place
from mpicoll.runtime.arguments.methods import read_call
from mpicoll.runtime.arguments.operands import Operands, check_options
from mpicoll.runtime.context.context import Context
from mpicoll.runtime.cuda.streams import current_address, given, on
from mpicoll.runtime.groups.known import Known
from mpicoll.runtime.groups.packed import MOST, PACKABLE, Copies, PackedCalls, can_be_packed

#: method, arguments, algorithm, stream
GroupedCall = tuple[str, tuple[Any, ...], Any, Any]
#: makes one call
Run = Callable[[str, tuple[Any, ...], Any, Any], None]
#: packed calls that a communicator remembers
MOST_REMEMBERED = 64


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

    def run(self, calls: Callable[[], list[GroupedCall]], run: Run) -> None:
        """Make it.

        Args:
            calls: returns the group's calls.
            run: makes one call.
        """
        if self.packed is None:
            run(*calls()[self.first])
            return
        for act in self.before:
            act()
        self.packed.run(self.copies, run)
        for act in self.after:
            act()


class Grouped:
    """The packed calls of a communicator by signature, and its groups by the identity of their arrays."""

    def __init__(self) -> None:
        """Start empty."""
        self.turn = threading.RLock()
        self.packed: dict[Hashable, PackedCalls] = {}
        self.groups: Known[list[Part]] = Known()


def run_calls(calls: list[GroupedCall], context: Context, run: Run) -> None:
    """Make calls, those that are alike as one; all ranks make the same calls in the same order.

    Args:
        calls: in their order.
        context: the communicator's.
        run: makes one call.
    """
    methods, arguments, algorithms, streams = zip(*calls, strict=True)  # long rows: one for each call takes longer
    identities = tuple([a if type(a) is int else id(a) for one in arguments for a in one])
    _run_known((methods, identities, algorithms, tuple(map(id, streams))), lambda: calls, context, run)


def run_lists(call: GroupedCall, context: Context, run: Run) -> bool:
    """Make a call for each array as one, where its buffers are lists of arrays; tell whether they are.

    Args:
        call: as it was made.
        context: the communicator's.
        run: makes one call.
    """
    method, arguments, algorithm, stream = call
    if method not in PACKABLE or not any(_is_list_of_arrays(one) for one in arguments[: _places(method)]):
        return False
    identities = [tuple(map(id, a)) if type(a) in (list, tuple) else a if type(a) is int else id(a) for a in arguments]
    _run_known((method, *identities, algorithm, id(stream)), lambda: _each(call), context, run)
    return True


def _each(call: GroupedCall) -> list[GroupedCall]:
    """Return the call of each array, where buffers are lists of arrays."""
    method, arguments, algorithm, stream = call
    buffers, rest = arguments[: _places(method)], arguments[_places(method) :]
    lengths = {len(one) for one in buffers if _is_list_of_arrays(one)}
    if len(lengths) > 1 or any(not (_is_list_of_arrays(b) or b is None or is_in_place(b)) for b in buffers):
        raise ValueError(f"{method.lower()}: the buffers are not lists of equally many arrays")
    columns = [one if _is_list_of_arrays(one) else [one] * min(lengths) for one in buffers]
    return [(method, (*row, *rest), algorithm, stream) for row in zip(*columns, strict=True)]


def _is_list_of_arrays(buffer: Any) -> bool:
    """Tell whether a buffer is two arrays or more: mpi4py takes a count or a type to be the second item."""
    return type(buffer) in (list, tuple) and len(buffer) > 1 and all(getattr(one, "ndim", 0) for one in buffer[:2])


def _run_known(known_by: Hashable, calls: Callable[[], list[GroupedCall]], context: Context, run: Run) -> None:
    """Make the calls of a group, which are read where they are not known.

    Args:
        known_by: the identity of all that is in the group.
        calls: returns its calls.
        context: the communicator's.
        run: makes one call.
    """
    grouped, key = context.kept("groups", Grouped), (current_address(), known_by)
    with grouped.turn:
        parts = grouped.groups.find(key, lambda: _buffers(calls()))
        if parts is None:
            read = calls()
            parts = _parts(read, context, grouped)
            if not any(part.before or part.after for part in parts):  # these hold their arrays
                rest = [(call[1][_places(call[0]) :], call[3]) for call in read]
                grouped.groups.note(key, parts, _buffers(read), keep=rest)
        for part in parts:
            part.run(calls, run)


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
    call, operands = calls[number], [one for _, one in same]
    sizes = tuple(one.count for one in operands)
    with on(first.device, call[3]) as address:
        key = call[0], first.root, first.op, first.dtype, first.device, call[2], address, sizes
        packed = grouped.packed.get(key)
        if packed is None:
            packed = PackedCalls(call, operands, context.rank, context.size, address)
            if len(grouped.packed) >= MOST_REMEMBERED:
                del grouped.packed[next(iter(grouped.packed))]
            grouped.packed[key] = packed
    before, after = ([act for one in operands for act in getattr(one, name)] for name in ("before", "after"))
    return Part(number, packed, packed.copies(operands), before, after)


def _places(method: str) -> int:
    """Return how many of a call's arguments are buffers."""
    return 1 if method == "Bcast" else 2


def _buffers(calls: list[GroupedCall]) -> list[Any]:
    """Return the buffers of all calls."""
    return [buffer for call in calls for buffer in call[1][: _places(call[0])]]
