"""From a plan and operands to a bound program."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mpicoll.dispatch.plan import NativePlan, Plan
from mpicoll.runtime.arguments.arrays import Flat, empty_on, pointer_of
from mpicoll.runtime.arguments.operands import Operands
from mpicoll.runtime.context.context import Context
from mpicoll.runtime.context.remembered import Remembered
from mpicoll.runtime.context.slot import Slot
from mpicoll.runtime.cuda.by_device import work_on
from mpicoll.runtime.cuda.streams import is_captured
from mpicoll.runtime.paths.native import NativeCall
from mpicoll.runtime.paths.table import path
from mpicoll.runtime.program.bound import LAUNCH, Bound
from mpicoll.runtime.program.layout import Layout, Shape, output_runs
from mpicoll.runtime.program.local_work import Action
from mpicoll.settings import settings


def bind(
    plan: Plan, operands: Operands, context: Context, stream: int, slot: Slot, known: Remembered | None = None
) -> Bound:
    """Return the plan bound to the operands' memory, from the call cache if it was bound before.

    Args:
        plan: what was chosen.
        operands: the call.
        context: the communicator's.
        stream: address of the stream on which it works, 0 on the host.
        slot: whose scratch and tags it uses.
        known: the call, if it is remembered; what is not is found by what its program depends on.
    """
    cache, where = context.cache, (id(slot), stream)
    if known is None:
        key = _program_key(plan, operands, context, stream)
        known = cache.find(key) or cache.remember(key, Remembered(operands.without_arrays(), plan))
    bound = known.program(where)
    if bound is None:
        bound = bind_new(plan, operands, context, stream, slot, mobile=known.aims is not None)
        cache.keep(known, where, bound)
    return bound


def _program_key(plan: Plan, operands: Operands, context: Context, stream: int) -> tuple[Any, ...]:
    """Return everything on which a call's program depends, for a call without a key, such as one of packed arrays.

    Args:
        plan: what was chosen.
        operands: the call.
        context: the communicator's.
        stream: address of the stream, 0 on the host.
    """
    shape = Shape.of(operands, context.rank, context.size)
    captured = operands.device >= 0 and is_captured(stream)
    what = operands.method, operands.dtype, id(operands.op), operands.aliased, tuple(operands.bases.values())
    return plan, shape, what, operands.device, captured, settings.version


def bind_new(
    plan: Plan, operands: Operands, context: Context, stream: int, slot: Slot, *, mobile: bool = False
) -> Bound:
    """Return the plan bound to the operands' memory; the caller keeps and frees it.

    Args:
        plan: what was chosen.
        operands: the call.
        context: the communicator's.
        stream: as in `bind`.
        slot: as in `bind`.
        mobile: it is aimed at arrays before each run.
    """
    memory, operands = _holding(operands)
    bound = Bound(name=f"{operands.method} #{{}} {plan.algorithm!r}", device=operands.device, mobile=mobile)
    bound.keep, bound.limited = (operands.op, memory), settings.timeout > 0 or bool(settings.errors)
    then = _divisions(plan, operands, context, stream)
    first, last = _copies(operands, stream)
    bound.add(LAUNCH, first)
    if isinstance(plan, NativePlan) and slot is context.slot(0):  # which blocking calls have for themselves
        call = NativeCall(operands, context.comm)
        bound.add(LAUNCH, call, poll=call.poll)
        bound.add(LAUNCH, *last)
    else:
        path(plan.path).bind(bound, plan, operands, context, stream, slot, [*then, *last])
    slot.programs.add(bound)
    return bound


def is_mobile(plan: Plan, operands: Operands) -> bool:
    """Tell whether a call's programs can be aimed at other arrays before each run."""
    behind = operands.op is not None and operands.op.average
    return path(plan.path).mobile and not (operands.held or behind)


def _holding(operands: Operands) -> tuple[Any, Operands]:
    """Return (memory of the copy that the program has for itself, None if none; the operands with it)."""
    flat = getattr(operands, operands.held) if operands.held else None
    if flat is None or not flat.size:
        return None, operands
    memory = empty_on(flat.device, flat.size, flat.array.dtype)
    own = Flat(flat.array, pointer_of(memory), flat.device)
    return memory, replace(operands, input=own) if operands.held == "input" else replace(operands, output=own)


def _copies(operands: Operands, stream: int) -> tuple[Action | None, list[Action]]:
    """Return (what fills the program's own copy of the input, what takes the result from its own output)."""
    source, target = operands.input, operands.output
    if not operands.held or source is None or target is None:
        return None, []
    nbytes = min(source.array.nbytes, target.array.nbytes)
    if not nbytes:
        return None, []
    one, other = (source.pointer, nbytes), (target.pointer, nbytes)
    # into the input: the whole output, or its own to the front
    copy = work_on(operands.device, stream).copy(one, other)
    return (copy, []) if operands.held == "input" else (None, [copy])


def _divisions(plan: Plan, operands: Operands, context: Context, stream: int) -> list[Action]:
    """Return the actions that divide an average's results by the number of combined ranks; arguments as in `bind`."""
    if operands.op is None or not operands.op.average:
        return []
    shape = Shape.of(operands, context.rank, context.size)
    layout = Layout(shape, plan.schedule, 1, 1, operands.dtype.itemsize)
    made_of = operands.row.after(context.rank, context.size, operands.root, plan.schedule.blocks)
    combined = len(list(next(iter(made_of.values()), ())))
    work = work_on(operands.device, stream)
    return [work.divide(operands.dtype, run, combined) for run in output_runs(layout, operands, [0])]


def pack(operands: Operands) -> None:
    """Fill the packed copies of a call's arrays: what comes before the call."""
    for act in operands.before:
        act()


def unpack(operands: Operands) -> None:
    """Write the packed copies of a call's arrays back: what comes after the call."""
    for act in operands.after:
        act()
