"""From a plan and operands to a bound program, and its run: the only place that knows both."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from mpicoll.dispatch.plan import Key, Plan, make_plan
from mpicoll.dispatch.select import Facts
from mpicoll.runtime.bound import Binder, Bound
from mpicoll.runtime.channel import Channel
from mpicoll.runtime.host import Host
from mpicoll.runtime.layout import Layout, Run, Shape
from mpicoll.runtime.operands import Operands
from mpicoll.schedule.pack import pack
from mpicoll.schedule.planner import compile_program
from mpicoll.schedule.program import Program
from mpicoll.settings import settings


def plan_for(operands: Operands, channel: Channel, algorithm: str | None, rules: str) -> Plan:
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
    )
    forced, wanted, tuning, limit = algorithm or "", settings.algorithms, settings.tuning, settings.scratch_limit
    return make_plan(Key(facts, channel.rank, operands.root, forced, rules, wanted, tuning, limit))


def bind(plan: Plan, operands: Operands, channel: Channel, stream: int) -> Bound:
    """Return the plan bound to the operands' memory, cached."""
    source, target = operands.input, operands.output
    addresses = (source.pointer if source else 0, target.pointer if target else 0)
    shape = Shape.of(operands, channel.rank, channel.size)
    op = operands.op.name if operands.op else ""
    key = (
        plan,
        shape,
        addresses,
        operands.dtype.str,
        operands.dtype.itemsize,
        op,
        operands.aliased,
        operands.device,
        stream,
    )
    found = channel.find(key)
    if found is None:
        found = _bind(plan, shape, operands, channel, stream)
        channel.keep(key, found)
    return found


@lru_cache(maxsize=4096)
def program_of(plan: Plan, shape: Shape, aliased: bool) -> Program:
    """Return the compiled program for a plan and a shape."""
    segments = plan.segments
    schedule = pack(plan.schedule, lambda ref: shape.contiguous(ref, segments))
    return compile_program(schedule, segments, plan.lanes, aliased)


def _bind(plan: Plan, shape: Shape, operands: Operands, channel: Channel, stream: int) -> Bound:
    program = program_of(plan, shape, operands.aliased)
    layout = Layout(shape, program.schedule, program.segments, program.lanes, operands.dtype.itemsize)
    bases = {
        "input": operands.input.pointer if operands.input else 0,
        "output": operands.output.pointer if operands.output else 0,
    }
    if plan.path == "staged":
        from mpicoll.runtime.staged import Staging

        staging = Staging(channel, operands, stream)
        bound = _bind_in(Host(), program, layout, staging.bases, operands, channel, "host")
        rank = channel.rank
        staging.wrap(bound, input_runs(layout, operands, rank, bases), output_runs(layout, operands, rank, bases))
        memory: Any = staging.device
    else:
        memory = _memory(operands, stream)
        kind = "host" if operands.device < 0 else "device"
        bound = _bind_in(memory, program, layout, bases, operands, channel, kind)
        if kind == "device":
            fence = channel.fence(operands.device)
            bound.calls = [lambda: fence.enter(stream), *bound.calls, lambda: fence.leave(stream)]
    if operands.op and operands.op.average:
        runs = output_runs(layout, operands, channel.rank, bases)
        bound.calls += [memory.scale(operands.dtype, run, 1 / channel.size) for run in runs]
    return bound


def _bind_in(
    memory: Any,
    program: Program,
    layout: Layout,
    bases: dict[str, int],
    operands: Operands,
    channel: Channel,
    kind: str,
) -> Bound:
    arena = channel.arena(kind, operands.device if kind == "device" else -1, layout.scratch_bytes)
    binder = Binder(channel.comm, memory, channel.waiter)
    return binder.bind(program, layout, {**bases, "scratch": arena.pointer}, operands.dtype, operands.op)


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
    merged: list[Run] = []
    for address, nbytes in runs:
        if merged and merged[-1][0] + merged[-1][1] == address:
            merged[-1] = merged[-1][0], merged[-1][1] + nbytes
        elif nbytes:
            merged.append((address, nbytes))
    return merged


def _memory(operands: Operands, stream: int) -> Any:
    if operands.device < 0:
        return Host()
    from mpicoll.runtime.device import Device

    return Device(operands.device, stream)


def run(plan: Plan, operands: Operands, channel: Channel, stream: int) -> Bound:
    """Do the call: pack, run the bound program, unpack."""
    for call in operands.before:
        call()
    bound = bind(plan, operands, channel, stream)
    bound.run()
    for call in operands.after:
        call()
    return bound
