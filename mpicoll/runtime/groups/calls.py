"""The collective calls of a group: those that are alike are made as one.

    Allreduce(x1, y1), Bcast(z), Allreduce(x2, y2)   ->   Allreduce of (x1, x2), Bcast(z)

What they are is read once.  The same calls of the same arrays are found by the arrays' identity from then on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

from mpicoll.algorithms import registry
from mpicoll.runtime.arguments.bufspec import is_in_place
from mpicoll.runtime.arguments.methods import read_call
from mpicoll.runtime.arguments.operands import Operands, check_options, is_stream
from mpicoll.runtime.call.agreement import asked
from mpicoll.runtime.call.decision import at_home
from mpicoll.runtime.context.context import Context
from mpicoll.runtime.cuda.streams import address_of, current_address, given, is_captured, on
from mpicoll.runtime.groups.fused import FusedCalls, places_of, plan_of
from mpicoll.runtime.groups.known import Known, kept
from mpicoll.runtime.groups.packed import MOST, PACKABLE, PackedCalls, can_be_packed
from mpicoll.runtime.paths import offer
from mpicoll.runtime.progress import faults
from mpicoll.settings import settings

#: method, arguments, algorithm, stream
GroupedCall = tuple[str, tuple[Any, ...], Any, Any]
#: makes one call
Run = Callable[[str, tuple[Any, ...], Any, Any], None]


@dataclass
class Part:
    """Calls of a group that are made as one, or one call.

    Attributes:
        first: number of the call, or of the first of those.
        joined: makes them as one; None for one call.
        places: where their arrays are, in the words of `joined`.
        before: functions that fill contiguous copies of strided arrays.
        after: functions that write these back.
        where: device and stream on which these work.
    """

    first: int
    joined: PackedCalls | FusedCalls | None = None
    places: Any = None
    before: list[Callable[[], None]] = field(default_factory=list)
    after: list[Callable[[], None]] = field(default_factory=list)
    where: tuple[int, Any] = -1, None

    def run(self, calls: Callable[[], list[GroupedCall]], run: Run) -> None:
        """Make it.

        Args:
            calls: returns the group's calls.
            run: makes one call.
        """
        if self.joined is None:
            run(*calls()[self.first])
            return
        if not (self.before or self.after):
            self.joined.run(self.places, run)
            return
        with on(*self.where):
            for act in self.before:
                act()
            self.joined.run(self.places, run)
            for act in self.after:
                act()


class Grouped:
    """The packed and fused calls of a communicator by signature, and its groups by the identity of their arrays."""

    def __init__(self) -> None:
        """Start empty."""
        self.turn = threading.RLock()
        self.joined: dict[Hashable, Any] = {}
        self.groups: Known[list[Part]] = Known()


def run_calls(calls: list[GroupedCall], context: Context, comm: Any) -> None:
    """Make calls, those that are alike as one; all ranks make the same calls in the same order.

    Args:
        calls: in their order.
        context: the communicator's.
        comm: the communicator.
    """
    methods, arguments, algorithms, streams = zip(*calls, strict=True)  # long rows: one for each call takes longer
    identities = tuple([a if type(a) is int else id(a) for one in arguments for a in one])
    _run_known((methods, identities, algorithms, tuple(map(_address, streams))), lambda: calls, context, comm)


def run_lists(call: GroupedCall, context: Context, comm: Any) -> bool:
    """Make a call for each array as one, where its buffers are lists of arrays; tell whether they are.

    Args:
        call: as it was made.
        context: the communicator's.
        comm: the communicator.
    """
    if not _has_lists(call):
        return False
    method, arguments, algorithm, stream = call
    identities = [tuple(map(id, a)) if type(a) in (list, tuple) else a if type(a) is int else id(a) for a in arguments]
    _run_known((method, *identities, algorithm, _address(stream)), lambda: each_of(call), context, comm)
    return True


def each_of(call: GroupedCall) -> list[GroupedCall]:
    """Return the call of each array where buffers are lists of arrays, else the call."""
    if not _has_lists(call):
        return [call]
    method, arguments, algorithm, stream = call
    buffers, rest = arguments[: _places(method)], arguments[_places(method) :]
    lengths = {len(one) for one in buffers if _is_list_of_arrays(one)}
    if len(lengths) > 1 or any(not (_is_list_of_arrays(b) or b is None or is_in_place(b)) for b in buffers):
        raise ValueError(f"{method.lower()}: the buffers are not lists of equally many arrays")
    columns = [one if _is_list_of_arrays(one) else [one] * min(lengths) for one in buffers]
    return [(method, (*row, *rest), algorithm, stream) for row in zip(*columns, strict=True)]


def _address(stream: Any) -> int | None:
    """Return the address of a call's stream, None where none is given; what is no stream is refused later."""
    return address_of(stream) if stream is not None and is_stream(stream) else None


def _has_lists(call: GroupedCall) -> bool:
    """Tell whether a call that can be packed has lists of arrays as buffers."""
    method, arguments, *_ = call
    return method in PACKABLE and any(_is_list_of_arrays(one) for one in arguments[: _places(method)])


def _is_list_of_arrays(buffer: Any) -> bool:
    """Tell whether a buffer is two arrays or more: mpi4py takes a count or a type to be the second item."""
    if type(buffer) not in (list, tuple) or len(buffer) < 2 or not all(getattr(one, "ndim", 0) for one in buffer[:2]):
        return False
    return len(buffer) > 2 or not _is_count(buffer[1])


def _is_count(array: Any) -> bool:
    """Tell whether an array may be meant as the number of another one's elements."""
    return getattr(array.dtype, "kind", "") in ("i", "u") and array.size == 1


def _run_known(known_by: Hashable, calls: Callable[[], list[GroupedCall]], context: Context, comm: Any) -> None:
    """Make the calls of a group, which are read where they are not known.

    Args:
        known_by: the identity of all that is in the group.
        calls: returns its calls.
        context: the communicator's.
        comm: the communicator.
    """
    settled = settings.version, registry.changes[0], comm._rules  # on which a plan depends
    grouped, key = context.kept("groups", Grouped), (current_address(), settled, known_by)
    with grouped.turn:
        parts = grouped.groups.find(key, lambda: _buffers(calls()))
        if parts is None:
            read, parts = _read(calls, context, grouped, settled)
            if not any(part.before or part.after for part in parts):  # these hold their arrays
                rest = [(call[1][_places(call[0]) :], call[3]) for call in read]
                grouped.groups.note(key, parts, _buffers(read), keep=rest)
        try:
            for part in parts:
                part.run(calls, comm._run)
        except BaseException:
            if context.broken:  # a kernel may still use the arrays
                faults.abandoned.append((context, calls()))
            raise


def _read(
    calls: Callable[[], list[GroupedCall]], context: Context, grouped: Grouped, settled: tuple[int, int, str]
) -> tuple[list[GroupedCall], list[Part]]:
    """Return (calls, parts) of a group that is not known; none of it is made where that raises."""
    try:
        read = calls()
        return read, _parts(read, context, grouped, settled)
    except Exception as error:
        if not asked():
            context.refuse(error)
        raise


def _parts(calls: list[GroupedCall], context: Context, grouped: Grouped, settled: tuple[int, int, str]) -> list[Part]:
    """Return the parts of a group, in the order of their first calls.

    Args:
        calls: of the group.
        context: the communicator's.
        grouped: what it remembers.
        settled: on which plans depend, the communicator's rules at the end.
    """
    alike: dict[Hashable, list[tuple[int, Operands]]] = {}
    for number, (method, arguments, algorithm, stream) in enumerate(calls):
        with given(stream):
            operands = read_call(method, context.rank, context.size, arguments, {})
        check_options(operands, algorithm, stream)
        kind = method, operands.root, id(operands.op), operands.dtype, operands.device, algorithm, _address(stream)
        alike.setdefault(kind if can_be_packed(method, operands) else number, []).append((number, operands))
    return [_part(piece, calls, context, grouped, settled) for same in alike.values() for piece in _pieces(same)]


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


def _part(
    same: list[tuple[int, Operands]],
    calls: list[GroupedCall],
    context: Context,
    grouped: Grouped,
    settled: tuple[int, int, str],
) -> Part:
    """Return calls that are alike as one part.

    Args:
        same: number and operands of each.
        calls: all calls of the group.
        context: the communicator's.
        grouped: what it remembers.
        settled: as in `_parts`.
    """
    number, first = same[0]
    if len(same) == 1:
        return Part(number)
    call, operands = calls[number], [one for _, one in same]
    kind: tuple[Any, ...] = call[0], first.root, first.op, first.dtype, first.device, call[2]
    plan = plan_of(operands, context, call[2], settled[2])
    if plan is None:
        with on(first.device, call[3]) as address:
            sizes = tuple(one.count for one in operands)
            packed = kept(
                grouped.joined,
                (*kind, _address(call[3]), address, sizes),
                lambda: PackedCalls(call, operands, context.rank, context.size, address),
            )
        return Part(number, packed, packed.copies(operands), *_around(operands), (first.device, call[3]))
    homes = [at_home(one, context) for one in operands]
    where = homes[0].device, None if homes[0].moved else call[3]
    with on(*where) as address:
        key = *kind, address, settled, tuple(map(_memory_of, homes))
        fused = kept(grouped.joined, key, lambda: FusedCalls(plan, homes, context, address))
        before, after = _around(homes)
        if (before or after) and is_captured(address):
            offer.refuse_copies(first)
    return Part(number, fused, places_of(homes), before, after, where)


def _around(calls: list[Operands]) -> tuple[list[Callable[[], None]], list[Callable[[], None]]]:
    """Return what is to be done before calls, and after them."""
    some = [one for one in calls if one.nbytes]
    return [act for one in some for act in one.before], [act for one in some for act in one.after]


def _memory_of(one: Operands) -> tuple[Any, ...]:
    """Return all that a fused call depends on of an item's arrays but their addresses."""
    return one.count, one.in_blocks, one.out_blocks, one.aliased, one.held


def _places(method: str) -> int:
    """Return how many of a call's arguments are buffers."""
    return 1 if method == "Bcast" else 2


def _buffers(calls: list[GroupedCall]) -> list[Any]:
    """Return the buffers of all calls."""
    return [buffer for call in calls for buffer in call[1][: _places(call[0])]]
