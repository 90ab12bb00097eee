"""The path staged: device arrays travel through pinned host memory, and NumPy reduces them there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mpicoll.runtime.arguments.operands import Operands
from mpicoll.runtime.arguments.operators import Operator
from mpicoll.runtime.context.slot import Slot
from mpicoll.runtime.cuda.order import Handover
from mpicoll.runtime.cuda.streams import Pointer, on_stream
from mpicoll.runtime.cuda.work import Device
from mpicoll.runtime.host.work import Host
from mpicoll.runtime.paths.messages import Messages, Surroundings
from mpicoll.runtime.paths.mirror import PINNED, Mirror, Mirrors
from mpicoll.runtime.program.layout import Layout


class StagedPath(Messages):
    """Messages between copies in pinned host memory."""

    name = "staged"

    def surroundings(self, operands: Operands, stream: int, slot: Slot, layout: Layout) -> Surroundings:
        """Return NumPy's work on pinned copies of all arrays; as in `Messages`."""
        device = operands.device
        mirrors = Mirrors.of(operands, {"input", "output"}, slot, PINNED)
        back = Back(device, stream, int(slot.side_stream(device, "back").ptr)) if layout.segments > 1 else None
        around = Mirror.of(mirrors, Device(device, stream), slot.fence(device), operands, layout, back)
        return Host(), mirrors.bases, around

    def operator(self, operands: Operands, stream: int) -> Operator | None:
        """Return the operator for copies on the host."""
        return operator_on_host(operands, stream)


def operator_on_host(operands: Operands, stream: int) -> Operator | None:
    """Return the operator; a user's own is called with device arrays, for which it is written."""
    op = operands.op
    if op is None or not op.users:
        return op
    assert op.function is not None
    return replace(op, function=on_device(op.function, operands.device, stream))


def on_device(function: Callable[[Any, Any], Any], device: int, stream: int) -> Callable[[Any, Any], Any]:
    """Return a user's operator, which is written for device arrays, for arrays on the host."""
    import cupy

    def combine(a: Any, b: Any) -> Any:
        with on_stream(device, Pointer(stream)):
            return cupy.asnumpy(function(cupy.asarray(a), cupy.asarray(b)))

    return combine


class Back(Device):
    """Copies on a stream of its own, for which a call's stream then waits: links work both ways at once.

    Attributes:
        join: makes the call's stream wait.
    """

    def __init__(self, device: int, stream: int, side: int) -> None:
        """Copy on the stream `side`, for a call on `stream`."""
        super().__init__(device, side)
        self.join = Handover(device, stream, side).finish
