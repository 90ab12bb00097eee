"""The protocol of a path: a way on which arrays travel.

A path is one file or folder here, one row in `paths/table.py`, and one row with its cost in `dispatch/paths.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpicoll.dispatch.plan import Plan
from mpicoll.runtime.arguments.operands import Operands
from mpicoll.runtime.context.context import Context
from mpicoll.runtime.context.slot import Slot
from mpicoll.runtime.program.bound import Bound
from mpicoll.runtime.program.local_work import Action
from mpicoll.runtime.progress.exchange import Routine


class Path:
    """A way on which arrays travel; here, one that is always there, needs nothing and does nothing.

    Attributes:
        name: as in rules, settings and plans.
        captures: calls can be captured into a CUDA graph.
        ordered: all calls of a communicator take their turn in one order, so that none needs a slot of its own.
        mobile: a program without work behind the path's own can be aimed at other arrays before each run.
        fuses: calls that are alike can be one program, without packed copies of their arrays.
    """

    name = ""
    captures = False
    ordered = False
    mobile = False
    fuses = False

    def unoffered(self, context: Context, operands: Operands) -> str:
        """Return why a call cannot take this path, "" if it can; equal on all ranks."""
        return ""

    def remark(self, context: Context) -> str:
        """Return what a report adds of the path where it is there, "" for nothing."""
        return ""

    def is_prepared(self, context: Context) -> bool:
        """Tell whether `prepare` has nothing left to do; equal on all ranks."""
        return True

    def prepare(self, context: Context, device: int) -> Routine[None]:
        """Get what the path needs of all ranks, before a communicator's first call with device arrays.

        Args:
            context: where it is kept, in `attached`.
            device: this rank's device number.
        """
        yield from ()

    def needs_no_copy(self, plan: Plan, operands: Operands, context: Context) -> bool:
        """Tell whether a call's program can write its output where its input is, which otherwise has a copy.

        Args:
            plan: what was chosen.
            operands: the call, which holds a copy.
            context: the communicator's.
        """
        return False

    def lacks(self, context: Context, plan: Plan) -> bool:
        """Tell whether a call with a plan needs something of all ranks beyond `prepare`; equal on all."""
        return False

    def provide(self, context: Context, plan: Plan) -> Routine[None]:
        """Get what a call with a plan lacks of all ranks.

        Args:
            context: the communicator's.
            plan: of the call.
        """
        yield from ()

    def channels(self, context: Context) -> Routine[Any]:
        """Return what carries messages of groups; in words why there is nothing. A routine of all ranks."""
        yield from ()
        return "no path carries messages"

    def home(self, context: Context) -> int:
        """Return the device on which a call's arrays must be, -1 for any."""
        return -1

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
        """Append a call's instructions to a program.

        Args:
            bound: the program.
            plan: what was chosen.
            operands: the call.
            context: the communicator's.
            stream: address of the stream on which the call works, 0 on the host.
            slot: whose scratch and tags the call uses.
            then: what comes after the path's own work, such as a division.
        """

    def items(self, plan: Plan, calls: Sequence[Operands], places: np.ndarray, context: Context, stream: int) -> Any:
        """Return calls that are alike as one program, which can be aimed at other arrays; of a path that fuses.

        Args:
            plan: what was chosen for all of them together.
            calls: alike in all but sizes.
            places: addresses of input and output of each, a row for each.
            context: the communicator's.
            stream: address of the current stream, on which it works.
        """

    def side(self, context: Context, operands: Operands, slot: Slot) -> Any:
        """Return the stream on which a call that does not block works, None for host arrays."""
        return None if operands.device < 0 else slot.side_stream(operands.device)

    def enqueued(self, bound: Bound, context: Context, caller: int, keep: object) -> Any:
        """Return a call that does not block, all of it enqueued on the stream of `side`; of a path that captures.

        Args:
            bound: the call's program, on that stream.
            context: the communicator's.
            caller: address of the caller's stream.
            keep: lives until the end of the call.
        """

    def handed_over(self, bound: Bound, handover: Any, context: Context) -> Bound:
        """Return a program of a call that does not block, in order with the caller's stream.

        Args:
            bound: the call's program, on the stream of `side`.
            handover: the order with the caller's stream (see `cuda/order.py`).
            context: the communicator's.
        """
        return bound
