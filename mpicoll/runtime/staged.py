"""The staged path: device arrays travel through pinned host memory, on one ordered stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import cupy

from mpicoll.runtime.bound import Bound
from mpicoll.runtime.device import Device, Pointer, on_stream
from mpicoll.runtime.layout import Run
from mpicoll.runtime.operands import Operands
from mpicoll.runtime.slot import Slot


def on_device(function: Callable[[Any, Any], Any], device: int, stream: int) -> Callable[[Any, Any], Any]:
    """Return a user's operator, which is written for device arrays, for arrays on the host."""

    def combine(a: Any, b: Any) -> Any:
        with on_stream(device, Pointer(stream)):
            return cupy.asnumpy(function(cupy.asarray(a), cupy.asarray(b)))

    return combine


class Staging:
    """Pinned copies of a call's input and output, and the copies between them and the device.

    Attributes:
        bases: where the pinned input and output start.
        device: the device memory's worker.
    """

    def __init__(self, slot: Slot, operands: Operands, stream: int) -> None:
        """Reserve pinned memory as large as the arrays."""
        self.device = Device(operands.device, stream)
        self.operands = operands
        self.fence = slot.fence(operands.device)
        source, target = operands.input, operands.output
        wanted = [flat.array.nbytes if flat else 0 for flat in (source, target)]
        if source is target:
            wanted[1] = 0
        pointers = [slot.arena("pinned", place, n).pointer if n else 0 for place, n in enumerate(wanted)]
        if operands.aliased or source is target:
            pointers = self._aliased_pointers(pointers)
        self.bases = {"input": pointers[0], "output": pointers[1]}

    def _aliased_pointers(self, pointers: list[int]) -> list[int]:
        """Input and output share memory on the device, so they share it on the host."""
        source, target = self.operands.input, self.operands.output
        if source is target or source is None or target is None:
            return [pointers[0] or pointers[1]] * 2
        if source.array.nbytes >= target.array.nbytes:  # the output is a block of the input
            return [pointers[0], pointers[0] + target.pointer - source.pointer]
        return [pointers[1] + source.pointer - target.pointer, pointers[1]]

    @contextmanager
    def around(self, bound: Bound, inputs: list[Run], outputs: list[Run]) -> Iterator[None]:
        """Put the copy to the host before, and the copy to the device behind, what is bound meanwhile."""
        fence, stream = self.fence, self.device.stream
        to_host = [self.device.copy(self._pinned("input", run), run) for run in inputs]
        to_device = [self.device.copy(run, self._pinned("output", run)) for run in outputs]
        bound.add(lambda: fence.drain(stream), *to_host)
        bound.add(lambda: fence.enter(stream), poll=lambda: fence.is_open(stream))
        yield
        bound.add(*to_device, lambda: fence.leave(stream))

    def _pinned(self, buffer: str, run: Run) -> Run:
        """Return the pinned copy of a part of the input or output."""
        flat = self.operands.input if buffer == "input" else self.operands.output
        assert flat is not None
        return self.bases[buffer] + run[0] - flat.pointer, run[1]
