"""The path host: NumPy arrays, which MPI sends and NumPy reduces where they are."""

from __future__ import annotations

from mpicoll.runtime.arguments.operands import Operands
from mpicoll.runtime.context.slot import Slot
from mpicoll.runtime.host.work import Host
from mpicoll.runtime.paths.messages import Messages, Surroundings
from mpicoll.runtime.program.layout import Layout
from mpicoll.runtime.program.wrapper import Wrapper


class HostPath(Messages):
    """Messages between arrays in host memory."""

    name = "host"

    def surroundings(self, operands: Operands, stream: int, slot: Slot, layout: Layout) -> Surroundings:
        """Return NumPy's work on the arrays themselves, with an empty wrapper; as in `Messages`."""
        return Host(), operands.bases, Wrapper()
