"""From a plan and operands to a bound program, and its run: the only place that knows both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import lru_cache
from typing import Any

from mpicoll.dispatch.plan import Key, Plan, make_plan
from mpicoll.dispatch.select import Facts
from mpicoll.runtime import progress
from mpicoll.runtime.bound import Binder, Bound
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
    facts = Facts(
        operands.row.name,
        channel.size,
        operands.nbytes,
        "device" if device else "host",
        operands.op.commutative if operands.op else True,
        operands.counts_known,
        channel.paths if device else ("host",),
        settings.segment_bytes,
        settings.reproducible if operands.row.reducing else "",
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
    source, target = operands.input, operands.output
    addresses = (source.pointer if source else 0, target.pointer if target else 0)
    shape = Shape.of(operands, channel.rank, channel.size)
    dtype = (operands.dtype.str, operands.dtype.itemsize)
    key = (plan, shape, addresses, dtype, operands.op, operands.aliased, operands.device, stream)
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
    program, layout = _laid_out(plan, operands, channel)
    bases = {
        "input": operands.input.pointer if operands.input else 0,
        "output": operands.output.pointer if operands.output else 0,
    }
    bound = Bound(name=f"{operands.method} #{{}} {plan.algorithm!r}")
    memory, where, around = _memory(plan, operands, stream, slot, layout, bases, bound, channel.rank)
    kind, device = ("device", operands.device) if memory is not _HOST else ("host", -1)
    scratch = slot.arena(kind, device, layout.scratch_bytes).pointer
    binder = Binder(channel.comm, memory, channel.waiter, slot.number)
    with around:
        binder.bind(
            bound, program, layout, {**where, "scratch": scratch}, operands.dtype, _operator(operands, memory, stream)
        )
    if operands.op and operands.op.average:
        worker = _worker(operands, stream)
        runs = output_runs(layout, operands, channel.rank, bases)
        made_of = operands.row.after(channel.rank, channel.size, operands.root, program.schedule.blocks)
        combined = len(list(next(iter(made_of.values()), ())))
        bound.add(*(worker.divide(operands.dtype, run, combined) for run in runs))
    return bound


def reserve(plan: Plan, operands: Operands, channel: Channel) -> None:
    """Make sure of a blocking call's scratch; raises MemoryError."""
    _, layout = _laid_out(plan, operands, channel)
    on_device = operands.device >= 0 and plan.path != "staged"
    kind, device = ("device", operands.device) if on_device else ("host", -1)
    channel.slot(0).arena(kind, device, layout.scratch_bytes)


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
    plan: Plan,
    operands: Operands,
    stream: int,
    slot: Slot,
    layout: Layout,
    bases: dict[str, int],
    bound: Bound,
    rank: int,
) -> tuple[Any, dict[str, int], AbstractContextManager[None]]:
    """Return what does the local work, where input and output are for it, and what goes around it."""
    if operands.device < 0:
        return _HOST, bases, nullcontext()
    if plan.path == "staged":
        from mpicoll.runtime.staged import Staging

        staging = Staging(slot, operands, stream)
        inputs, outputs = (runs(layout, operands, rank, bases) for runs in (input_runs, output_runs))
        return _HOST, staging.bases, staging.around(bound, inputs, outputs)
    return _worker(operands, stream), bases, _ordered(slot.fence(operands.device), stream, bound)


@contextmanager
def _ordered(fence: Any, stream: int, bound: Bound) -> Iterator[None]:
    """Put the order on the stream around what is bound meanwhile."""
    bound.add(lambda: fence.enter(stream), poll=lambda: fence.is_open(stream))
    yield
    bound.add(lambda: fence.leave(stream))


def output_runs(layout: Layout, operands: Operands, rank: int, bases: dict[str, int]) -> list[Run]:
    """Return where this rank's results are."""
    ids = operands.row.after(rank, layout.shape.size, operands.root, layout.schedule.blocks)
    return _runs("output", ids, layout, bases)


def input_runs(layout: Layout, operands: Operands, rank: int, bases: dict[str, int]) -> list[Run]:
    """Return where this rank's contribution is."""
    ids = operands.row.before(rank, layout.shape.size, operands.root, layout.schedule.blocks)
    return _runs("input", ids, layout, bases)


def _runs(buffer: str, ids: Any, layout: Layout, bases: dict[str, int]) -> list[Run]:
    runs = sorted(layout.cell(buffer, block, segment, bases) for segment in range(layout.segments) for block in ids)
    return merge(runs)


def run(plan: Plan, operands: Operands, channel: Channel, stream: int) -> Bound:
    """Do a blocking call: pack, run the bound program, unpack."""
    for call in operands.before:
        call()
    bound = bind(plan, operands, channel, stream, channel.slot(0))
    progress.run(bound, channel)
    _unpack(operands)
    return bound


def begin(plan: Plan, operands: Operands, channel: Channel, stream: int) -> Operation:
    """Start a nonblocking call in the next slot; it begins when the slot's last call has ended."""
    slot = channel.next_slot()
    return _start(operands, channel, stream, slot, lambda side: bind(plan, operands, channel, side, slot))


def prepare(
    plan: Plan, operands: Operands, channel: Channel, stream: int
) -> tuple[Callable[[], Operation], Callable[[], object]]:
    """Bind a persistent call once; returns what starts it and what frees it."""
    slot = channel.own_slot()
    slot.settle()
    bound = bind_new(plan, operands, channel, _side(operands, stream, slot), slot)
    slot.own(bound)
    return lambda: _start(operands, channel, stream, slot, lambda _: bound), lambda: channel.release(slot, bound)


def _side(operands: Operands, stream: int, slot: Slot) -> int:
    """Return the stream that a call which does not block works on."""
    return int(slot.side_stream(operands.device).ptr) if operands.device >= 0 else stream


def _start(
    operands: Operands, channel: Channel, stream: int, slot: Slot, bound_on: Callable[[int], Bound]
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
        lambda: bound_on(side), channel, keep=operands, finish=finish, gate=gate, device=operands.device
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
