"""From a plan and operands to a bound program, and its run: the only place that knows both."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Any

from mpicoll.dispatch.plan import Key, Plan, make_plan
from mpicoll.dispatch.select import Facts
from mpicoll.errors import UnsupportedError
from mpicoll.runtime.arguments.operands import Operands
from mpicoll.runtime.arguments.operators import Operator
from mpicoll.runtime.context.context import Context
from mpicoll.runtime.context.slot import Slot
from mpicoll.runtime.cuda import kernels
from mpicoll.runtime.cuda.streams import CAPTURED, is_captured
from mpicoll.runtime.host.work import Host
from mpicoll.runtime.paths.mirror import Mirror, Mirrors, Ordered, unmappable
from mpicoll.runtime.program.bound import Around, Binder, Bound
from mpicoll.runtime.program.layout import Layout, Run, Shape, merge
from mpicoll.schedule import pack as packing
from mpicoll.schedule.planner import compile_program
from mpicoll.schedule.program import Program
from mpicoll.settings import settings


def plan_for(
    operands: Operands,
    context: Context,
    algorithm: str | None,
    rules: str,
    scratch_limit: int | None = None,
    captured: bool = False,
) -> Plan:
    """Return the plan for a call's operands; nothing is sent.

    Raises:
        UnsupportedError: the call is captured into a CUDA graph, which only the path mapped can be.
    """
    device = operands.device >= 0
    compiled = operands.op is None or kernels.serves(operands.op, operands.dtype)
    paths = context.paths(compiled) if device else ("host",)
    if captured:
        paths = _captured_paths(operands, context, paths, compiled)
    facts = Facts(
        operands.row.name,
        context.size,
        operands.nbytes,
        "device" if device else "host",
        operands.op.commutative if operands.op else True,
        operands.counts_known,
        paths,
        settings.segment_bytes,
        settings.reproducible if operands.row.reducing else "",
        context.unoffered(compiled) if device else "",
    )
    forced, wanted, tuning, limit = (
        algorithm or "",
        settings.algorithms,
        settings.tuning,
        scratch_limit or settings.scratch_limit,
    )
    try:
        return make_plan(Key(facts, context.rank, operands.root, forced, rules, wanted, tuning, limit))
    except UnsupportedError as error:
        if captured:
            raise UnsupportedError(f"{error} ({CAPTURED})") from None
        raise


def _captured_paths(operands: Operands, context: Context, paths: tuple[str, ...], compiled: bool) -> tuple[str, ...]:
    """Return the paths on which a call can be captured: a graph has kernels, but no messages and no packing."""
    refused = f"{operands.method}: {CAPTURED}"
    if operands.before or operands.after:
        raise UnsupportedError(f"{refused}, and the arrays must be copied around the call: pass contiguous ones, apart")
    if "mapped" not in paths:
        why = context.unoffered(compiled) or f"path={settings.path!r} is set"
        raise UnsupportedError(f"{refused}, which only the path mapped can be, and that is not offered: {why}")
    return ("mapped",)


def bind(plan: Plan, operands: Operands, context: Context, stream: int, slot: Slot) -> Bound:
    """Return the plan bound to the operands' memory, cached in the slot."""
    addresses = tuple(operands.bases.values())
    shape = Shape.of(operands, context.rank, context.size)
    where = operands.device, stream, operands.device >= 0 and is_captured(stream)
    limits = settings.timeout, settings.errors
    what = operands.method, operands.dtype, id(operands.op), operands.aliased
    key = (plan, shape, addresses, what, where, limits)
    found = slot.find(key)
    if found is None:
        found = bind_new(plan, operands, context, stream, slot)
        slot.keep(key, found)
    return found


@lru_cache(maxsize=4096)
def program_of(plan: Plan, shape: Shape, aliased: bool) -> Program:
    """Return the compiled program for a plan and a shape."""
    segments = plan.segments
    schedule = packing.pack(plan.schedule, lambda ref: shape.contiguous(ref, segments))
    return compile_program(schedule, segments, plan.lanes, aliased)


def bind_new(plan: Plan, operands: Operands, context: Context, stream: int, slot: Slot) -> Bound:
    """Return the plan bound to the operands' memory; the caller keeps it and frees it."""
    bound = Bound(name=f"{operands.method} #{{}} {plan.algorithm!r}", device=operands.device, keep=operands.op)
    bound.limited = settings.timeout > 0 or bool(settings.errors)
    average = _average(plan, operands, context, stream)
    if plan.path == "mapped":
        from mpicoll.runtime.paths.mapped import path

        path.bind(plan, operands, context, stream, bound, average)
        return bound
    _bind_messages(plan, operands, context, stream, slot, bound)
    bound.add(*average)
    return bound


def _bind_messages(plan: Plan, operands: Operands, context: Context, stream: int, slot: Slot, bound: Bound) -> None:
    """Append a plan's messages and its local work."""
    program, layout = _laid_out(plan, operands, context)
    memory, where, around = _memory(plan, operands, stream, slot, layout, context.rank)
    kind, device = ("device", operands.device) if memory is not _HOST else ("host", -1)
    scratch = slot.arena(kind, device, layout.scratch_bytes).pointer
    binder = Binder(context.comm, memory, context.waiter, slot.lane)
    bases = {**where, "scratch": scratch}
    binder.bind(bound, program, layout, bases, operands.dtype, _operator(operands, memory, stream), around)


def _average(plan: Plan, operands: Operands, context: Context, stream: int) -> list[Callable[[], object]]:
    """Return the calls that divide the results by the number of combined ranks, where the operator says so."""
    if operands.op is None or not operands.op.average:
        return []
    program, layout = _laid_out(plan, operands, context)
    worker = _worker(operands, stream)
    made_of = operands.row.after(context.rank, context.size, operands.root, program.schedule.blocks)
    combined = len(list(next(iter(made_of.values()), ())))
    runs = output_runs(layout, operands, context.rank, operands.bases)
    return [worker.divide(operands.dtype, run, combined) for run in runs]


def _laid_out(plan: Plan, operands: Operands, context: Context) -> tuple[Program, Layout]:
    """Return the compiled program of a call, and where its cells are."""
    shape = Shape.of(operands, context.rank, context.size)
    program = program_of(plan, shape, operands.aliased)
    return program, Layout(shape, program.schedule, program.segments, program.lanes, operands.dtype.itemsize)


def _operator(operands: Operands, memory: Any, stream: int) -> Operator | None:
    """Return the operator, made for the memory in which it works."""
    op = operands.op
    if op is None or operands.device < 0 or memory is not _HOST or not op.users:
        return op
    from mpicoll.runtime.paths.staged import on_device

    assert op.function is not None
    return replace(op, function=on_device(op.function, operands.device, stream))


_HOST = Host()


def _worker(operands: Operands, stream: int) -> Any:
    """Return what works on the operands' own memory."""
    if operands.device < 0:
        return _HOST
    from mpicoll.runtime.cuda.work import Device

    return Device(operands.device, stream)


def _memory(
    plan: Plan, operands: Operands, stream: int, slot: Slot, layout: Layout, rank: int
) -> tuple[Any, dict[str, int], Around]:
    """Return what does the local work, where input and output are for it, and what goes around it."""
    bases = operands.bases
    if operands.device < 0:
        return _HOST, bases, Around()
    fence, worker = slot.fence(operands.device), _worker(operands, stream)
    mirrors = _mirrors(plan, operands, slot, layout)
    if mirrors is None:
        return worker, bases, Ordered(fence, stream)
    segments, back = range(layout.segments), None
    inputs = [mirrors.pairs("input", input_runs(layout, operands, rank, bases, [s])) for s in segments]
    outputs = [mirrors.pairs("output", output_runs(layout, operands, rank, bases, [s])) for s in segments]
    staged = plan.path == "staged"
    if staged and layout.segments > 1:
        from mpicoll.runtime.paths.staged import Back

        back = Back(operands.device, stream, int(slot.side_stream(operands.device, "back").ptr))
    around = Mirror(_worker(operands, stream), fence, inputs, outputs, back)
    return _HOST if staged else worker, mirrors.bases, around


def _mirrors(plan: Plan, operands: Operands, slot: Slot, layout: Layout) -> Mirrors | None:
    """Return copies of a call's device arrays, None if the program may work on the arrays themselves."""
    staged = plan.path == "staged"
    which = {"input", "output"} if staged else unmappable(operands)
    return Mirrors.of(operands, which, slot, -1 if staged else layout.scratch_bytes) if which else None


def output_runs(
    layout: Layout, operands: Operands, rank: int, bases: dict[str, int], segments: Iterable[int] | None = None
) -> list[Run]:
    """Return where this rank's results are, of some segments or of all."""
    ids = operands.row.after(rank, layout.shape.size, operands.root, layout.schedule.blocks)
    return _runs("output", ids, layout, bases, range(layout.segments) if segments is None else segments)


def input_runs(
    layout: Layout, operands: Operands, rank: int, bases: dict[str, int], segments: Iterable[int]
) -> list[Run]:
    """Return where this rank's contribution is, of some segments."""
    ids = operands.row.before(rank, layout.shape.size, operands.root, layout.schedule.blocks)
    return _runs("input", ids, layout, bases, segments)


def _runs(buffer: str, ids: Any, layout: Layout, bases: dict[str, int], segments: Iterable[int]) -> list[Run]:
    return merge(sorted(layout.cell(buffer, block, s, bases) for s in segments for block in ids))


def pack(operands: Operands) -> None:
    """Do what comes before a call: fill the packed copies of its arrays."""
    for act in operands.before:
        act()


def unpack(operands: Operands) -> None:
    """Do what comes after a call: write the packed copies back."""
    for act in operands.after:
        act()
