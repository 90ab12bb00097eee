"""From a call's arguments to its operands, plan and program, agreed on by all ranks where a setting demands it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mpicoll.dispatch.plan import Plan
from mpicoll.errors import UnsupportedError
from mpicoll.kinds import PLAN
from mpicoll.recorder.entry import Decision, Entry
from mpicoll.runtime.arguments.methods import read_call
from mpicoll.runtime.arguments.operands import Operands, check_options
from mpicoll.runtime.call import execute
from mpicoll.runtime.call.agreement import Fingerprint, Flow, Word, asked, settle
from mpicoll.runtime.call.planning import explained, plan_for, tell_choice
from mpicoll.runtime.context.context import Context
from mpicoll.runtime.context.remembered import Remembered
from mpicoll.runtime.cuda.streams import CAPTURED, address_on, given, is_captured
from mpicoll.runtime.paths import offer
from mpicoll.runtime.paths.table import path
from mpicoll.runtime.program.bound import Bound
from mpicoll.runtime.progress.exchange import Routine, exchanged
from mpicoll.runtime.progress.modes import modes
from mpicoll.settings import settings

#: powers of two by which the scratch limit shrinks from one try to the next, where a rank is short of memory
SHRINK = (0, 3, 6, 9)

#: returns a call's program, once there is what it needs
Bind = Callable[[Plan, Operands], Routine[Bound]]


@dataclass(slots=True)
class Call:
    """A call as it was made.

    `comm.Allreduce(x, y)` is `Call(context, "blocking", "Allreduce", (x, y, MPI.SUM), None, None, "")`.

    Attributes:
        context: of the communicator.
        form: "blocking", "nonblocking" or "persistent".
        method: such as "Allreduce".
        arguments: as in the call.
        algorithm: as in the call.
        stream: as in the call.
        rules: of the communicator.
        plan: what was decided, None before that.
        named: as in the call.
        is_captured: it is captured into a CUDA graph, instead of done.
        entry: of the call among those made last, None before it counts as made.
        name: the call with its number, for messages.
    """

    context: Context
    form: str
    method: str
    arguments: tuple[Any, ...]
    algorithm: Any
    stream: Any
    rules: str
    plan: Plan | None = None
    named: dict[str, Any] | None = None
    is_captured: bool = False
    entry: Entry | None = None

    @property
    def name(self) -> str:
        return f"{self.method.lower()} #{self.context.calls}"

    def record(self, known: Remembered | None = None) -> Entry:
        """Keep the call among those made last, and return its entry; `known` is an equal one that is remembered."""
        context, what = self.context, known and known.in_form(self.form)
        self.entry = context.recorder.begin(self.form, self.method, context.calls, what, modes().trace)
        return self.entry

    def read(self) -> Operands:
        """Return the operands, after every check that needs no other rank."""
        with given(self.stream):
            operands = read_call(self.method, self.context.rank, self.context.size, self.arguments, self.named or {})
        check_options(operands, self.algorithm, self.stream)
        return operands

    def captured(self, operands: Operands) -> bool:
        """Tell whether the call is captured into a CUDA graph; refuse what cannot be."""
        return operands.device >= 0 and self.captured_on(address_on(operands.device, self.stream))

    def captured_on(self, address: int) -> bool:
        """Tell whether the call is captured on a stream; refuse what cannot be."""
        if not is_captured(address):
            return False
        why = ""
        if self.form in ("nonblocking", "persistent"):
            why = "the host waits for the end of a call that does not block: make a blocking one"
        elif not self.context.ready or not offer.is_connected(self.context):
            why = "this is the communicator's first call with device arrays: make one before the capture"
        if why:
            raise UnsupportedError(f"{self.method.lower()}: {CAPTURED}, and {why}")
        return True


def read(call: Call) -> tuple[Operands | None, Exception | None]:
    """Return (operands, None) or (None, error), and count the call.

    Raises:
        Exception: what is wrong, at once, where the other ranks need not hear of it: then the call is not made.
    """
    operands, trouble = None, None
    try:
        operands = call.read()
        call.is_captured = call.captured(operands)
    except Exception as error:
        if not asked():
            call.context.refuse(error)
            raise
        trouble = error
    call.context.count()
    call.record()
    return (None if trouble else operands), trouble


def take_back(context: Context, error: BaseException) -> None:
    """Take back a call that has raised before its first message, unless ranks ask each other, and all hear of it."""
    if not asked():
        context.unmade(error)


def decided(
    call: Call, operands: Operands | None, trouble: Exception | None, bind: Bind
) -> Routine[tuple[Operands, Bound]]:
    """Return (operands, program) of a call, planned and bound.

    Where a setting demands it, all ranks agree that they can, and on the same call.  Where memory is short on a
    rank, all ranks try again with a smaller limit, that is with more segments.

    Args:
        call: as it was made.
        operands: of the call, None if they could not be read.
        trouble: the error of reading, None if there was none.
        bind: returns the call's program.
    """
    context = call.context
    if not asked():
        assert operands is not None
        return (yield from _decided_here(call, operands, bind))
    tries = iter(SHRINK)
    limit = settings.scratch_limit >> next(tries)
    while True:
        found, word, error = yield from _tried(call, operands, trouble, limit, bind)
        said = yield from exchanged(context.comm, word, enough=lambda one: bool(one.trouble))
        words: list[Word] = [one or Word(word.what) for one in said]
        if all(one.unconnected for one in words):
            assert operands is not None
            yield from offer.connecting(context, operands.device)
            if call.plan is not None:
                yield from path(call.plan.path).provide(context, call.plan)
            continue
        smaller = next(tries, None)
        if smaller is None or not any(one.short for one in words):
            break
        limit = settings.scratch_limit >> smaller
    called = next((w.fingerprint.collective for w in words if w.fingerprint), call.method.lower())
    settle(f"{called} #{context.calls}", words, error)
    assert found is not None
    if settings.debug not in (0, 1, PLAN):
        assert call.plan is not None
        plan = explained(call.plan, found[0], context)
        print(f"[mpicoll rank {context.rank}] {plan}", file=sys.stderr, flush=True)
    return found


def _decided_here(call: Call, operands: Operands, bind: Bind) -> Routine[tuple[Operands, Bound]]:
    """Return (operands, program) of a call on which the ranks need not agree first; arguments as in `decided`."""
    context = call.context
    if operands.device >= 0:
        yield from offer.connecting(context, operands.device)
    found = at_home(operands, context)
    plan = _planned(call, found, settings.scratch_limit)
    if not call.is_captured:
        yield from path(plan.path).provide(context, plan)
    return (yield from _bound(call, found, plan, bind))


def _tried(
    call: Call, operands: Operands | None, trouble: Exception | None, limit: int, bind: Bind
) -> Routine[tuple[tuple[Operands, Bound] | None, Word, Exception | None]]:
    """Return ((operands, program), word, None), or (None, word, error) where an error keeps the rank from the call.

    Args:
        call: as it was made.
        operands: of the call, None if they could not be read.
        trouble: the error of reading, None if there was none.
        limit: bytes of scratch at most.
        bind: returns the call's program.
    """
    what = call.method.lower()
    if trouble is not None or operands is None:
        assert trouble is not None
        return None, Word.refusing(what, trouble), trouble
    try:
        unconnected = Word(what, unconnected=True)
        if operands.device >= 0 and not offer.is_connected(call.context):
            return None, unconnected, None
        home = at_home(operands, call.context)
        plan = _planned(call, home, limit)
        if not call.is_captured and path(plan.path).lacks(call.context, plan):
            return None, unconnected, None
        found, bound = yield from _bound(call, home, plan, bind)
    except Exception as error:
        return None, Word.refusing(what, error), error
    flow = Flow.of(found, call.context.size)
    return (found, bound), Word(operands.method, Fingerprint.of(call.form, found, plan), flow), None


def _planned(call: Call, operands: Operands, limit: int) -> Plan:
    """Return the plan of a call with so many bytes of scratch at most."""
    call.plan = plan_for(operands, call.context, call.algorithm, call.rules, limit, call.is_captured)
    tell_choice(call.plan, call.context)
    return call.plan


def _bound(call: Call, operands: Operands, plan: Plan, bind: Bind) -> Routine[tuple[Operands, Bound]]:
    """Return (operands, program) of a call that is planned, without a copy where its path needs none.

    Args:
        call: as it was made.
        operands: of the call.
        plan: what was chosen.
        bind: returns the call's program.
    """
    if operands.held and path(plan.path).needs_no_copy(plan, operands, call.context):
        operands = operands.without_copy()
    if operands.held and call.is_captured:
        offer.refuse_copies(operands)
    if call.entry is not None:
        call.entry.known = Decision(operands.without_arrays(), plan.of(call.form))
    bound = yield from bind(plan, operands)
    if call.entry is not None:
        call.entry.bound = True
    return operands, bound


def at_home(operands: Operands, context: Context) -> Operands:
    """Return the call on the device where the communicator's calls work, if there is one."""
    if operands.device < 0 or (home := offer.home(context)) in (-1, operands.device):
        return operands
    from mpicoll.runtime.cuda.migrate import moved

    return moved(operands, home)


def is_repeatable(operands: Operands, place: tuple[Any, ...]) -> bool:
    """Tell whether an equal call need not be decided again."""
    packed = operands.before or operands.after
    elsewhere = operands.device >= 0 and operands.device != place[0]
    return not (packed or elsewhere or asked())


def remember(call: Call, operands: Operands, plan: Plan, key: Any) -> Remembered | None:
    """Return a call that is remembered from now on, None if it has no key.

    Args:
        call: as it was made.
        operands: of the call.
        plan: what was chosen.
        key: of the call, None if it must not be remembered.
    """
    if key is None:
        return None
    return call.context.cache.decide(key, operands, plan, mobile=execute.is_mobile(plan, operands))
