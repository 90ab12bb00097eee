"""The common part of the paths of messages: a compiled program, bound to memory, with messages by MPI."""

from __future__ import annotations

from functools import lru_cache

from mpicoll.dispatch.plan import Plan
from mpicoll.runtime.arguments.operands import Operands
from mpicoll.runtime.arguments.operators import Operator
from mpicoll.runtime.context.context import Context
from mpicoll.runtime.context.slot import Slot
from mpicoll.runtime.paths.base import Path
from mpicoll.runtime.program.binder import Binder
from mpicoll.runtime.program.bound import LAUNCH, Bound
from mpicoll.runtime.program.layout import Layout, Shape
from mpicoll.runtime.program.local_work import Action, LocalWork
from mpicoll.runtime.program.placement import Placement
from mpicoll.runtime.program.wrapper import Wrapper
from mpicoll.schedule import pack as packing
from mpicoll.schedule.ir import Schedule
from mpicoll.schedule.planner import compile_program
from mpicoll.schedule.program import Program

#: local work, addresses of "input" and "output" for it, wrapper
Surroundings = tuple[LocalWork, dict[str, int], Wrapper]


class Messages(Path):
    """A path on which MPI carries messages between arrays, or between copies of them."""

    def bind(
        self,
        bound: Bound,
        plan: Plan,
        operands: Operands,
        context: Context,
        stream: int,
        slot: Slot,
        then: list[Action],
    ) -> None:
        """Append the messages and the local work of a plan; arguments as in `Path.bind`."""
        shape = Shape.of(operands, context.rank, context.size)
        placement = placement_of(plan, shape, operands.aliased, operands.dtype.itemsize)
        layout = placement.layout
        work, where, wrapper = self.surroundings(operands, stream, slot, layout)
        bases = {**where, "scratch": self.scratch(operands, slot, layout)}
        binder = Binder(context.comm, work, context.waiter, slot.lane)
        op = self.operator(operands, stream)
        binder.bind(bound, placement, bases, operands.dtype, op, wrapper)
        bound.add(LAUNCH, *then)

    def surroundings(self, operands: Operands, stream: int, slot: Slot, layout: Layout) -> Surroundings:
        """Return (local work, addresses, wrapper): who does local work, on which memory, and what wraps the program.

        Args:
            operands: the call.
            stream: address of the stream on which the call works, 0 on the host.
            slot: whose memory the call uses.
            layout: of the program's cells.
        """
        raise NotImplementedError

    def scratch(self, operands: Operands, slot: Slot, layout: Layout) -> int:
        """Return the address of the scratch."""
        return slot.arena("host", -1, layout.scratch_bytes).pointer

    def operator(self, operands: Operands, stream: int) -> Operator | None:
        """Return the operator, made for the memory in which the local work is done."""
        return operands.op


def placement_of(plan: Plan, shape: Shape, aliased: bool, itemsize: int) -> Placement:
    """Return the compiled program for a plan and a shape, placed in its buffers.

    Args:
        plan: what was chosen.
        shape: of the call.
        aliased: input and output are the same memory.
        itemsize: bytes of an element.
    """
    return placed(plan.schedule, shape, aliased, itemsize, plan.segments, plan.lanes)


@lru_cache(maxsize=4096)
def placed(
    schedule: Schedule, shape: Shape, aliased: bool, itemsize: int, segments: int = 1, lanes: int = 1
) -> Placement:
    """Return the compiled program of a schedule, placed in its buffers.

    Args:
        schedule: of this rank.
        shape: of the call.
        aliased: input and output are the same memory.
        itemsize: bytes of an element.
        segments: of every block.
        lanes: segments in flight.
    """
    program = program_of(schedule, shape, aliased, segments, lanes)
    return Placement.of(program, Layout(shape, program.schedule, program.segments, program.lanes, itemsize))


def program_of(schedule: Schedule, shape: Shape, aliased: bool, segments: int, lanes: int) -> Program:
    """Return the compiled program of a schedule; arguments as in `placed`."""
    packed = packing.pack(schedule, lambda ref: shape.contiguous(ref, segments))
    return _compiled(packed, segments, lanes, aliased)


#: calls of most sizes share the compiled program of a schedule
_compiled = lru_cache(maxsize=1024)(compile_program)
