"""A call's way from its arguments to a running program, the same for all forms.

    read -> (all ranks agree) -> plan -> bind -> run

A blocking call is prepared by a routine and then run; a call that does not block is one routine for
both, which waits for whatever it needs: the first call's exchange, the peers' memory, other ranks' words.
"""

from __future__ import annotations

import threading
from typing import Any

from mpicoll.dispatch.plan import Plan
from mpicoll.runtime.arguments.operands import Operands
from mpicoll.runtime.call import execute
from mpicoll.runtime.call.agreement import Word, asked, settle
from mpicoll.runtime.call.call_key import call_key
from mpicoll.runtime.call.decision import Call, at_home, decided, is_repeatable, read
from mpicoll.runtime.call.flight import Flight, Prepared, side_of
from mpicoll.runtime.call.hot import HotCalls
from mpicoll.runtime.call.recent import Decision
from mpicoll.runtime.context.context import Context
from mpicoll.runtime.context.slot import Slot
from mpicoll.runtime.cuda.streams import Pointer, on, where
from mpicoll.runtime.program.bound import Bound
from mpicoll.runtime.progress import faults, operations
from mpicoll.runtime.progress.exchange import Later, Routine, finished
from mpicoll.runtime.progress.operations import Operation

#: method, arguments, algorithm, stream, and the communicator's rules
Asked = tuple[str, tuple[Any, ...], Any, Any, str]


def blocking(context: Context, hot: HotCalls, asked_for: Asked) -> None:
    """Make a blocking call; where it fails with messages on their way, their memory is kept."""
    try:
        _blocking(context, hot, asked_for)
    except BaseException:
        if context.broken:
            faults.abandoned.append((context, asked_for))
        raise


def _blocking(context: Context, hot: HotCalls, asked_for: Asked) -> None:
    """Run a remembered call, or decide and remember."""
    method, arguments, algorithm, stream, rules = asked_for
    place = where(stream)
    key = call_key("blocking", method, arguments, algorithm, rules, place)
    known = context.recent.find(key)
    if known is not None:
        context.calls += 1
        operations.run(known, context)
        if not any(place[3:]):  # what is captured does not wait for its end, as a time limit demands
            hot.note(context, method, arguments, algorithm, stream, known)
        return
    call = Call(context, "blocking", method, arguments, algorithm, stream, rules)
    found, bound = _run(call)
    if is_repeatable(found, place):
        context.recent.remember(key, bound)


def _run(call: Call) -> tuple[Operands, Bound]:
    """Decide and run a blocking call."""
    context, caller = call.context, threading.get_ident()
    operands, trouble = read(call)
    with on(operands.device if operands else -1, call.stream) as pointer:

        def bind(plan: Plan, found: Operands) -> Routine[Bound]:
            yield from ()
            if not found.moved and threading.get_ident() == caller:
                return execute.bind(plan, found, context, pointer, context.slot(0))
            with on(found.device, None if found.moved else Pointer(pointer)) as own:
                return execute.bind(plan, found, context, own, context.slot(0))

        routine = decided(call, operands, trouble, bind)
        if context.last or asked() or (operands and operands.device >= 0 and context.is_unconnected()):
            found, bound = context.complete(lambda _: routine, call.name)
        else:  # there is nobody to wait for
            found, bound = finished(routine)
        if not found.moved:
            _finish(found, bound, context)
            return found, bound
    with on(found.device, None):
        _finish(found, bound, context)
    return found, bound


def _finish(operands: Operands, bound: Bound, context: Context) -> None:
    """Run a call that is decided, on the current device and stream."""
    execute.pack(operands)
    operations.run(bound, context)
    execute.unpack(operands)


def nonblocking(call: Call) -> Operation:
    """Start a call that does not block; local."""
    context, place = call.context, where(call.stream)
    context.check()
    key = call_key("nonblocking", call.method, call.arguments, call.algorithm, call.rules, place)
    known: Decision | None = context.recent.find(key)
    if known is None:
        operands, trouble = read(call)
    else:
        context.calls += 1
        operands, trouble, call.plan = known.operands, None, known.plan
    flight = Flight(call, operands)
    keep = (call.arguments, flight)
    call.arguments = ()  # the arrays live as long as the operation, and no longer
    device = operands.device if operands else -1
    operation = Operation(
        context, lambda own: _whole(own, flight, trouble, known), keep=keep, device=device
    )
    if trouble is not None:
        raise trouble  # the others hear of it meanwhile
    if not (operation.ran or asked()):  # what ranks tell each other is told by Wait, whoever comes first
        operation.check()  # what planning has found
    if known is None and call.plan is not None and operands is not None and is_repeatable(operands, place):
        context.recent.remember(key, Decision.of(operands, call.plan))
    return operation


def _whole(
    operation: Operation, flight: Flight, trouble: Exception | None, known: Decision | None
) -> Routine[None]:
    """Make a call from its operands to its end."""
    try:
        if known is not None:
            found, bound = known.operands, (yield from flight.bind_again(known))
        else:
            found, bound = yield from decided(flight.call, flight.operands, trouble, flight.bind)
        if found.device != operation.device:  # of a call that was moved: current from the next time on
            operation.device = found.device
            yield Later().come
        yield from flight.run(operation, bound, found)
    finally:
        flight.end()


def persistent(call: Call) -> Prepared:
    """Plan and bind a call once."""
    context = call.context
    operands, trouble = read(call)
    taken: list[Slot] = []

    def bind(plan: Plan, found: Operands) -> Routine[Bound]:
        yield from ()
        if not taken:
            taken.append(context.own_slot())
        (slot,) = taken
        if plan.path == "mapped":
            with on(found.device, context.peers.side) as side:
                return execute.bind_new(plan, found, context, side, slot)
        return execute.bind_new(plan, found, context, side_of(slot, found), slot)

    try:
        found, bound = context.complete(lambda _: decided(call, operands, trouble, bind), call.name)
    except BaseException:  # then no rank has it, so that the next one has the same lane on all
        for slot in taken:
            context.release(slot)
            context.persistent -= 1
        raise
    call.arguments = ()  # the arrays live as long as the request, and no longer
    return Prepared(call, found, bound, taken[0])


def plan(call: Call) -> Plan:
    """Return what a call would do; collective if it is the first one, or the first with device arrays."""
    operands = call.read()
    captured = call.captured(operands)
    if operands.device >= 0:
        call.context.connect(operands.device)
    found = at_home(operands, call.context)
    return execute.plan_for(found, call.context, call.algorithm, call.rules, captured=captured)


def tell(context: Context, word: Word, trouble: Exception | None) -> list[Word]:
    """Return all ranks' words on what comes before a call; raises what keeps any of them from it."""
    words: list[Word] = context.exchange(word)
    settle(f"{word.what} #{context.calls}", words, trouble)
    return words


