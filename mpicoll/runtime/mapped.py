"""The mapped path: a plan bound to one kernel over the peers' inboxes, launched and left alone."""

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
from mpicoll.analysis.heard import unheard
from mpicoll.dispatch.plan import Plan, schedule_of
from mpicoll.errors import UnsupportedError
from mpicoll.runtime import kernels
from mpicoll.runtime.bound import Bound
from mpicoll.runtime.channel import Channel
from mpicoll.runtime.device import Handover
from mpicoll.runtime.host import Call
from mpicoll.runtime.launch import launcher
from mpicoll.runtime.layout import Layout, Shape
from mpicoll.runtime.mapped_source import BLOCKS, LINES, SLICES, SLOTS, Protocol, kernel_source, memory_cells
from mpicoll.runtime.operands import Operands
from mpicoll.runtime.peers import MARK, PLACES, TOKEN, Peers
from mpicoll.runtime.streams import is_captured
from mpicoll.schedule.ir import Schedule, Send
from mpicoll.schedule.lower import Lowered, lower
from mpicoll.settings import format_bytes, settings

_runtime = cupy.cuda.runtime

#: bytes of the longest block that travels in the protocol `lines`, where the GPUs are linked by NVLink
LINES_LIMIT = 4 << 20


def bind(plan: Plan, operands: Operands, channel: Channel, stream: int, bound: Bound, behind: list[Call]) -> None:
    """Append the launch of a call's kernel, in the communicator's order, to a bound program.

    Args:
        plan: what is chosen.
        operands: the call.
        channel: the communicator's.
        stream: address of the stream.
        bound: to which the calls are appended.
        behind: what else is to be launched, behind the kernel.

    Raises:
        UnsupportedError: the schedule sends too many blocks from rank to rank for the inboxes.
    """
    peers = channel.peers
    assert isinstance(peers, Peers)
    owner = cupy.cuda.get_current_stream()
    bound.add(_kernel_call(plan, operands, channel, peers, stream, owner), *behind)
    bound.last_start = len(bound.calls) - 1
    if is_captured(stream):
        bound.limited = False  # what is captured does not run now: there is nothing to wait for
        return
    bound.mark = lambda: _mark(stream)
    if settings.timeout > 0:
        event = cupy.cuda.Event(disable_timing=True)
        bound.add(lambda: _runtime.eventRecord(event.ptr, stream))
        add_wait(bound, channel, event.ptr)


def handed_over(known: Bound, handover: Handover, channel: Channel) -> Bound:
    """Return a program on the side stream, behind what is on the caller's stream; it ends when its kernel does."""
    side = handover.side
    bound = Bound(name=known.name, device=known.device, keep=known)
    bound.add(lambda: _runtime.streamWaitEvent(side, handover.begin.ptr))
    bound.add(*(call for call, poll in zip(known.calls, known.polls, strict=True) if poll is None))
    bound.last_start = len(bound.calls) - 1
    bound.add(lambda: _runtime.eventRecord(handover.end.ptr, side))
    add_wait(bound, channel, handover.end.ptr)
    return bound


def add_wait(bound: Bound, channel: Channel, event: int) -> None:
    """Append the wait for the kernel's end; raises StalledError if it has waited for a peer in vain."""

    def ended() -> bool:
        return bool(_runtime.eventQuery(event) == 0)

    def end() -> None:
        _runtime.eventSynchronize(event)
        late = channel.peers.late()
        if late is not None:
            name = bound.name.format(channel.calls)
            limit = settings.timeout
            what = f"{name}: rank {channel.rank}, waiting in its kernel for {limit:g} s"
            raise channel.stalled(what, f"rank {late} did not come")

    bound.add(end, poll=ended)


def _mark(stream: int) -> Callable[[], bool]:
    """Mark the end of what is on a stream; returns what tells whether it is reached."""
    event = cupy.cuda.Event(disable_timing=True)
    _runtime.eventRecord(event.ptr, stream)
    return lambda: bool(_runtime.eventQuery(event.ptr) == 0)


def _kernel_call(plan: Plan, operands: Operands, channel: Channel, peers: Peers, stream: int, owner: object) -> Call:
    """Return a call that launches a plan's kernel on the operands' memory."""
    size, rank = channel.size, channel.rank
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
    return launcher(function, packed, grid, stream, peers.device, module, peers.order, owner)


def _grid(tiles: int, slots: int, protocol: Protocol) -> tuple[int, int]:
    """Return blocks, and threads of a block: a warp for every tile, if there are so many."""
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
    """Return how tiles travel and the slots of a wave: the same on all ranks, so from what all know."""
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
    """Return where things are, there and here for each rank: inboxes, flags, tokens, credits."""
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
    """Return control, host, tiles, slots, parity_bytes, wave_bytes, limit."""
    wave = peers.layout.size * peers.layout.inbox_bytes(protocol.name)
    limit = int(max(settings.timeout, 0) * 1e9)
    return [peers.pieces[peers.rank], peers.host, tiles, slots, 2 * wave, wave, limit]


def _packed(memory: list[int], counts: list[int], addresses: list[int], numbers: list[int]) -> Any:
    """Return the kernel's argument: all of it 64-bit numbers, in the order of `Args`."""
    fields = [*(memory or [0]), *(counts or [0]), *addresses, *numbers]
    return ctypes.create_string_buffer(np.array(fields, "u8").tobytes())
