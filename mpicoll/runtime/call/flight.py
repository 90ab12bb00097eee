"""Calls that do not block: what goes around their programs, and persistent calls from start to start."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mpicoll.dispatch.plan import Plan
from mpicoll.runtime.arguments.operands import Operands
from mpicoll.runtime.call import execute
from mpicoll.runtime.call.decision import Call
from mpicoll.runtime.call.recent import Decision
from mpicoll.runtime.context.slot import Slot
from mpicoll.runtime.cuda.streams import Pointer, on
from mpicoll.runtime.program.bound import Bound
from mpicoll.runtime.progress import operations
from mpicoll.runtime.progress.exchange import Routine, finished
from mpicoll.runtime.progress.operations import Operation


class Flight:
    """What a call that does not block has around its program: packing, and order with the caller's stream."""

    def __init__(self, call: Call, operands: Operands | None) -> None:
        """Pack, and mark the place on the caller's stream behind which the call comes."""
        self.context, self.handover = call.context, None
        self.slot: Slot | None = None
        self.call, self.operands = call, operands
        if operands is None:
            return
        with on(operands.device, None if operands.moved else call.stream) as pointer:
            if operands.device >= 0:
                call.captured_on(pointer)  # a persistent call was read when its stream was not captured
            execute.pack(operands)
            if operands.device >= 0:
                from mpicoll.runtime.cuda.work import Handover

                self.handover = Handover(operands.device, pointer)
        self.operands = replace(operands, before=[]) if operands.before else operands

    def bind(self, plan: Plan, operands: Operands) -> Routine[Bound]:
        """Return the call's program, on a stream beside the caller's, in a slot that is free."""
        if operands.moved:
            return (yield from self._bind_elsewhere(plan, operands))
        return (yield from self._bind(plan, operands))

    def _bind_elsewhere(self, plan: Plan, operands: Operands) -> Routine[Bound]:
        """Return the program of a call whose arrays were copied to another device, whose streams it is ordered with."""
        from mpicoll.runtime.cuda.work import Handover

        if plan.path != "mapped" and self.slot is None:
            yield from self._take_slot()
        with on(operands.device, None) as own:
            execute.pack(operands)
            self.handover = Handover(operands.device, own)
            return finished(self._bind(plan, operands))

    def _bind(self, plan: Plan, operands: Operands) -> Routine[Bound]:
        if plan.path == "mapped":
            return self._bind_mapped(plan, operands)
        slot = self.slot or (yield from self._take_slot())
        side = side_of(slot, operands)
        if self.handover is not None:
            self.handover.side = side
        return execute.bind(plan, operands, self.context, side, slot)

    def bind_again(self, known: Decision) -> Routine[Bound]:
        """Return the program of a call that was made before."""
        if self.handover is not None:
            return (yield from self.bind(known.plan, known.operands))
        slot = yield from self._take_slot()
        bound = known.bounds.get(id(slot))
        if bound is None or not bound.alive:
            bound = known.bounds[id(slot)] = execute.bind(known.plan, known.operands, self.context, 0, slot)
        return bound

    def _take_slot(self) -> Routine[Slot]:
        slot = self.context.free_slot()
        if slot is None:
            yield lambda: self.context.free_slot() is not None
            slot = self.context.free_slot()
            assert slot is not None
        slot.taken, self.slot = True, slot
        return slot

    def _bind_mapped(self, plan: Plan, operands: Operands) -> Bound:
        peers = self.context.peers
        assert self.handover is not None
        self.handover.side = int(peers.side.ptr)
        with on(operands.device, peers.side) as side:
            known = execute.bind(plan, operands, self.context, side, self.context.slot(0))
        from mpicoll.runtime.paths.mapped import path

        return path.handed_over(known, self.handover, self.context)

    def run(self, operation: Operation, bound: Bound, operands: Operands) -> Routine[None]:
        """Run the program behind what is on the caller's stream, and unpack."""
        if self.handover is not None and bound.requests:
            operation.own = True
            yield self.handover.ready
        yield from operations.steps(operation, bound)
        if self.handover is None:
            execute.unpack(operands)
            return
        if not operands.moved:  # else the host waits for the copies, and what is behind them is on another device
            self._unpack_aside(operands)
        if bound.requests or operands.after:  # the end of a kernel was awaited
            self.handover.finish()
        if operands.moved:
            with on(self.handover.device, self.handover):
                execute.unpack(operands)

    def _unpack_aside(self, operands: Operands) -> None:
        """Unpack behind the program, on its own stream: the caller's may be captured by now."""
        assert self.handover is not None
        if operands.after:
            with on(self.handover.device, Pointer(self.handover.side)):
                execute.unpack(operands)

    def end(self) -> None:
        """Give back the slot."""
        if self.slot is not None:
            self.slot.taken = False


@dataclass
class Prepared:
    """A persistent call, planned and bound once.

    Attributes:
        call: as it was made.
        operands: of the call.
        bound: its program.
        slot: its own.
    """

    call: Call
    operands: Operands
    bound: Bound
    slot: Slot

    def start(self) -> Operation:
        """Start the call."""
        context = self.call.context
        context.check()
        flight = Flight(self.call, self.operands)

        def whole(operation: Operation) -> Routine[None]:
            bound = self.bound
            if flight.handover is not None and self.operands.device >= 0:
                bound = yield from _restarted(flight, self)
            yield from flight.run(operation, bound, self.operands)

        device = self.operands.device
        return Operation(context, whole, keep=(self, flight), device=device, lane=self.lane)

    @property
    def lane(self) -> int:
        """Lane of its messages; kernels of the path mapped come in the order of all calls."""
        return self.slot.lane if self.bound.requests else operations.COMMON

    def free(self) -> None:
        """Give everything back."""
        self.bound.free()
        self.call.context.release(self.slot)


def _restarted(flight: Flight, prepared: Prepared) -> Routine[Bound]:
    """Return a persistent call's program, behind the caller's stream of this start."""
    yield from ()
    assert flight.handover is not None and prepared.call.plan is not None
    if prepared.call.plan.path == "mapped":
        from mpicoll.runtime.paths.mapped import path

        flight.handover.side = int(flight.context.peers.side.ptr)
        return path.handed_over(prepared.bound, flight.handover, flight.context)
    flight.handover.side = side_of(prepared.slot, prepared.operands)
    return prepared.bound


def side_of(slot: Slot, operands: Operands) -> int:
    """Return the stream that a call which does not block works on, 0 on the host."""
    return int(slot.side_stream(operands.device).ptr) if operands.device >= 0 else 0
