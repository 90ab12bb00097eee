"""Wrappers of programs and of each of their segments: order on a stream, and copies of the arrays.

A program that must not touch the arrays themselves works on a *mirror*: copies of input and output in other
memory.  The path staged mirrors in pinned host memory.  The path direct mirrors arrays that peers cannot map, in
device memory that they can.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mpicoll.runtime.arguments.operands import Operands
from mpicoll.runtime.context.slot import Slot
from mpicoll.runtime.cuda.ipc import can_be_mapped
from mpicoll.runtime.program.align import aligned
from mpicoll.runtime.program.bound import LAUNCH, ORDER, SYNC, Bound
from mpicoll.runtime.program.layout import Layout, input_runs, output_runs
from mpicoll.runtime.program.local_work import Run
from mpicoll.runtime.program.wrapper import Wrapper

#: in the place of bytes of scratch: the copies are in pinned memory
PINNED = -1


class Ordered(Wrapper):
    """A call on a stream: after all that is on it before the call, and before all that comes later."""

    def __init__(self, fence: Any, stream: int) -> None:
        """Order with a slot's fence, on a stream's address."""
        self.fence, self.stream = fence, stream

    def first(self, bound: Bound) -> None:
        """Wait for the stream."""
        self._enter(bound)

    def last(self, bound: Bound) -> None:
        """Mark the end on the stream."""
        fence, stream = self.fence, self.stream
        bound.add(ORDER, lambda: fence.leave(stream))

    def _enter(self, bound: Bound) -> None:
        fence, stream = self.fence, self.stream
        bound.add(SYNC, lambda: fence.enter(stream), poll=lambda: fence.is_open(stream))


@dataclass(frozen=True)
class Mirrors:
    """The addresses of a call's arrays, and those at which the program finds them.

    Copies of an input and an output of 1000 bytes each, in pinned memory at address 65536:

        arrays == {"input": 4096, "output": 8192}; bases == {"input": 65536, "output": 66560}

    Attributes:
        arrays: start of input and output.
        bases: start of their copies, or of the arrays where they have none.
    """

    arrays: dict[str, int]
    bases: dict[str, int]

    @staticmethod
    def of(operands: Operands, which: set[str], slot: Slot, scratch: int) -> Mirrors:
        """Make copies of some of "input" and "output".

        Args:
            operands: the call.
            which: what is to be copied.
            slot: whose memory it is.
            scratch: bytes of device memory in front of the copies; PINNED puts them into pinned memory.
        """
        flats = {"input": operands.input, "output": operands.output}
        arrays = operands.bases
        spans = {name: (flat.pointer, flat.array.nbytes) for name, flat in flats.items() if flat and name in which}
        if operands.aliased and spans:  # what is one memory has one copy
            start = min(pointer for pointer, _ in spans.values())
            end = max(pointer + nbytes for pointer, nbytes in spans.values())
            spans = dict.fromkeys(spans, (start, end - start))
        places, total = {}, aligned(max(scratch, 0))
        for span in dict.fromkeys(spans.values()):
            places[span] = total
            total += aligned(span[1])
        memory = slot.arena("pinned" if scratch == PINNED else "device", operands.device, total).pointer
        moved = {name: memory + places[span] + arrays[name] - span[0] for name, span in spans.items()}
        return Mirrors(arrays, arrays | moved)

    def pairs(self, name: str, runs: list[Run]) -> list[tuple[Run, Run]]:
        """Return (copy, original) of parts of an array; nothing where it has no copy."""
        shift = self.bases[name] - self.arrays[name]
        return [((address + shift, nbytes), (address, nbytes)) for address, nbytes in runs if shift]


def unmappable(operands: Operands) -> set[str]:
    """Return those of "input" and "output" that are in memory that peers cannot map."""
    flats = {"input": operands.input, "output": operands.output}
    found = {name for name, flat in flats.items() if flat and not can_be_mapped(flat.pointer)}
    return set(flats) if found and operands.aliased else found


class Mirror(Ordered):
    """Copies the input before, and the output after, the program: each segment as soon as it can be.

    All copies to the mirror are enqueued at once, and awaited segment by segment.  A copy back is
    enqueued when the segment's output is complete, on a stream of its own where there is one.  So
    both ways, the messages and the reductions overlap.
    """

    by_segment = True

    @classmethod
    def of(
        cls, mirrors: Mirrors, worker: Any, fence: Any, operands: Operands, layout: Layout, back: Any = None
    ) -> Mirror:
        """Return the mirror of a call's arrays; arguments as in `Mirror`, and where the program's cells are."""
        segments = range(layout.segments)
        inputs = [mirrors.pairs("input", input_runs(layout, operands, [s])) for s in segments]
        outputs = [mirrors.pairs("output", output_runs(layout, operands, [s])) for s in segments]
        return cls(worker, fence, inputs, outputs, back)

    def __init__(
        self,
        worker: Any,
        fence: Any,
        inputs: list[list[tuple[Run, Run]]],
        outputs: list[list[tuple[Run, Run]]],
        back: Any = None,
    ) -> None:
        """Mirror with a worker on the call's stream.

        Args:
            worker: copies, and marks places on its stream.
            fence: orders calls that use the same memory.
            inputs: for each segment, (copy, original) of its input.
            outputs: for each segment, (copy, original) of its output.
            back: copies back on another stream, and makes the call's stream wait for it; the worker if None.
        """
        super().__init__(fence, worker.stream)
        self.worker, self.back = worker, back
        self.inputs, self.outputs = inputs, outputs
        self.marks = [s for s, runs in enumerate(inputs) if runs or s == 0]
        self.awaited = -1

    def first(self, bound: Bound) -> None:
        """Enqueue the copies to the mirror, once the last call on another stream does not need it any more."""
        fence, stream = self.fence, self.stream
        bound.add(SYNC, lambda: fence.drain(stream))
        for segment, runs in enumerate(self.inputs):
            bound.add(LAUNCH, *(self.worker.copy(copy, original) for copy, original in runs))
            if segment in self.marks and len(self.marks) > 1:
                bound.add(ORDER, self.worker.launched(segment))

    def begin(self, bound: Bound, segment: int) -> None:
        """Wait for the segment's input, and so for all that comes before the call on the stream."""
        mark = max(m for m in self.marks if m <= segment)
        if mark <= self.awaited:
            return
        self.awaited = mark
        if len(self.marks) == 1:
            self._enter(bound)
        else:
            bound.add(SYNC, self.worker.sync(mark, last=False), poll=self.worker.poll(mark, last=False))

    def end(self, bound: Bound, segment: int) -> None:
        """Enqueue the segment's copies back."""
        worker = self.back or self.worker
        bound.add(LAUNCH, *(worker.copy(original, copy) for copy, original in self.outputs[segment]))

    def last(self, bound: Bound) -> None:
        """Mark the end on the stream, after the copies back."""
        if self.back is not None:
            bound.add(ORDER, self.back.join)
        super().last(bound)
