"""Fused calls: many small calls that are alike as one program over a list of their arrays, without packed copies.

Which paths can do so the paths say (`Path.fuses`).  All ranks decide alike: by the plan of one call of the same total
size, and by settings; where a rank's arrays are does not matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mpicoll.dispatch.plan import Plan
from mpicoll.recorder.entry import Decision
from mpicoll.runtime.arguments.operands import Operands
from mpicoll.runtime.call.agreement import asked
from mpicoll.runtime.call.planning import plan_for, tell_choice
from mpicoll.runtime.context.context import Context
from mpicoll.runtime.context.remembered import Remembered, extent_of
from mpicoll.runtime.cuda.streams import at, current_stream, is_captured, on
from mpicoll.runtime.paths import offer
from mpicoll.runtime.paths.table import path
from mpicoll.runtime.progress import running
from mpicoll.runtime.progress.modes import modes

#: under which a communicator keeps what its captured groups read each time they are replayed
CAPTURED = "captured groups"


def plan_of(calls: Sequence[Operands], context: Context, algorithm: str | None, rules: str) -> Plan | None:
    """Return the plan of calls that can be fused, None where they are packed; equal on all ranks.

    Args:
        calls: that are alike in all but sizes.
        context: the communicator's.
        algorithm: as in the calls.
        rules: of the communicator.
    """
    first = calls[0]
    if first.device < 0 or asked() or (first.op is not None and first.op.average):
        return None  # ranks agree on a packed call, and divide its result, as on any other
    if not offer.is_connected(context):
        if is_captured(current_stream(first.device).ptr):
            return None  # which is refused as any first call is
        offer.connect(context, first.device)
    plan = plan_for(_together(calls), context, algorithm, rules)
    if not path(plan.path).fuses:
        return None
    tell_choice(plan, context)
    return plan


def places_of(calls: Sequence[Operands]) -> np.ndarray:
    """Return the addresses of input and output of each call, without the copy that its program would have."""
    rows = []
    for one in calls:
        bases = one.bases
        source, target = bases["input"], bases["output"]
        rows.append((target if one.held == "input" else source, source if one.held == "output" else target))
    return np.array(rows, "u8")


class FusedCalls:
    """Calls of one method, operator, root and dtype, on arrays of certain sizes, as one program of a path."""

    def __init__(self, plan: Plan, calls: Sequence[Operands], context: Context, stream: int) -> None:
        """Hold what is the same wherever the arrays are.

        Args:
            plan: of all calls together.
            calls: alike in all but sizes.
            context: the communicator's.
            stream: address of the current stream, on which they are.
        """
        self._context, self._stream = context, stream
        self._key = "fused", object()  # of no other call
        self._calls = [_without_memory(one) for one in calls]
        self._decision = Decision(_together(calls), plan)
        self._device = self._calls[0].device
        self._owner, self._items = current_stream(self._device), None

    def run(self, places: np.ndarray, run: object = None) -> None:
        """Make the calls.

        Args:
            places: as `places_of` returns them for the calls' arrays.
            run: not needed.
        """
        context = self._context
        context.check()
        context.take_turn()
        try:
            method = self._decision.operands.method.capitalize()
            context.come("blocking", method, context.calls + 1)
            number = context.count()
            # made from here on: what its program needs is exchanged with the others, and cannot be taken back
            record = context.recorder.begin("blocking", method, number, self._decision, modes().trace, bound=True)
            with at(self._device), record:
                running.run(self._program(places, is_captured(self._stream)), context)
        finally:
            context.end_turn()

    def _program(self, places: np.ndarray, captured: bool) -> Any:
        """Return the bound program, aimed at arrays.

        What a graph has captured is its own from then on: it must not be aimed at other arrays.

        Args:
            places: see `run`.
            captured: it is captured into a CUDA graph.
        """
        items: Any = self._items
        if items is None or not items.bound.alive or (captured and items.places is not places):
            items = self._items = self._made(places, captured)
        if captured:
            items.bound.mark, self._items = None, None
            self._context.kept(CAPTURED, list).append(items)
        else:
            items.aim(places)
        return items.bound

    def _made(self, places: np.ndarray, captured: bool) -> Any:
        """Return the calls bound on their stream; arguments as in `_program`."""
        together, plan = self._decision.operands, self._decision.plan
        context, way = self._context, path(plan.path)
        if not captured and way.lacks(context, plan):
            context.complete(lambda _: way.provide(context, plan), f"a group of {together.method}")
        with on(self._device, self._owner):
            items = way.items(plan, self._calls, places, context, self._stream)
        if not captured:  # so that it ends with the others of its plan
            known = context.cache.remember(self._key, Remembered(together, plan))
            context.cache.keep(known, (0, self._stream), items.bound)
        return items


def _together(calls: Sequence[Operands]) -> Operands:
    """Return the operands of one call of the total size, without arrays."""
    count, nbytes = sum(one.count for one in calls), sum(one.nbytes or 0 for one in calls)
    return replace(calls[0].without_arrays(), count=count, nbytes=nbytes)


def _without_memory(one: Operands) -> Operands:
    """Return a call over arrays that do not keep the memory alive."""
    return replace(one, input=extent_of(one.input), output=extent_of(one.output), before=[], after=[])
