"""A call's way from its arguments to a running program, the same for all forms.

    read -> (all ranks agree) -> plan -> bind -> run

A blocking call is prepared by a routine and then run; a call that does not block is one routine for
both, which waits for whatever it needs: the first call's exchange, the peers' memory, other ranks' words.
"""

from __future__ import annotations

import threading
from typing import Any

from mpicoll.dispatch.plan import Plan
from mpicoll.runtime import execute, faults, progress
from mpicoll.runtime.agreement import Word, asked, settle
from mpicoll.runtime.bound import Bound
from mpicoll.runtime.call_key import call_key
from mpicoll.runtime.channel import Channel
from mpicoll.runtime.decision import Call, at_home, decided, is_repeatable, read
from mpicoll.runtime.exchange import Later, Routine, finished
from mpicoll.runtime.flight import Flight, Prepared, side_of
from mpicoll.runtime.hot import HotCalls
from mpicoll.runtime.operands import Operands
from mpicoll.runtime.progress import Operation
from mpicoll.runtime.recent import Decision
from mpicoll.runtime.slot import Slot
from mpicoll.runtime.streams import Pointer, on, where

#: method, arguments, algorithm, stream, and the communicator's rules
Asked = tuple[str, tuple[Any, ...], Any, Any, str]


def blocking(channel: Channel, hot: HotCalls, asked_for: Asked) -> None:
    """Make a blocking call; where it fails with messages on their way, their memory is kept."""
    try:
        _blocking(channel, hot, asked_for)
    except BaseException:
        if channel.broken:
            faults.abandoned.append((channel, asked_for))
        raise


def _blocking(channel: Channel, hot: HotCalls, asked_for: Asked) -> None:
    """Run a remembered call, or decide and remember."""
    method, arguments, algorithm, stream, rules = asked_for
    place = where(stream)
    key = call_key("blocking", method, arguments, algorithm, rules, place)
    known = channel.recent.find(key)
    if known is not None:
        channel.calls += 1
        progress.run(known, channel)
        if not any(place[3:]):  # what is captured does not wait for its end, as a time limit demands
            hot.note(channel, method, arguments, algorithm, stream, known)
        return
    call = Call(channel, "blocking", method, arguments, algorithm, stream, rules)
    found, bound = _run(call)
    if is_repeatable(found, place):
        channel.recent.remember(key, bound)


def _run(call: Call) -> tuple[Operands, Bound]:
    """Decide and run a blocking call."""
    channel, caller = call.channel, threading.get_ident()
    operands, trouble = read(call)
    with on(operands.device if operands else -1, call.stream) as pointer:

        def bind(plan: Plan, found: Operands) -> Routine[Bound]:
            yield from ()
            if not found.moved and threading.get_ident() == caller:
                return execute.bind(plan, found, channel, pointer, channel.slot(0))
            with on(found.device, None if found.moved else Pointer(pointer)) as own:
                return execute.bind(plan, found, channel, own, channel.slot(0))

        routine = decided(call, operands, trouble, bind)
        if channel.last or asked() or (operands and operands.device >= 0 and channel.is_unconnected()):
            found, bound = channel.complete(lambda _: routine, call.name)
        else:  # there is nobody to wait for
            found, bound = finished(routine)
        if not found.moved:
            _finish(found, bound, channel)
            return found, bound
    with on(found.device, None):
        _finish(found, bound, channel)
    return found, bound


def _finish(operands: Operands, bound: Bound, channel: Channel) -> None:
    """Run a call that is decided, on the current device and stream."""
    execute.pack(operands)
    progress.run(bound, channel)
    execute.unpack(operands)


def nonblocking(call: Call) -> Operation:
    """Start a call that does not block; local."""
    channel, place = call.channel, where(call.stream)
    channel.check()
    key = call_key("nonblocking", call.method, call.arguments, call.algorithm, call.rules, place)
    known: Decision | None = channel.recent.find(key)
    if known is None:
        operands, trouble = read(call)
    else:
        channel.calls += 1
        operands, trouble, call.plan = known.operands, None, known.plan
    flight = Flight(call, operands)
    keep = (call.arguments, flight)
    call.arguments = ()  # the arrays live as long as the operation, and no longer
    device = operands.device if operands else -1
    operation = Operation(
        channel, lambda own: _whole(own, flight, trouble, known), keep=keep, device=device
    )
    if trouble is not None:
        raise trouble  # the others hear of it meanwhile
    if not (operation.ran or asked()):  # what ranks tell each other is told by Wait, whoever comes first
        operation.check()  # what planning has found
    if known is None and call.plan is not None and operands is not None and is_repeatable(operands, place):
        channel.recent.remember(key, Decision.of(operands, call.plan))
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
    channel = call.channel
    operands, trouble = read(call)
    taken: list[Slot] = []

    def bind(plan: Plan, found: Operands) -> Routine[Bound]:
        yield from ()
        if not taken:
            taken.append(channel.own_slot())
        (slot,) = taken
        if plan.path == "mapped":
            with on(found.device, channel.peers.side) as side:
                return execute.bind_new(plan, found, channel, side, slot)
        return execute.bind_new(plan, found, channel, side_of(slot, found), slot)

    try:
        found, bound = channel.complete(lambda _: decided(call, operands, trouble, bind), call.name)
    except BaseException:  # then no rank has it, so that the next one has the same lane on all
        for slot in taken:
            channel.release(slot)
            channel.persistent -= 1
        raise
    call.arguments = ()  # the arrays live as long as the request, and no longer
    return Prepared(call, found, bound, taken[0])


def plan(call: Call) -> Plan:
    """Return what a call would do; collective if it is the first one, or the first with device arrays."""
    operands = call.read()
    captured = call.captured(operands)
    if operands.device >= 0:
        call.channel.connect(operands.device)
    found = at_home(operands, call.channel)
    return execute.plan_for(found, call.channel, call.algorithm, call.rules, captured=captured)


def tell(channel: Channel, word: Word, trouble: Exception | None) -> list[Word]:
    """Return all ranks' words on what comes before a call; raises what keeps any of them from it."""
    words: list[Word] = channel.exchange(word)
    settle(f"{word.what} #{channel.calls}", words, trouble)
    return words


