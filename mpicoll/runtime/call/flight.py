"""Calls that do not block: their flights, and persistent calls from start to start."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from mpicoll.dispatch.plan import Plan
from mpicoll.recorder.entry import Decision, Entry
from mpicoll.runtime.arguments.operands import Operands
from mpicoll.runtime.call import execute
from mpicoll.runtime.call.decision import Call, remember
from mpicoll.runtime.context.remembered import Remembered
from mpicoll.runtime.context.slot import Slot
from mpicoll.runtime.cuda.streams import Pointer, address_of, at, current_stream, on
from mpicoll.runtime.paths.table import path
from mpicoll.runtime.program.bound import Bound
from mpicoll.runtime.progress import turns
from mpicoll.runtime.progress.exchange import Routine
from mpicoll.runtime.progress.modes import modes
from mpicoll.runtime.progress.operations import COMMON, Operation, steps
from mpicoll.runtime.progress.straight import Straight, goes_straight
from mpicoll.runtime.progress.turns import in_flight

#: number of the slot of calls that do not block and take their turn: none of blocking calls, which may come between
ASIDE = -1


class Flight:
    """A call that does not block, around its program: packing, and order with the caller's stream.

    Attributes:
        handover: order with the caller's stream, None on the host.
        slot: that the call has taken, None before that.
        begun: the caller has its request: the call is made, whatever comes.
    """

    begun = False

    def __init__(
        self, call: Call, operands: Operands | None, known: Remembered | None = None, key: Any = None
    ) -> None:
        """Pack, and mark the place on the caller's stream after which the call comes.

        Args:
            call: as it was made.
            operands: of the call, None if they could not be read.
            known: the call, if it is remembered.
            key: by which it is remembered from now on, None if it must not be.
        """
        self.key = key
        self.context, self.handover = call.context, None
        self.slot: Slot | None = None
        self.call, self.operands, self.known = call, operands, known
        if operands is None:
            return
        with on(operands.device, None if operands.moved else call.stream) as pointer:
            if operands.device >= 0:
                call.captured_on(pointer)  # a persistent call was read when its stream was not captured
            execute.pack(operands)
            if operands.device >= 0:
                from mpicoll.runtime.cuda.order import Handover

                self.handover = Handover(operands.device, pointer)
        self.operands = replace(operands, before=[]) if operands.before else operands

    def bind(self, plan: Plan, operands: Operands) -> Routine[Bound]:
        """Return the call's program, on a stream beside the caller's, in a slot that is free."""
        while self.slot is None and not path(plan.path).ordered:
            self.slot = self.context.take_slot()
            if self.slot is None:
                yield lambda: self.context.free_slot() is not None
        if self.handover is None and self.known is not None:  # arrays on the host again: no time to lose
            bound = self.known.program((id(self.slot), 0))
            if bound is not None:
                return bound
        if not operands.moved:
            return self._bound(plan, operands)
        from mpicoll.runtime.cuda.order import Handover

        with on(operands.device, None) as own:  # the arrays were copied to that device, with whose stream it is ordered
            execute.pack(operands)
            self.handover = Handover(operands.device, own)
            return self._bound(plan, operands)

    def _bound(self, plan: Plan, operands: Operands) -> Bound:
        way = path(plan.path)
        slot = self.slot or self.context.slot(0 if way.captures else ASIDE)
        if self.known is None and self.key is not None and not operands.moved:
            self.known = remember(self.call, operands, plan, self.key)
        if self.handover is None:  # arrays on the host
            return execute.bind(plan, operands, self.context, 0, slot, self.known)
        with on(operands.device, way.side(self.context, operands, slot)) as side:
            bound = execute.bind(plan, operands, self.context, side, slot, self.known)
        return self.ordered(bound, side, plan)

    def ordered(self, bound: Bound, side: int, plan: Plan) -> Bound:
        """Return a program on a stream beside the caller's, in order with the caller's; on the host the same."""
        if self.handover is None:
            return bound
        self.handover.side = side
        return path(plan.path).handed_over(bound, self.handover, self.context)

    def run(self, operation: Operation, bound: Bound, operands: Operands) -> Routine[None]:
        """Run the program after what is on the caller's stream, and unpack."""
        program, sends = steps(operation, bound), bool(bound.requests)  # of a program that may be freed at its end
        mark = bound.mark
        if self.handover is not None and sends:
            operation.own = True
            yield self.handover.ready
        yield from program
        if self.handover is None:
            execute.unpack(operands)
            return
        if sends and mark is not None:  # a kernel behind messages, which may wait for others
            operation.own = True
            yield mark()
            self.context.look()
        if not operands.moved:  # else the host waits for the copies, and what comes later is on another device
            self._unpack_aside(operands)
        if sends or operands.after:  # the end of a kernel was awaited
            self.handover.finish()
        operation.complete = self.handover.synchronize
        if operands.moved:
            with on(self.handover.device, self.handover):
                execute.unpack(operands)
            operation.complete = self.handover.synchronize_caller

    def _unpack_aside(self, operands: Operands) -> None:
        """Unpack after the program, on its own stream: the caller's may be captured by now."""
        assert self.handover is not None
        if operands.after:
            with on(self.handover.device, Pointer(self.handover.side)):
                execute.unpack(operands)

    def end(self) -> None:
        """Give back the slot."""
        if self.slot is not None:
            self.slot.taken = False


def nothing_waits() -> bool:
    """Tell whether a call can be enqueued now: none is on its way whose messages could wait for it, or fail."""
    return not (in_flight or modes()[1])


def enqueued(
    call: Call, plan: Plan, device: int, bound: Bound, keep: object, aims: tuple[int, int] | None = None
) -> Any:
    """Return a call that does not block, all of it enqueued; of a path that captures, while nothing waits.

    Args:
        call: as it was made.
        plan: what was chosen.
        device: of its arrays.
        bound: its program, on the side stream.
        keep: lives until the end of the call.
        aims: addresses at which a mobile program is to be aimed.
    """
    with at(device):
        stream = call.stream if call.stream is not None else current_stream(device)
        caller = address_of(stream)
        call.captured_on(caller)
        with turns.lock:  # another thread may aim the same program
            if bound.aim is not None and aims is not None:
                bound.aim(*aims)
            return path(plan.path).enqueued(bound, call.context, caller, (keep, stream))


@dataclass
class Prepared:
    """A persistent call, planned and bound once.

    Attributes:
        call: as it was made.
        plan: what was chosen.
        operands: of the call.
        bound: its program.
        side: address of the stream of its program, 0 on the host.
        slot: its own.
        keep: arguments of the call, whose arrays live as long as the request.
        what: is kept of its starts among the calls made last.
    """

    call: Call
    plan: Plan
    operands: Operands
    bound: Bound
    side: int
    slot: Slot
    keep: Any
    what: Decision

    def start(self) -> Any:
        """Start the call."""
        context, operands = self.call.context, self.operands
        context.check()
        if goes_straight(operands.device) and not (operands.before or operands.after):
            starts = context.recorder.starts
            starts.number = number = starts.number + 1
            return Straight(context, self.bound, self, lane=self.lane, recent=starts, number=number, what=self.what)
        if path(self.plan.path).captures and nothing_waits() and not (operands.before or operands.after):
            with self._record():
                return enqueued(self.call, self.plan, operands.device, self.bound, self)
        flight = Flight(self.call, self.operands)
        bound = flight.ordered(self.bound, self.side, self.plan)
        return Operation(
            context,
            lambda operation: flight.run(operation, bound, self.operands),
            keep=(self, flight),
            device=self.operands.device,
            lane=self.lane,
            entry=self._record(),
        )

    def _record(self) -> Entry:
        """Keep a start among the calls made last, and return its entry."""
        recorder, what = self.call.context.recorder, self.what
        return recorder.begin(what.form, self.call.method, what.sequence, what, modes().trace, bound=True)

    @property
    def lane(self) -> int:
        """Lane of its messages; what is ordered comes in the order of all calls."""
        return COMMON if path(self.plan.path).ordered else self.slot.lane

    def free(self) -> None:
        """Give everything back."""
        self.bound.free()
        self.call.context.release(self.slot)
