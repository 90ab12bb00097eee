"""From a plan and operands to a bound program, and its run: the only place that knows both."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

from mpicoll.dispatch.plan import Key, Plan, make_plan
from mpicoll.dispatch.select import Facts
from mpicoll.runtime import kernels, progress
from mpicoll.runtime.around import Mirror, Mirrors, Ordered, unmappable
from mpicoll.runtime.bound import Around, Binder, Bound
from mpicoll.runtime.channel import Channel
from mpicoll.runtime.host import Host
from mpicoll.runtime.layout import Layout, Run, Shape, merge
from mpicoll.runtime.operands import Operands
from mpicoll.runtime.ops import Operator
from mpicoll.runtime.progress import Operation
from mpicoll.runtime.slot import Slot
from mpicoll.schedule.pack import pack
from mpicoll.schedule.planner import compile_program
from mpicoll.schedule.program import Program
from mpicoll.settings import settings


def plan_for(
    operands: Operands, channel: Channel, algorithm: str | None, rules: str, scratch_limit: int | None = None
) -> Plan:
    """Return the plan for a call's operands; nothing is sent."""
    device = operands.device >= 0
    compiled = operands.op is None or kernels.serves(operands.op, operands.dtype)
    facts = Facts(
        operands.row.name,
        channel.size,
        operands.nbytes,
        "device" if device else "host",
        operands.op.commutative if operands.op else True,
        operands.counts_known,
        channel.paths(compiled) if device else ("host",),
        settings.segment_bytes,
        settings.reproducible if operands.row.reducing else "",
        channel.unoffered(compiled) if device else "",
    )
    forced, wanted, tuning, limit = (
        algorithm or "",
        settings.algorithms,
        settings.tuning,
        scratch_limit or settings.scratch_limit,
    )
    return make_plan(Key(facts, channel.rank, operands.root, forced, rules, wanted, tuning, limit))


def bind(plan: Plan, operands: Operands, channel: Channel, stream: int, slot: Slot) -> Bound:
    """Return the plan bound to the operands' memory, cached in the slot."""
    addresses = tuple(operands.bases.values())
    shape = Shape.of(operands, channel.rank, channel.size)
    dtype = (operands.dtype.str, operands.dtype.itemsize)
    key = (plan, shape, addresses, dtype, operands.op, operands.aliased, operands.device, stream, settings.timeout)
    found = slot.find(key)
    if found is None:
        found = bind_new(plan, operands, channel, stream, slot)
        slot.keep(key, found)
    return found


@lru_cache(maxsize=4096)
def program_of(plan: Plan, shape: Shape, aliased: bool) -> Program:
    """Return the compiled program for a plan and a shape."""
    segments = plan.segments
    schedule = pack(plan.schedule, lambda ref: shape.contiguous(ref, segments))
    return compile_program(schedule, segments, plan.lanes, aliased)


def bind_new(plan: Plan, operands: Operands, channel: Channel, stream: int, slot: Slot) -> Bound:
    """Return the plan bound to the operands' memory; the caller keeps it and frees it."""
    bound = Bound(name=f"{operands.method} #{{}} {plan.algorithm!r}", device=operands.device)
    average = _average(plan, operands, channel, stream)
    if plan.path == "mapped":
        from mpicoll.runtime import mapped

        mapped.bind(plan, operands, channel, stream, bound, average)
        return bound
    _bind_messages(plan, operands, channel, stream, slot, bound)
    bound.add(*average)
    return bound


def _bind_messages(plan: Plan, operands: Operands, channel: Channel, stream: int, slot: Slot, bound: Bound) -> None:
    """Append a plan's messages and its local work."""
    program, layout = _laid_out(plan, operands, channel)
    memory, where, around = _memory(plan, operands, stream, slot, layout, channel.rank)
    kind, device = ("device", operands.device) if memory is not _HOST else ("host", -1)
    scratch = slot.arena(kind, device, layout.scratch_bytes).pointer
    binder = Binder(channel.comm, memory, channel.waiter, slot.number)
    bases = {**where, "scratch": scratch}
    binder.bind(bound, program, layout, bases, operands.dtype, _operator(operands, memory, stream), around)


def _average(plan: Plan, operands: Operands, channel: Channel, stream: int) -> list[Callable[[], object]]:
    """Return the calls that divide the results by the number of combined ranks, where the operator says so."""
    if operands.op is None or not operands.op.average:
        return []
    program, layout = _laid_out(plan, operands, channel)
    worker = _worker(operands, stream)
    made_of = operands.row.after(channel.rank, channel.size, operands.root, program.schedule.blocks)
    combined = len(list(next(iter(made_of.values()), ())))
    runs = output_runs(layout, operands, channel.rank, operands.bases)
    return [worker.divide(operands.dtype, run, combined) for run in runs]


def reserve(plan: Plan, operands: Operands, channel: Channel) -> None:
    """Make sure of a blocking call's scratch and copies; raises MemoryError."""
    if plan.path == "mapped":
        return
    _, layout = _laid_out(plan, operands, channel)
    on_device = operands.device >= 0 and plan.path != "staged"
    kind, device = ("device", operands.device) if on_device else ("host", -1)
    channel.slot(0).arena(kind, device, layout.scratch_bytes)
    if operands.device >= 0:
        _mirrors(plan, operands, channel.slot(0), layout)


def _laid_out(plan: Plan, operands: Operands, channel: Channel) -> tuple[Program, Layout]:
    """Return the compiled program of a call, and where its cells are."""
    shape = Shape.of(operands, channel.rank, channel.size)
    program = program_of(plan, shape, operands.aliased)
    return program, Layout(shape, program.schedule, program.segments, program.lanes, operands.dtype.itemsize)


def _operator(operands: Operands, memory: Any, stream: int) -> Operator | None:
    """Return the operator, made for the memory in which it works."""
    op = operands.op
    if op is None or operands.device < 0 or memory is not _HOST or not op.users:
        return op
    from mpicoll.runtime.staged import on_device

    assert op.function is not None
    return replace(op, function=on_device(op.function, operands.device, stream))


_HOST = Host()


def _worker(operands: Operands, stream: int) -> Any:
    """Return what works on the operands' own memory."""
    if operands.device < 0:
        return _HOST
    from mpicoll.runtime.device import Device

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
        from mpicoll.runtime.staged import Back

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


def run(plan: Plan, operands: Operands, channel: Channel, stream: int) -> Bound:
    """Do a blocking call: pack, run the bound program, unpack."""
    for call in operands.before:
        call()
    bound = bind(plan, operands, channel, stream, channel.slot(0))
    progress.run(bound, channel)
    _unpack(operands)
    return bound


def begin(plan: Plan, operands: Operands, channel: Channel, stream: int, keep: object) -> Operation:
    """Start a nonblocking call in the next slot; it begins when the slot's last call has ended.

    `keep` lives until it is complete: the caller's arrays.
    """
    slot = channel.next_slot()
    if plan.path == "mapped":
        from mpicoll.runtime import mapped

        return mapped.begin(
            operands, channel, stream, lambda side: bind(plan, operands, channel, side, channel.slot(0)), keep
        )
    return _start(operands, channel, stream, slot, lambda side: bind(plan, operands, channel, side, slot), keep)


def prepare(
    plan: Plan, operands: Operands, channel: Channel, stream: int
) -> tuple[Callable[[], Operation], Callable[[], object]]:
    """Bind a persistent call once; returns what starts it and what frees it."""
    slot = channel.own_slot()
    if plan.path == "mapped":
        from mpicoll.runtime import mapped

        kept = bind_new(plan, operands, channel, mapped.side_stream(channel), slot)
        return lambda: mapped.begin(operands, channel, stream, lambda _: kept, operands), lambda: None
    slot.settle()
    bound = bind_new(plan, operands, channel, _side(operands, stream, slot), slot)
    slot.own(bound)
    start = partial(_start, operands, channel, stream, slot, lambda _: bound, operands)
    return start, lambda: channel.release(slot, bound)


def _side(operands: Operands, stream: int, slot: Slot) -> int:
    """Return the stream that a call which does not block works on."""
    return int(slot.side_stream(operands.device).ptr) if operands.device >= 0 else stream


def _start(
    operands: Operands, channel: Channel, stream: int, slot: Slot, bound_on: Callable[[int], Bound], keep: object
) -> Operation:
    """Pack, and start a program; it ends with the unpacking, behind it on the caller's stream."""
    channel.check()
    for call in operands.before:
        call()
    side, last = _side(operands, stream, slot), slot.last
    ready, finish = _handed_over(operands, stream, side)

    def gate() -> bool:
        return (last is None or last.done) and ready()

    slot.last = Operation(
        lambda: bound_on(side), channel, keep=(operands, keep), finish=finish, gate=gate, device=operands.device
    )
    return slot.last


def _handed_over(operands: Operands, stream: int, side: int) -> tuple[Callable[[], bool], Callable[[], object]]:
    """Return when a call may begin, and what is to be done when it has ended."""
    if operands.device < 0:
        return lambda: True, lambda: _unpack(operands)
    from mpicoll.runtime.device import Handover, on_stream

    handover = Handover(operands.device, stream, side)

    def finish() -> None:
        handover.finish()
        if operands.after:
            with on_stream(operands.device, handover):
                _unpack(operands)

    return handover.ready, finish


def _unpack(operands: Operands) -> None:
    for call in operands.after:
        call()
