"""The messages between hosts on the path bridged: from the arrays themselves, or from copies in pinned host memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mpicoll.runtime.arguments.operands import Operands
from mpicoll.runtime.arguments.operators import Operator
from mpicoll.runtime.context.context import Context
from mpicoll.runtime.context.slot import Slot
from mpicoll.runtime.cuda.work import Device
from mpicoll.runtime.host.work import Host
from mpicoll.runtime.paths.messages import placed
from mpicoll.runtime.paths.mirror import Ordered, unmappable
from mpicoll.runtime.paths.staged import operator_on_host
from mpicoll.runtime.program.align import aligned
from mpicoll.runtime.program.binder import Binder
from mpicoll.runtime.program.bound import LAUNCH, ORDER, Bound
from mpicoll.runtime.program.layout import Layout, Shape, merge
from mpicoll.runtime.program.local_work import Action, LocalWork, Run
from mpicoll.runtime.program.placement import STARTS, Placement
from mpicoll.schedule.ir import Ref
from mpicoll.schedule.phases import Phases, touched

#: parts of each buffer: (start, bytes)
Parts = dict[str, list[Run]]


@dataclass(frozen=True)
class Bridge:
    """The exchange between hosts of one rank.

    Attributes:
        placement: of its program in the buffers.
        bases: addresses at which "input", "output" and "scratch" start on the device.
        near: those at which the messages find them: the same, or in pinned memory.
        work: does local work.
        op: the operator, for the memory in which the work is done.
        around: order on the stream, and copies.
        context: the communicator's.
        lane: place of the tags.
    """

    placement: Placement
    bases: dict[str, int]
    near: dict[str, int]
    work: LocalWork
    op: Operator | None
    around: Ordered
    context: Context
    lane: int

    @property
    def layout(self) -> Layout:
        """Where cells are."""
        return self.placement.layout

    def bind(self, bound: Bound, operands: Operands) -> None:
        """Append the messages to a program, if this rank has some."""
        if self.placement.program.schedule.steps:
            binder = Binder(self.context.comm, self.work, self.context.waiter, self.lane)
            binder.bind(bound, self.placement, self.near, operands.dtype, self.op, self.around)


def bridge_of(
    phases: Phases,
    shape: Shape,
    operands: Operands,
    stream: int,
    slot: Slot,
    context: Context,
    look: Action | None = None,
) -> Bridge:
    """Return the exchange between hosts.

    Args:
        phases: of the call on this rank's host.
        shape: of the call.
        operands: the call.
        stream: address of the stream on which the call works.
        slot: whose scratch and tags it uses.
        context: the communicator's.
        look: raises where the kernel before has waited for a peer in vain: what it left must not be sent.
    """
    device, fence = operands.device, slot.fence(operands.device)
    placement = placed(phases.between, shape, operands.aliased, operands.dtype.itemsize)
    layout = placement.layout
    bases = {**operands.bases, "scratch": slot.arena("device", device, layout.scratch_bytes).pointer}
    worker = Device(device, stream)
    if context.cuda_aware.aware and not unmappable(operands):
        around = Middle(fence, stream, look)
        return Bridge(placement, bases, bases, worker, operands.op, around, context, slot.lane)
    read, written = touched(placement.program.schedule)
    near = _pinned(bases, _runs([*read, *written], layout), slot, device)
    down, up = (_runs(cells, layout) for cells in (read, phases.needed(written)))
    around = MirrorMiddle(fence, stream, look, worker, _pairs(near, bases, down), _pairs(bases, near, up))
    op = operator_on_host(operands, stream)
    return Bridge(placement, bases, near, Host(), op, around, context, slot.lane)


class Middle(Ordered):
    """A program in the middle of a call on a stream: after what is on it so far, if that went well."""

    def __init__(self, fence: Any, stream: int, look: Action | None) -> None:
        """Order with a slot's fence, on a stream's address; `look` raises where it did not go well."""
        super().__init__(fence, stream)
        self.look = look

    def first(self, bound: Bound) -> None:
        """Wait for the stream."""
        super().first(bound)
        bound.add(ORDER, self.look)

    def last(self, bound: Bound) -> None:
        """Leave the end to the call."""


class MirrorMiddle(Middle):
    """The same on copies of what it reads, and of what it writes."""

    def __init__(
        self,
        fence: Any,
        stream: int,
        look: Action | None,
        worker: Device,
        before: list[tuple[Run, Run]],
        after: list[tuple[Run, Run]],
    ) -> None:
        """Copy with a worker on the stream.

        Args:
            fence: orders calls that use the same memory.
            stream: address of the stream.
            look: as in `Middle`.
            worker: copies.
            before: (copy, original) of what is read.
            after: (original, copy) of what is written.
        """
        super().__init__(fence, stream, look)
        self.worker, self.before, self.after = worker, before, after

    def first(self, bound: Bound) -> None:
        """Copy, and wait for the stream."""
        bound.add(LAUNCH, *(self.worker.copy(to, origin) for to, origin in self.before))
        super().first(bound)

    def last(self, bound: Bound) -> None:
        """Copy back."""
        bound.add(LAUNCH, *(self.worker.copy(to, origin) for to, origin in self.after))


def _runs(cells: list[Ref], layout: Layout) -> Parts:
    """Return the memory of cells, by buffer, counted from its start."""
    found: Parts = {}
    for buffer in STARTS:
        runs = (layout.cell(buffer, cell.cells[0], 0, STARTS) for cell in cells if cell.buffer == buffer)
        found[buffer] = merge(sorted(runs))
    return found


def _pinned(bases: dict[str, int], parts: Parts, slot: Slot, device: int) -> dict[str, int]:
    """Return the addresses at which buffers would start in pinned memory, of which only what is touched is there.

    Args:
        bases: the buffers.
        parts: what of them messages and work touch.
        slot: whose memory it is.
        device: number of the device.
    """
    begins, total = {}, 0
    for buffer in bases:
        runs = parts[buffer]
        low = min((start for start, _ in runs), default=0)
        begins[buffer] = total - low
        total += aligned(max((start + nbytes for start, nbytes in runs), default=low) - low)
    memory = slot.arena("pinned", device, total).pointer
    return {buffer: memory + begin for buffer, begin in begins.items()}


def _pairs(to: dict[str, int], origin: dict[str, int], copied: Parts) -> list[tuple[Run, Run]]:
    """Return (target, source) of each run, in buffers that start at these addresses."""
    return [
        ((to[buffer] + start, nbytes), (origin[buffer] + start, nbytes))
        for buffer, runs in copied.items()
        if buffer in to
        for start, nbytes in runs
    ]
