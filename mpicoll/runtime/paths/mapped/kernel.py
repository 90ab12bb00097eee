"""The kernel of a call on the path mapped, and its argument."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

from mpicoll.dispatch.plan import Plan
from mpicoll.runtime.arguments.operands import Operands
from mpicoll.runtime.arguments.operators import Operator
from mpicoll.runtime.context.context import Context
from mpicoll.runtime.cuda import kernels
from mpicoll.runtime.paths.mapped.credits import unheard
from mpicoll.runtime.paths.mapped.inbox_layout import MARK, PLACES, TOKEN
from mpicoll.runtime.paths.mapped.inboxes import Peers
from mpicoll.runtime.paths.mapped.lowering import Lowered, lower, reads_first
from mpicoll.runtime.paths.mapped.protocols import all_schedules, cells_sent, protocol_for, way_of
from mpicoll.runtime.paths.mapped.residents import residents_of
from mpicoll.runtime.paths.mapped.source import (
    BLOCKS,
    SLOTS,
    Protocol,
    kernel_source,
    memory_cells,
)
from mpicoll.runtime.program.layout import Layout, Shape
from mpicoll.runtime.program.placement import STARTS
from mpicoll.schedule.ir import Schedule
from mpicoll.settings import settings

T = TypeVar("T")

#: kernels that a communicator keeps at hand
MOST_KERNELS = 4096


@dataclass(frozen=True, eq=False)
class Kernel:
    """A kernel of calls of one signature, and of its argument all that does not depend on where their arrays are.

    Attributes:
        function: its address.
        module: keeps it alive.
        grid: blocks, and threads of a block.
        memory: buffer of each cell that it loads or stores, and bytes from the buffer's start.
        rest: the argument behind the addresses of these cells.
        operator: lives as long, for the kernel is known by its identity.
    """

    function: int
    module: Any
    grid: tuple[int, int]
    memory: list[tuple[str, int]]
    rest: bytes
    operator: Operator | None


def kernel_of(plan: Plan, operands: Operands, context: Context, peers: Peers) -> Kernel:
    """Return the kernel of a call, the same for all calls that differ in nothing but addresses.

    Args:
        plan: what was chosen.
        operands: the call.
        context: the communicator's.
        peers: its mapping of all ranks' memory.
    """
    shape, limit = Shape.of(operands, context.rank, context.size), settings.timeout
    key = plan, shape, operands.aliased, operands.dtype, id(operands.op), is_even(operands), operands.device, limit

    def made() -> Kernel:
        schedules = all_schedules(plan)
        layout = Layout(shape, schedules[shape.rank], 1, 1, operands.dtype.itemsize)
        return made_kernel(plan, operands, schedules, layout, peers)

    return kept(peers.kernels, key, made)


def is_in_place(plan: Plan, operands: Operands, context: Context, peers: Peers) -> bool:
    """Tell whether a kernel can write its output where its input is; arguments as in `kernel_of`.

    A thread works on the same elements of all blocks.  So an input block and an output block in its place must start
    together, and what is there must be read before it is overwritten.
    """
    shape, schedules = Shape.of(operands, context.rank, context.size), all_schedules(plan)
    protocol, _, _ = way_of(plan, schedules, peers)
    lowered = lowered_for(schedules, shape.rank, False, is_even(operands), protocol.name == "lines")
    layout = Layout(shape, schedules[shape.rank], 1, 1, operands.dtype.itemsize)
    return reads_first(lowered, lambda cell: layout.cell(*cell, 0, STARTS))


def kept(table: dict[Any, Any], key: Any, make: Callable[[], T]) -> T:
    """Return what is kept under a key, made now if it is not there; a table that is full is begun anew."""
    if key not in table:
        if len(table) >= MOST_KERNELS:
            table.clear()
        table[key] = make()
    found: T = table[key]
    return found


def made_kernel(
    plan: Plan,
    operands: Operands,
    schedules: tuple[Schedule, ...],
    layout: Layout,
    peers: Peers,
    stored: bool = False,
) -> Kernel:
    """Return a new kernel.

    Args:
        plan: what was chosen.
        operands: the call.
        schedules: of all ranks of the mapping, whose peers are counted among these.
        layout: of this rank's cells.
        peers: the mapping of these ranks' memory.
        stored: as in `lower`.
    """
    protocol, slots = protocol_for(plan, schedules, peers)
    early = protocol.name == "lines"
    lowered = lowered_for(schedules, peers.rank, operands.aliased, is_even(operands), early, stored)
    function, module = function_of(lowered, protocol, slots, operands, peers)
    counts = [layout.cell(*cell, 0, STARTS)[1] for cell in lowered.cells]
    memory = [(cell[0], layout.cell(*cell, 0, STARTS)[0]) for cell in memory_cells(lowered)]
    tiles = -(-max(counts, default=0) // protocol.tile)
    rest = _rest(counts, addresses_of(peers, protocol), numbers_of(peers, protocol, tiles, slots))
    grid = grid_for(tiles, slots, protocol, residents_of(peers.device).most)
    return Kernel(function, module, grid, memory, rest, operands.op)


def function_of(
    lowered: Lowered, protocol: Protocol, slots: int, operands: Operands, peers: Peers, items: bool = False
) -> tuple[int, Any]:
    """Return (address of a program's kernel, module that keeps it alive), at hand for calls of other sizes.

    Args:
        lowered: the rank's program.
        protocol: how tiles travel.
        slots: slots of a wave.
        operands: the call.
        peers: where kernels are kept.
        items: the kernel is one of many calls.
    """
    op, dtype, device = operands.op, operands.dtype, operands.device

    def made() -> tuple[int, Any, Any]:
        source = kernel_source(lowered, protocol, slots, peers.rank, peers.layout.size, op, dtype, items)
        return *kernels.compiled(source, "collective", device), (lowered, op)  # these are known by their identity

    return kept(peers.functions, (id(lowered), protocol, slots, id(op), dtype, device, items), made)[:2]


def grid_for(tiles: int, slots: int, protocol: Protocol, most: int) -> tuple[int, int]:
    """Return (blocks, threads of a block): a warp for every tile, if there are so many.

    Args:
        tiles: of the longest cell.
        slots: of a wave.
        protocol: how tiles travel.
        most: blocks at most.
    """
    blocks = min(max(tiles, 1), slots, most)
    threads = protocol.block(math.ceil(min(tiles, slots) / blocks))
    return blocks, min(threads, protocol.block(math.ceil(slots / BLOCKS)))  # for which the kernel is compiled


@lru_cache(maxsize=1024)
def lowered_for(
    schedules: tuple[Schedule, ...], rank: int, aliased: bool, even: bool, early: bool, stored: bool = False
) -> Lowered:
    """Return a rank's program.

    Where blocks differ in length one rank may fall silent before another, so all give credit.

    Args:
        schedules: of all ranks.
        rank: this rank.
        aliased: input and output are the same memory.
        even: all blocks have nearly the same length.
        early: as in `lower`.
        stored: as in `lower`.
    """
    silent = unheard(schedules)
    if not even:
        silent = frozenset((sender, receiver) for sender, s in enumerate(schedules) for receiver in cells_sent(s))
    awaited = frozenset(receiver for sender, receiver in silent if sender == rank)
    credited = frozenset(sender for sender, receiver in silent if receiver == rank)
    return lower(schedules[rank], aliased, awaited, credited, early, stored)


def is_even(operands: Operands) -> bool:
    """Tell whether all blocks have nearly the same length: a fact that is equal on all ranks."""
    return operands.row.free or (not operands.method.endswith("v") and operands.method != "reduce_scatter")


def addresses_of(peers: Peers, protocol: Protocol) -> list[int]:
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


def numbers_of(peers: Peers, protocol: Protocol, tiles: int, slots: int) -> list[int]:
    """Return control, host, tiles, slots, parity_bytes, wave_bytes, limit: the last fields of `Args`.

    Args:
        peers: the mapping of all ranks' memory.
        protocol: how tiles travel.
        tiles: number of tiles.
        slots: slots of a wave.
    """
    wave = peers.layout.size * peers.layout.inbox_bytes(protocol.name)
    limit = int(max(settings.timeout, 0) * 1e9)
    return [peers.pieces[peers.rank], peers.host, tiles, slots, 2 * wave, wave, limit]


def _rest(counts: list[int], addresses: list[int], numbers: list[int]) -> bytes:
    """Return a kernel's argument behind the addresses of cells in memory: 64-bit numbers, in the order of `Args`.

    Args:
        counts: bytes of each cell.
        addresses: as in `addresses_of`.
        numbers: as in `numbers_of`.
    """
    return np.array([*(counts or [0]), *addresses, *numbers], "u8").tobytes()


def packed_argument(memory: list[int], rest: bytes) -> Any:
    """Return a kernel's argument: the addresses of cells in memory, and what does not depend on them."""
    return ctypes.create_string_buffer(np.array(memory or [0], "u8").tobytes() + rest)
