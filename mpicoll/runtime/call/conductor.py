"""A call's way from its arguments to a running program, the same for all forms.

    read -> (all ranks agree) -> plan -> bind -> run

A call that was made before is found in the communicator's call cache, and only run.  A blocking call is
prepared by a routine and then run; those that do not block are in `call/starting.py`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from mpicoll.dispatch.plan import Plan
from mpicoll.recorder.recent import MASK
from mpicoll.runtime.arguments.operands import Operands
from mpicoll.runtime.call import execute, shortcut
from mpicoll.runtime.call.agreement import Word, asked, settle
from mpicoll.runtime.call.call_key import call_key
from mpicoll.runtime.call.decision import Call, at_home, decided, is_repeatable, read, remember, take_back
from mpicoll.runtime.call.planning import explained, plan_for
from mpicoll.runtime.context.context import Context
from mpicoll.runtime.context.remembered import Remembered
from mpicoll.runtime.cuda.streams import Pointer, on, where
from mpicoll.runtime.paths import offer
from mpicoll.runtime.program.bound import Bound
from mpicoll.runtime.progress import faults, running
from mpicoll.runtime.progress.exchange import Routine, finished
from mpicoll.runtime.progress.modes import modes
from mpicoll.runtime.progress.turns import in_flight

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
        cache = context.cache
        mobile = cache.find if in_flight else cache.find_mobile  # one that may be launched later has its own program
        known = cache.find(key) or mobile(key) or cache.find_anywhere(key)
        if known is not None:
            bound = _made_again(context, asked_for, known, place)
            if bound.aim is not None and known.aims is not None:
                return
            known.found = times = known.found + 1
            if times & (times - 1):  # it is noted after 1, 2, 4, 8 ... times, for it may be in vain
                return
            if modes().trace:  # which has the end of each call
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


def _made_again(context: Context, asked_for: CallArguments, known: Remembered, place: tuple[Any, ...]) -> Bound:
    """Make a remembered call again, and return its program.

    Args:
        context: the communicator's.
        asked_for: as in `blocking`.
        known: the remembered call.
        place: device and stream of the call (see `streams.where`).
    """
    bound = known.blocking
    if bound is None or not bound.alive:
        try:
            bound = known.blocking = _bound_again(known, context, place, asked_for[3])
        except BaseException as error:
            context.refuse(error)
            raise
    if context.barred:
        context.come("blocking", asked_for[0], context.calls + 1)
    number = context.count()
    if bound.aim is not None and known.aims is not None:
        bound.aim(*known.aims)
    file = modes().trace
    if file:
        with context.recorder.begin("blocking", asked_for[0], number, known, file, bound=True):
            running.run(bound, context)
        return bound
    context.recent[number & MASK], context.began[number & MASK] = known, time.monotonic()
    try:
        running.run(bound, context)
    except BaseException as error:
        context.recorder.calls.fail(number & MASK, number, error)
        raise
    return bound


def failed(context: Context, bound: Bound, arguments: tuple[Any, ...], error: BaseException) -> None:
    """Do what is to be done after a call that took the shortcut and raised; raise the error with more words, if any."""
    context.recorder.calls.fail(context.calls & MASK, context.calls, error)
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
    operands, trouble = read(call)
    assert call.entry is not None
    with call.entry:
        _decide_and_run(call, operands, trouble, key_of)


def _decide_and_run(
    call: Call, operands: Operands | None, trouble: Exception | None, key_of: Callable[[Operands], Any]
) -> None:
    """Decide and run a blocking call whose arguments are read.

    Args:
        call: as it was made.
        operands: of the call, None if they could not be read.
        trouble: the error of reading, None if there was none.
        key_of: returns the key by which the call is remembered, None if it must not be.
    """
    context, caller = call.context, threading.get_ident()
    with on(operands.device if operands else -1, call.stream) as pointer:

        def bind(plan: Plan, found: Operands) -> Routine[Bound]:
            yield from ()
            known = remember(call, found, plan, key_of(found))
            if not found.moved and threading.get_ident() == caller:
                return execute.bind(plan, found, context, pointer, context.slot(0), known)
            with on(found.device, None if found.moved else Pointer(pointer)) as own:
                return execute.bind(plan, found, context, own, context.slot(0), known)

        routine = decided(call, operands, trouble, bind)
        try:
            if context.last or asked() or (operands and operands.device >= 0):
                found, bound = context.complete(lambda _: routine, call.name)
            else:  # there is nobody to wait for
                found, bound = finished(routine)
            context.come("blocking", call.method, context.calls)
        except BaseException as error:
            take_back(context, error)
            raise
        if not found.moved:
            _finish(found, bound, context)
            return
    with on(found.device, None):
        _finish(found, bound, context)


def _finish(operands: Operands, bound: Bound, context: Context) -> None:
    """Run a call that is decided, on the current device and stream."""
    execute.pack(operands)
    running.run(bound, context)
    execute.unpack(operands)


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
