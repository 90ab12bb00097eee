"""Calls that do not block: nonblocking ones, and persistent ones.

A call is one routine from its operands to its end, which waits for whatever it needs: the first call's exchange, the
peers' memory, other ranks' words.  One that was made before has less to it: on the host it is its program, on
the path mapped it is enqueued at once.
"""

from __future__ import annotations

from typing import Any

from mpicoll.dispatch.plan import Plan
from mpicoll.errors import UnsupportedError
from mpicoll.recorder.entry import Decision
from mpicoll.runtime.arguments.operands import Operands
from mpicoll.runtime.call import execute
from mpicoll.runtime.call.agreement import asked
from mpicoll.runtime.call.call_key import call_key
from mpicoll.runtime.call.decision import Call, decided, is_repeatable, read, remember, take_back
from mpicoll.runtime.call.flight import Flight, Prepared, enqueued, nothing_waits
from mpicoll.runtime.context.context import Context
from mpicoll.runtime.context.remembered import Remembered
from mpicoll.runtime.context.slot import Slot
from mpicoll.runtime.cuda.streams import address_on, on, where
from mpicoll.runtime.paths.table import path
from mpicoll.runtime.program.bound import Bound
from mpicoll.runtime.progress import turns
from mpicoll.runtime.progress.exchange import Later, Routine
from mpicoll.runtime.progress.operations import Operation
from mpicoll.runtime.progress.straight import Straight, goes_straight


def nonblocking(call: Call, known: Remembered | None = None) -> Any:
    """Start a call that does not block; local.

    Args:
        call: as it was made.
        known: an equal call, if one was found by the shortcut.
    """
    context, place, key = call.context, (), None
    context.check()
    if known is None:
        place, cache = where(call.stream), context.cache
        key = call_key(call.method, call.arguments, call.algorithm, call.rules, place)
        mobile = cache.find_mobile if nothing_waits() else cache.find  # one that is launched later has its own program
        known = cache.find(key) or mobile(key) or cache.find_anywhere(key)
    operands: Operands | None
    if known is not None:
        if context.barred:
            context.come("nonblocking", call.method, context.calls + 1)
        context.count()
        operands, trouble, call.plan = known.operands, None, known.plan
        begun = _straight(call, known) if operands.device < 0 else _enqueued(call, known)
        if begun is not None:
            return begun
    else:
        operands, trouble = read(call)
        if operands is None or not is_repeatable(operands, place):
            key = None
    flight = _flight(call, operands, known, key)
    keep = (call.arguments, flight)
    call.arguments = ()  # the arrays live as long as the operation, and no longer
    device = operands.device if operands else -1
    operation = Operation(context, lambda own: _whole(own, flight, trouble), keep=keep, device=device, entry=call.entry)
    if trouble is not None:
        raise trouble  # the others hear of it meanwhile
    return _begun(operation, flight)


def _begun(operation: Operation, flight: Flight) -> Operation:
    """Return an operation that has begun; raise what planning has found, so that the call is not made."""
    if operation.error is not None and not (operation.ran or asked()):
        operation.traffic.unmade(operation.error)
        operation.check()
    flight.begun = True
    return operation


def _flight(call: Call, operands: Operands | None, known: Remembered | None, key: Any) -> Flight:
    """Return the flight of a call, which is kept among those made last; arguments as in `Flight`."""
    entry = call.entry or call.record(known)
    try:
        return Flight(call, operands, known, key)
    except BaseException as error:
        take_back(call.context, error)
        entry.end(error)
        raise


def _enqueued(call: Call, known: Remembered) -> Any:
    """Return a remembered call, all of it enqueued, None if there is more to it than launches."""
    if known.aims is None and not (path(known.plan.path).captures and nothing_waits()):  # else that was asked before
        return None
    entry = call.record(known)
    with entry:
        try:
            bound = known.beside
            if bound is None or not bound.alive:
                bound = known.beside = _bound_beside(call.context, known)
            begun = enqueued(call, known.plan, known.operands.device, bound, (call.arguments, bound), known.aims)
            entry.bound = True
        except BaseException as error:
            call.context.unmade(error)
            raise
    call.arguments = ()
    return begun


def _bound_beside(context: Context, known: Remembered) -> Bound:
    """Return the program of a remembered call on its side stream."""
    operands, slot = known.operands, context.slot(0)
    with on(operands.device, path(known.plan.path).side(context, operands, slot)) as side:
        return execute.bind(known.plan, operands, context, side, slot, known)


def _straight(call: Call, known: Remembered) -> Straight | None:
    """Return a remembered call on its way, None if there is more to it than its program."""
    if not goes_straight(known.operands.device):
        return None
    context = call.context
    with turns.lock:  # another thread may be at a call that takes a slot
        slot = context.take_slot()
    if slot is None:
        return None
    bound = known.program((id(slot), 0))
    if bound is None:
        slot.taken = False
        return None
    if known.begun is None:
        known.begun = Decision(known.operands, known.plan.of("nonblocking"), "nonblocking")
    keep, call.arguments = call.arguments, ()
    calls, number = context.recorder.calls, context.calls
    straight = Straight(context, bound, keep, slot=slot, recent=calls, number=number, what=known.begun)
    straight.check()
    return straight


def _whole(operation: Operation, flight: Flight, trouble: Exception | None) -> Routine[None]:
    """Make a call from its operands to its end; where it has begun and raises after all, the other ranks are told."""
    try:
        try:
            found, bound = yield from _decided(operation, flight, trouble)
        except Exception as error:
            if flight.begun and not asked():
                operation.traffic.lost(operation.number, error)
            raise
        if found.device != operation.device:  # of a call that was moved: current from the next time on
            operation.device = found.device
            yield Later().come
        yield from flight.run(operation, bound, found)
    finally:
        flight.end()


def _decided(operation: Operation, flight: Flight, trouble: Exception | None) -> Routine[tuple[Operands, Bound]]:
    """Return (operands, program) of a call."""
    known = flight.known
    if known is not None:
        bound = yield from flight.bind(known.plan, known.operands)
        if operation.entry is not None:
            operation.entry.bound = True
        return known.operands, bound
    found = yield from decided(flight.call, flight.operands, trouble, flight.bind)
    operation.traffic.come("nonblocking", flight.call.method, operation.number)
    return found


def persistent(call: Call) -> Prepared:
    """Plan and bind a call once; one that is remembered is only bound."""
    context, place = call.context, where(call.stream)
    key = call_key(call.method, call.arguments, call.algorithm, call.rules, place)
    known = context.cache.find(key) or context.cache.find_anywhere(key)
    operands, trouble = read(call) if known is None else (_read_before(call, known), None)
    assert call.entry is not None
    taken: list[Slot] = []
    sides: list[int] = []

    def bind(plan: Plan, found: Operands) -> Routine[Bound]:
        yield from ()
        if not taken:
            taken.append(context.own_slot())
        if known is None and is_repeatable(found, place):
            remember(call, found, plan, key)
        with on(found.device, path(plan.path).side(context, found, taken[0])) as side:
            sides.append(side)
            return execute.bind_new(plan, found, context, side, taken[0])

    try:
        if known is None:
            found, bound = context.complete(lambda _: decided(call, operands, trouble, bind), call.name)
        else:
            found, bound = known.operands, context.complete(lambda _: bind(known.plan, known.operands), call.name)
        call.entry.bound = True
        context.come("persistent", call.method, context.calls)
    except BaseException as error:
        _take_back(call, taken, error)
        raise
    call.entry.end()
    keep, call.arguments = call.arguments, ()
    assert call.plan is not None
    what = Decision(found.without_arrays(), call.plan.of("persistent"), "start", call.entry.sequence)
    return Prepared(call, what.plan, found, bound, sides[-1], taken[0], keep, what)


def _take_back(call: Call, taken: list[Slot], error: BaseException) -> None:
    """Take back a persistent call that has raised, so that the next one has the same lane on all ranks.

    Args:
        call: as it was made.
        taken: its slot, if it has one.
        error: that was raised.
    """
    context = call.context
    take_back(context, error)
    if call.entry is not None:
        call.entry.end(error)
    for slot in taken:
        context.release(slot)
        context.persistent -= 1


def _read_before(call: Call, known: Remembered) -> Operands:
    """Return the operands of a remembered call, which counts as made; refuse it where it would be captured."""
    operands = known.operands
    if operands.device >= 0:
        try:
            call.captured_on(address_on(operands.device, call.stream))
        except UnsupportedError as error:
            call.context.refuse(error)
            raise
    call.context.count()
    call.record(known)
    call.plan = known.plan
    return operands
