"""The path direct: addresses of device arrays are given to MPI, and kernels reduce them."""

from __future__ import annotations

from mpicoll.runtime.arguments.operands import Operands
from mpicoll.runtime.context.context import Context
from mpicoll.runtime.context.slot import Slot
from mpicoll.runtime.paths.messages import Messages, Surroundings
from mpicoll.runtime.paths.mirror import Mirror, Mirrors, Ordered, unmappable
from mpicoll.runtime.program.layout import Layout


class DirectPath(Messages):
    """Messages between arrays in device memory."""

    name = "direct"

    def unoffered(self, context: Context, operands: Operands) -> str:
        """Return why this MPI cannot be given device addresses, "" if it can."""
        awareness = context.cuda_aware
        return "" if awareness.aware else f"MPI is not given device pointers: {awareness.reason}"

    def surroundings(self, operands: Operands, stream: int, slot: Slot, layout: Layout) -> Surroundings:
        """Return kernels on the arrays, or on copies of memory that peers cannot map; as in `Messages`."""
        from mpicoll.runtime.cuda.work import Device

        worker, fence = Device(operands.device, stream), slot.fence(operands.device)
        which = unmappable(operands)
        if not which:
            return worker, operands.bases, Ordered(fence, stream)
        mirrors = Mirrors.of(operands, which, slot, layout.scratch_bytes)
        around = Mirror.of(mirrors, Device(operands.device, stream), fence, operands, layout)
        return worker, mirrors.bases, around

    def scratch(self, operands: Operands, slot: Slot, layout: Layout) -> int:
        """Return the address of the scratch, on the arrays' device."""
        return slot.arena("device", operands.device, layout.scratch_bytes).pointer
