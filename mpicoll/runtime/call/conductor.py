"""A call's way from its arguments to a running program, the same for all forms.

    read -> (all ranks agree) -> plan -> bind -> run

A call that was made before is found in the communicator's call cache, and only run.  A blocking call is
prepared by a routine and then run; a call that does not block is one routine for both, which waits for
whatever it needs: the first call's exchange, the peers' memory, other ranks' words.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from mpicoll.dispatch.plan import Plan
from mpicoll.runtime.arguments.operands import Operands
from mpicoll.runtime.call import execute, shortcut
from mpicoll.runtime.call.agreement import Word, asked, settle
from mpicoll.runtime.call.call_key import call_key
from mpicoll.runtime.call.decision import Call, at_home, decided, is_repeatable, read
from mpicoll.runtime.call.flight import Flight, Prepared
from mpicoll.runtime.call.planning import explained, plan_for
from mpicoll.runtime.context.call_cache import Remembered
from mpicoll.runtime.context.context import Context
from mpicoll.runtime.context.slot import Slot
from mpicoll.runtime.cuda.streams import Pointer, address_on, on, where
from mpicoll.runtime.paths import offer
from mpicoll.runtime.paths.table import path
from mpicoll.runtime.program.bound import Bound
from mpicoll.runtime.progress import faults, running, turns
from mpicoll.runtime.progress.exchange import Later, Routine, finished
from mpicoll.runtime.progress.operations import Operation
from mpicoll.runtime.progress.straight import Straight, goes_straight

#: method, arguments, algorithm, stream, and the communicator's rules
CallArguments = tuple[str, tuple[Any, ...], Any, Any, str]


def blocking(context: Context, asked_for: CallArguments) -> None:
    """Make a blocking call: run a remembered one, or decide and remember.

    Where it fails with messages on their way, their memory is kept.
    """
    method, arguments, algorithm, stream, rules = asked_for
    try:
        place = where(stream)
        key = call_key(method, arguments, algorithm, rules, place)
        known = context.cache.find(key) or context.cache.find_anywhere(key)
        if known is not None:
            context.calls += 1
            bound = known.blocking
            if bound is None or not bound.alive:
                bound = known.blocking = _bound_again(known, context, place, stream)
            running.run(bound, context)
            known.found = times = known.found + 1
            if times & (times - 1):  # it is noted after 1, 2, 4, 8 ... times, for it may be in vain
                return
            if len(place) < 3 or not place[3]:  # what is captured does not wait for its end, as a time limit demands
                shortcut.note(context, asked_for, known, bound)
            return
        call = Call(context, "blocking", method, arguments, algorithm, stream, rules)
        _run(call, lambda found: key if is_repeatable(found, place) else None)
    except BaseException:
        if context.broken:
            faults.abandoned.append((context, asked_for))
        raise


def failed(context: Context, bound: Bound, arguments: tuple[Any, ...], error: BaseException) -> None:
    """Do what is to be done after a call that took the shortcut and raised; raise the error with more words, if any."""
    try:
        if not bound.limited:  # else whoever ran it has done so
            running.failed(bound, context, error)
    finally:
        if context.broken:
            faults.abandoned.append((context, arguments))


def _bound_again(known: Remembered, context: Context, place: tuple[Any, ...], stream: Any) -> Bound:
    """Return the program of a remembered call on its stream, bound now if it was made in another form only.

    Args:
        known: the remembered call.
        context: the communicator's.
        place: device and stream of the call (see `streams.where`).
        stream: as in the call.
    """
    operands, slot = known.operands, context.slot(0)
    address = place[2] if operands.device >= 0 else 0
    bound = known.program((id(slot), address))
    if bound is not None:
        return bound
    with on(operands.device, stream) as pointer:
        return execute.bind(known.plan, operands, context, pointer, slot, known)


def _run(call: Call, key_of: Callable[[Operands], Any]) -> None:
    """Decide and run a blocking call; remember it where it has a key."""
    context, caller = call.context, threading.get_ident()
    operands, trouble = read(call)
    with on(operands.device if operands else -1, call.stream) as pointer:

        def bind(plan: Plan, found: Operands) -> Routine[Bound]:
            yield from ()
            known = _remembered(call, found, plan, key_of(found))
            if not found.moved and threading.get_ident() == caller:
                return execute.bind(plan, found, context, pointer, context.slot(0), known)
            with on(found.device, None if found.moved else Pointer(pointer)) as own:
                return execute.bind(plan, found, context, own, context.slot(0), known)

        routine = decided(call, operands, trouble, bind)
        if context.last or asked() or (operands and operands.device >= 0 and not offer.is_connected(context)):
            found, bound = context.complete(lambda _: routine, call.name)
        else:  # there is nobody to wait for
            found, bound = finished(routine)
        if not found.moved:
            _finish(found, bound, context)
            return
    with on(found.device, None):
        _finish(found, bound, context)


def _remembered(call: Call, operands: Operands, plan: Plan, key: Any) -> Remembered | None:
    """Return a call that is remembered from now on, None if it has no key.

    Args:
        call: as it was made.
        operands: of the call.
        plan: what was chosen.
        key: of the call, None if it must not be remembered.
    """
    return None if key is None else call.context.cache.decide(key, operands, plan)


def _finish(operands: Operands, bound: Bound, context: Context) -> None:
    """Run a call that is decided, on the current device and stream."""
    execute.pack(operands)
    running.run(bound, context)
    execute.unpack(operands)


def nonblocking(call: Call, known: Remembered | None = None) -> Operation:
    """Start a call that does not block; local.

    Args:
        call: as it was made.
        known: an equal call, if one was found by the shortcut.
    """
    context, place, key = call.context, (), None
    context.check()
    if known is None:
        place = where(call.stream)
        key = call_key(call.method, call.arguments, call.algorithm, call.rules, place)
        known = context.cache.find(key) or context.cache.find_anywhere(key)
    operands: Operands | None
    if known is not None:
        context.calls += 1
        operands, trouble, call.plan = known.operands, None, known.plan
        straight = _straight(call, known)
        if straight is not None:
            return straight
    else:
        operands, trouble = read(call)
        if operands is None or not is_repeatable(operands, place):
            key = None
    flight = Flight(call, operands, known, key)
    keep = (call.arguments, flight)
    call.arguments = ()  # the arrays live as long as the operation, and no longer
    device = operands.device if operands else -1
    operation = Operation(context, lambda own: _whole(own, flight, trouble), keep=keep, device=device)
    if trouble is not None:
        raise trouble  # the others hear of it meanwhile
    if not (operation.ran or asked()):  # what ranks tell each other is told by Wait, whoever comes first
        operation.check()  # what planning has found
    return operation


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
    keep, call.arguments = call.arguments, ()
    straight = Straight(context, bound, keep, slot=slot)
    straight.check()
    return straight


def _whole(operation: Operation, flight: Flight, trouble: Exception | None) -> Routine[None]:
    """Make a call from its operands to its end."""
    known = flight.known
    try:
        if known is not None:
            found, bound = known.operands, (yield from flight.bind(known.plan, known.operands))
        else:
            found, bound = yield from decided(flight.call, flight.operands, trouble, flight.bind)
        if found.device != operation.device:  # of a call that was moved: current from the next time on
            operation.device = found.device
            yield Later().come
        yield from flight.run(operation, bound, found)
    finally:
        flight.end()


def persistent(call: Call) -> Prepared:
    """Plan and bind a call once; one that is remembered is only bound."""
    context, place = call.context, where(call.stream)
    key = call_key(call.method, call.arguments, call.algorithm, call.rules, place)
    known = context.cache.find(key) or context.cache.find_anywhere(key)
    operands, trouble = read(call) if known is None else (_read_before(call, known), None)
    taken: list[Slot] = []
    sides: list[int] = []

    def bind(plan: Plan, found: Operands) -> Routine[Bound]:
        yield from ()
        if not taken:
            taken.append(context.own_slot())
        if known is None and is_repeatable(found, place):
            _remembered(call, found, plan, key)
        with on(found.device, path(plan.path).side(context, found, taken[0])) as side:
            sides.append(side)
            return execute.bind_new(plan, found, context, side, taken[0])

    try:
        if known is None:
            found, bound = context.complete(lambda _: decided(call, operands, trouble, bind), call.name)
        else:
            found, bound = known.operands, context.complete(lambda _: bind(known.plan, known.operands), call.name)
    except BaseException:  # then no rank has it, so that the next one has the same lane on all
        for slot in taken:
            context.release(slot)
            context.persistent -= 1
        raise
    keep, call.arguments = call.arguments, ()
    assert call.plan is not None
    return Prepared(call, call.plan, found, bound, sides[-1], taken[0], keep)


def _read_before(call: Call, known: Remembered) -> Operands:
    """Return the operands of a remembered call, which counts as made; refuse it where it would be captured."""
    operands = known.operands
    if operands.device >= 0:
        call.captured_on(address_on(operands.device, call.stream))
    call.context.calls += 1
    call.plan = known.plan
    return operands


def plan(call: Call) -> Plan:
    """Return a call's plan; collective if it is the first call, or the first with device arrays."""
    operands = call.read()
    captured = call.captured(operands)
    if operands.device >= 0:
        offer.connect(call.context, operands.device)
    found = at_home(operands, call.context)
    made = plan_for(found, call.context, call.algorithm, call.rules, captured=captured)
    return explained(made, found, call.context)


def tell(context: Context, word: Word, trouble: Exception | None) -> list[Word]:
    """Return all ranks' words on what comes before a call; raises what keeps any of them from it."""
    words: list[Word] = context.exchange(word)
    settle(f"{word.what} #{context.calls}", words, trouble)
    return words
