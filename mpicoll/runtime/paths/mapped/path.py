"""The path mapped: a plan bound to one kernel over the peers' inboxes, launched and left alone."""

from __future__ import annotations

import ctypes
import math
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import cupy
import numpy as np

from mpicoll.algorithms import registry
from mpicoll.dispatch.plan import Plan, schedule_of
from mpicoll.errors import UnsupportedError
from mpicoll.runtime.arguments.operands import Operands
from mpicoll.runtime.context.context import Context
from mpicoll.runtime.context.slot import Slot
from mpicoll.runtime.cuda import kernels
from mpicoll.runtime.cuda.launch import plain_launch
from mpicoll.runtime.cuda.order import Handover
from mpicoll.runtime.cuda.streams import is_captured
from mpicoll.runtime.paths.base import Path
from mpicoll.runtime.paths.mapped.credits import unheard
from mpicoll.runtime.paths.mapped.inbox_layout import MARK, PLACES, TOKEN
from mpicoll.runtime.paths.mapped.inboxes import Peers, connect
from mpicoll.runtime.paths.mapped.launch import call_launcher
from mpicoll.runtime.paths.mapped.lowering import Lowered, lower
from mpicoll.runtime.paths.mapped.source import (
    BLOCKS,
    LINES,
    SLICES,
    SLOTS,
    Protocol,
    kernel_source,
    memory_cells,
)
from mpicoll.runtime.program.bound import LAUNCH, ORDER, SYNC, Bound
from mpicoll.runtime.program.layout import Layout, Shape
from mpicoll.runtime.program.local_work import Action
from mpicoll.runtime.progress.exchange import Routine
from mpicoll.schedule.ir import Schedule, Send
from mpicoll.settings import format_bytes, settings

_runtime = cupy.cuda.runtime

#: bytes of the longest block that travels in the protocol `lines`, where the GPUs are linked by NVLink
LINES_LIMIT = 4 << 20


class MappedPath(Path):
    """One kernel for a call, in which every rank writes into its peers' inboxes."""

    name = "mapped"
    captures = True
    ordered = True

    def unoffered(self, context: Context, operands: Operands) -> str:
        """Return why a call cannot be a kernel, "" if it can."""
        if operands.op is not None and not kernels.serves(operands.op, operands.dtype):
            return "the operator is a Python function without a CUDA expression"
        found = context.attached.get(self.name, f"path={settings.path!r} is set")
        return found if isinstance(found, str) else ""

    def remark(self, context: Context) -> str:
        """Return a warning where the GPUs are not linked by NVLink."""
        return "" if _peers(context).linked else "; the GPUs are not linked by NVLink"

    def is_prepared(self, context: Context) -> bool:
        """Tell whether the peers' memory is mapped, cannot be, or is not wanted."""
        return self.name in context.attached or settings.path not in (None, self.name)

    def prepare(self, context: Context, device: int) -> Routine[None]:
        """Map the peers' memory, if it can be."""
        if context.size == 1 or not settings.mapped_bytes:
            context.attached[self.name] = "there is one rank" if context.size == 1 else "mapped_bytes is 0"
            return
        context.attached[self.name] = yield from connect(
            context.comm, device, settings.mapped_bytes, bool(settings.mapped_shared)
        )

    def home(self, context: Context) -> int:
        """Return the device of the inboxes, -1 if there are none."""
        peers = context.attached.get(self.name)
        return -1 if peers is None or isinstance(peers, str) else int(peers.device)

    def side(self, context: Context, operands: Operands, slot: Slot) -> Any:
        """Return the stream of all calls that do not block."""
        return _peers(context).side

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
        """Append the launch of a call's kernel, in the communicator's order; arguments as in `Path.bind`.

        Raises:
            UnsupportedError: the schedule sends too many blocks from rank to rank for the inboxes.
        """
        owner = cupy.cuda.get_current_stream()
        bound.add(LAUNCH, _kernel_call(plan, operands, context, stream, owner), *then)
        bound.last_start = len(bound.actions) - 1
        if is_captured(stream):
            bound.limited = False  # what is captured does not run now: there is nothing to wait for
            return
        bound.mark = lambda: _mark(stream)
        if settings.timeout > 0:
            event = cupy.cuda.Event(disable_timing=True)
            bound.add(ORDER, lambda: _runtime.eventRecord(event.ptr, stream))
            add_wait(bound, context, event.ptr)

    def handed_over(self, bound: Bound, handover: Handover, context: Context) -> Bound:
        """Return a program on the side stream, after what is on the caller's stream; it ends when its kernel does."""
        side = handover.side
        whole = Bound(name=bound.name, device=bound.device, keep=bound)
        whole.add(ORDER, lambda: _runtime.streamWaitEvent(side, handover.begin.ptr))
        whole.add(LAUNCH, *(action for action, poll in zip(bound.actions, bound.polls, strict=True) if poll is None))
        whole.last_start = len(whole.actions) - 1
        whole.add(ORDER, lambda: _runtime.eventRecord(handover.end.ptr, side))
        add_wait(whole, context, handover.end.ptr)
        return whole


def _peers(context: Context) -> Peers:
    """Return a communicator's mapping of its peers' memory, which there is where this path is taken."""
    peers = context.attached[MappedPath.name]
    assert isinstance(peers, Peers)
    return peers


def add_wait(bound: Bound, context: Context, event: int) -> None:
    """Append the wait for the kernel's end; raises StalledError if it has waited for a peer in vain."""

    def ended() -> bool:
        return bool(_runtime.eventQuery(event) == 0)

    def end() -> None:
        _runtime.eventSynchronize(event)
        late = _peers(context).late()
        if late is not None:
            name = bound.name.format(context.calls)
            limit = settings.timeout
            what = f"{name}: rank {context.rank}, waiting in its kernel for {limit:g} s"
            raise context.stalled(what, f"rank {late} did not come")

    bound.add(SYNC, end, poll=ended)


def _mark(stream: int) -> Callable[[], bool]:
    """Mark the end of what is on a stream; returns what tells whether it is reached."""
    event = cupy.cuda.Event(disable_timing=True)
    _runtime.eventRecord(event.ptr, stream)
    return lambda: bool(_runtime.eventQuery(event.ptr) == 0)


def _kernel_call(plan: Plan, operands: Operands, context: Context, stream: int, owner: object) -> Action:
    """Return an action that launches a plan's kernel on the operands' memory.

    Args:
        plan: what was chosen.
        operands: the call.
        context: the communicator's.
        stream: address of the stream.
        owner: keeps the stream alive.
    """
    size, rank, peers = context.size, context.rank, _peers(context)
    schedules = _schedules(plan.key.facts.collective, plan.algorithm, size, plan.key.root, registry.revision())
    protocol, slots = _protocol(plan, schedules, peers)
    lowered = _lowered(schedules, rank, operands.aliased, _even(operands), protocol.name == "lines")
    layout = Layout(Shape.of(operands, rank, size), schedules[rank], 1, 1, operands.dtype.itemsize)
    source = kernel_source(lowered, protocol, slots, rank, size, operands.op, operands.dtype)
    function, module = kernels.compiled(source, "collective", operands.device)
    bases = operands.bases
    counts = [layout.cell(*cell, 0, {**bases, "scratch": 0})[1] for cell in lowered.cells]
    memory = [layout.cell(*cell, 0, bases)[0] for cell in memory_cells(lowered)]
    tiles = -(-max(counts, default=0) // protocol.tile)
    packed = _packed(memory, counts, _addresses(peers, protocol), _numbers(peers, protocol, tiles, slots))
    grid = _grid(tiles, slots, protocol)
    plain = plain_launch(function, packed, grid, peers.device, module)
    return call_launcher(plain, stream, peers.device, peers.order, owner)


def _grid(tiles: int, slots: int, protocol: Protocol) -> tuple[int, int]:
    """Return (blocks, threads of a block): a warp for every tile, if there are so many."""
    blocks = min(max(tiles, 1), slots, BLOCKS)
    return blocks, protocol.block(math.ceil(min(tiles, slots) / blocks))


@lru_cache(maxsize=1024)
def _schedules(collective: str, algorithm: str, size: int, root: int, revision: int) -> tuple[Schedule, ...]:
    card = registry.get(collective, algorithm)
    return tuple(schedule_of(card, rank, size, root) for rank in range(size))


@lru_cache(maxsize=1024)
def _lowered(schedules: tuple[Schedule, ...], rank: int, aliased: bool, even: bool, early: bool) -> Lowered:
    """Return a rank's program.

    Where blocks differ in length one rank may fall silent before another, so all give credit.

    Args:
        schedules: of all ranks.
        rank: this rank.
        aliased: input and output are the same memory.
        even: all blocks have nearly the same length.
        early: as in `lower`.
    """
    silent = unheard(schedules)
    if not even:
        silent = frozenset((sender, receiver) for sender, s in enumerate(schedules) for receiver in _sent(s))
    awaited = frozenset(receiver for sender, receiver in silent if sender == rank)
    credited = frozenset(sender for sender, receiver in silent if receiver == rank)
    return lower(schedules[rank], aliased, awaited, credited, early)


@lru_cache(maxsize=1024)
def _most_sent(schedules: tuple[Schedule, ...]) -> int:
    """Return the most cells that a rank sends to another."""
    return max((n for schedule in schedules for n in _sent(schedule).values()), default=1)


def _sent(schedule: Schedule) -> Counter[int]:
    """Return the number of cells that a rank sends to each peer."""
    sent: Counter[int] = Counter()
    for message in (m for one in schedule.steps for m in one.messages if isinstance(m, Send)):
        sent[message.peer] += len(message.source)
    return sent


def _even(operands: Operands) -> bool:
    """Tell whether all blocks have nearly the same length: a fact that is equal on all ranks."""
    return operands.row.free or (not operands.method.endswith("v") and operands.method != "reduce_scatter")


def _protocol(plan: Plan, schedules: tuple[Schedule, ...], peers: Peers) -> tuple[Protocol, int]:
    """Return (protocol, slots of a wave), the same on all ranks, so from facts that all know."""
    most, facts = _most_sent(schedules), plan.key.facts
    card = registry.get(facts.collective, plan.algorithm)
    block = (facts.nbytes or 0) // card.vector_blocks(facts.size)
    protocol = LINES if peers.linked and (block <= LINES_LIMIT or most > PLACES) else SLICES
    slots = min(protocol.slots, peers.layout.inbox_bytes(protocol.name) // (most * protocol.place))
    if not slots or (most > PLACES and protocol.name == "slices"):
        raise UnsupportedError(
            f"{facts.collective}: algorithm {plan.algorithm!r} sends {most} blocks from rank to rank, too many for "
            f"the path mapped with mapped_bytes={format_bytes(peers.layout.nbytes)}; usable: path direct or staged"
        )
    return protocol, slots


def _addresses(peers: Peers, protocol: Protocol) -> list[int]:
    """Return the addresses there and here, for each rank, of inboxes, flags, tokens, credits."""
    at, found = peers.layout, []
    lines = protocol.name == "lines"
    for start, stride in (
        (at.lines if lines else at.slices, at.inbox_bytes(protocol.name)),
        (at.flags, MARK * SLOTS * PLACES),
        (at.tokens, TOKEN),
        (at.credits, MARK * SLOTS),
    ):
        found += [piece + start + peers.rank * stride for piece in peers.pieces]
        found += [peers.pieces[peers.rank] + start + rank * stride for rank in range(at.size)]
    return found


def _numbers(peers: Peers, protocol: Protocol, tiles: int, slots: int) -> list[int]:
    """Return control, host, tiles, slots, parity_bytes, wave_bytes, limit.

    Args:
        peers: the mapping of all ranks' memory.
        protocol: how tiles travel.
        tiles: number of tiles.
        slots: slots of a wave.
    """
    wave = peers.layout.size * peers.layout.inbox_bytes(protocol.name)
    limit = int(max(settings.timeout, 0) * 1e9)
    return [peers.pieces[peers.rank], peers.host, tiles, slots, 2 * wave, wave, limit]


def _packed(memory: list[int], counts: list[int], addresses: list[int], numbers: list[int]) -> Any:
    """Return the kernel's argument: all of it 64-bit numbers, in the order of `Args`.

    Args:
        memory: addresses of the cells of input and output.
        counts: bytes of each cell.
        addresses: as in `_addresses`.
        numbers: as in `_numbers`.
    """
    fields = [*(memory or [0]), *(counts or [0]), *addresses, *numbers]
    return ctypes.create_string_buffer(np.array(fields, "u8").tobytes())
