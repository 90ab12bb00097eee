"""Many calls as one kernel: the calls of a group that are alike, each an item of a table in device memory.

The kernel is that of one call (`path.cu` with ITEMS), whose tiles are those of the first item, then those of the
second, and so on.  How many tiles an item has is equal on all ranks.  Where its arrays are is this rank's affair:

    Allreduce(x, y) of 1000 bytes, Allreduce(IN_PLACE, z) of 448, by one_shot in lines

    places of the arrays   [x, y] [z, z]
    cells of each item     input 0 at x, output 0 at y, 1000 bytes   |   both at z, 448 bytes
    owner of each tile     (item 0, from tile 0) three times, (item 1, from tile 3)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cupy
import numpy as np

from mpicoll.dispatch.plan import Plan
from mpicoll.runtime.arguments.arrays import empty_on, pointer_of
from mpicoll.runtime.arguments.operands import Operands
from mpicoll.runtime.context.context import Context
from mpicoll.runtime.cuda.batch import Batch
from mpicoll.runtime.cuda.launch import plain_launch
from mpicoll.runtime.cuda.streams import mark
from mpicoll.runtime.cuda.table import DeviceTable
from mpicoll.runtime.paths.mapped import watchdog
from mpicoll.runtime.paths.mapped.inboxes import Peers
from mpicoll.runtime.paths.mapped.kernel import (
    addresses_of,
    function_of,
    grid_for,
    lowered_for,
    numbers_of,
    packed_argument,
)
from mpicoll.runtime.paths.mapped.launch import call_launcher
from mpicoll.runtime.paths.mapped.lowering import Lowered, reads_first
from mpicoll.runtime.paths.mapped.protocols import all_schedules, protocol_for
from mpicoll.runtime.paths.mapped.residents import residents_of
from mpicoll.runtime.paths.mapped.source import Protocol, memory_cells
from mpicoll.runtime.program.align import aligned
from mpicoll.runtime.program.bound import LAUNCH, ORDER, Bound
from mpicoll.runtime.program.layout import Layout, Shape
from mpicoll.runtime.program.local_work import Copy
from mpicoll.runtime.program.placement import STARTS
from mpicoll.schedule.ir import Schedule
from mpicoll.schedule.partition import offsets, split
from mpicoll.settings import settings


@dataclass(frozen=True)
class Item:
    """The cells of a call, wherever its arrays are.

    Attributes:
        starts: bytes from the buffer's start of each cell in memory.
        lengths: bytes of each cell.
        tiles: of its longest block, equal on all ranks.
        in_place: the program reads each element before it writes over it, where the output is in the input's place.
    """

    starts: tuple[int, ...]
    lengths: tuple[int, ...]
    tiles: int
    in_place: bool


def item_of(shape: Shape, schedule: Schedule, lowered: Lowered, protocol: Protocol, itemsize: int) -> Item:
    """Return a call as an item.

    Args:
        shape: of the call.
        schedule: this rank's.
        lowered: this rank's program.
        protocol: how tiles travel.
        itemsize: bytes of an element.
    """
    layout = Layout(shape, schedule, 1, 1, itemsize)
    starts = tuple(layout.cell(*cell, 0, STARTS)[0] for cell in memory_cells(lowered))
    lengths = tuple(layout.cell(*cell, 0, STARTS)[1] for cell in lowered.cells)
    longest = max(split(shape.count, schedule.blocks, shape.grain)) if shape.free else shape.count_of(0)
    in_place = reads_first(lowered, lambda cell: layout.cell(*cell, 0, STARTS))
    return Item(starts, lengths, -(-longest * itemsize // protocol.tile), in_place)


class Columns:
    """The columns of a kernel's table: each item's addresses, then lengths, then the owner of each tile.

    Attributes:
        tiles: of all items.
        content: bytes of the lengths and owners.
    """

    def __init__(self, lowered: Lowered, items: Sequence[Item]) -> None:
        """Hold what does not depend on where the arrays are."""
        memory = memory_cells(lowered)
        self._sides = np.array([int(buffer == "output") for buffer, _ in memory] or [0])
        self._starts = np.array([one.starts or (0,) for one in items], "u8")
        lengths = np.array([one.lengths or (0,) for one in items], "u8")
        tiles = np.array([one.tiles for one in items])
        firsts = tiles.cumsum() - tiles
        owners = np.stack([np.arange(len(items)), firsts], axis=1).astype("u4").repeat(tiles, axis=0)
        self.tiles, self.content = int(tiles.sum()), lengths.tobytes() + owners.tobytes()
        self._offsets = 0, self._starts.nbytes, self._starts.nbytes + lengths.nbytes

    def addresses(self, bases: np.ndarray) -> bytes:
        """Return the first column, of items whose inputs and outputs start at these addresses, a row for each."""
        column: np.ndarray = bases[:, self._sides] + self._starts
        return column.tobytes()

    def at(self, table: int) -> list[int]:
        """Return the addresses of the columns in a table."""
        return [table + offset for offset in self._offsets]


class Items:
    """Calls of one plan as one launch, which can be aimed at other arrays of the same sizes.

    Attributes:
        bound: the program.
        places: addresses of input and output of each call, a row for each.
    """

    def __init__(
        self, plan: Plan, calls: Sequence[Operands], places: np.ndarray, context: Context, peers: Peers, stream: int
    ) -> None:
        """Bind the calls, on the current stream.

        Args:
            plan: what was chosen for all of them together.
            calls: that are alike in all but sizes.
            places: see the attributes.
            context: the communicator's.
            peers: its mapping of all ranks' memory.
            stream: address of the current stream.
        """
        first, device = calls[0], peers.device
        schedules, itemsize = all_schedules(plan), first.dtype.itemsize
        protocol, slots = protocol_for(plan, schedules, peers)
        aliased = all(one.aliased for one in calls if one.nbytes)
        # Blocks of one item may have more tiles than others, and the next item goes on behind them: all give credit.
        lowered = lowered_for(schedules, context.rank, aliased, False, protocol.name == "lines")
        shapes = [Shape.of(one, context.rank, context.size) for one in calls]
        made = {s: item_of(s, schedules[context.rank], lowered, protocol, itemsize) for s in set(shapes)}
        items = [made[shape] for shape in shapes]
        self.places, self._stream, self._columns = places, stream, Columns(lowered, items)
        self._copied = [] if aliased else [k for k, one in enumerate(calls) if _is_copied(one, items[k], places[k])]
        self._lengths = [_input_bytes(calls[k]) for k in self._copied]
        room = tuple(map(aligned, self._lengths))
        self._scratch = empty_on(device, sum(room), np.dtype("u1")) if room else None
        self._into = [pointer_of(self._scratch) + start for start in offsets(room)]
        self._copies = Batch(device, self._copies_of(places), stream) if room else None
        self._table = DeviceTable(device, self._columns.addresses(self._bases(places)) + self._columns.content, stream)
        function, module = function_of(lowered, protocol, slots, first, peers, True)
        tiles = self._columns.tiles
        fields = [*addresses_of(peers, protocol), *numbers_of(peers, protocol, tiles, slots)]
        packed = packed_argument(self._columns.at(self._table.address), np.array(fields, "u8").tobytes())
        grid = grid_for(tiles, slots, protocol, residents_of(device).most)
        launch = plain_launch(function, packed, grid, device, (module, first.op))
        self.bound = Bound(name=f"{first.method} #{{}} {plan.algorithm!r}, of {len(calls)} arrays", device=device)
        self._bind(launch, grid[0], context, peers)

    def aim(self, places: np.ndarray) -> None:
        """Take other arrays of the same sizes; those that were given last are not looked at."""
        if places is self.places:
            return
        if not np.array_equal(places, self.places):
            self._table.write(self._columns.addresses(self._bases(places)), self._stream)
            if self._copies is not None:
                self._copies.aim(self._copies_of(places), self._stream)
        self.places = places

    def _bases(self, places: np.ndarray) -> np.ndarray:
        """Return the addresses at which the kernel finds the inputs and outputs."""
        bases = places.copy()
        bases[self._copied, 0] = self._into
        return bases

    def _copies_of(self, places: np.ndarray) -> list[Copy]:
        """Return the copies of inputs over which the kernel would write too early."""
        origins = places[self._copied, 0].tolist()
        return list(zip(self._into, origins, self._lengths, strict=True))

    def _bind(self, plain: Any, most: int, context: Context, peers: Peers) -> None:
        """Append the actions.

        Args:
            plain: launches the kernel.
            most: its blocks.
            context: the communicator's.
            peers: its mapping of all ranks' memory.
        """
        bound, stream, owner = self.bound, self._stream, cupy.cuda.get_current_stream()
        if settings.timeout > 0:
            bound.add(ORDER, watchdog.look_of(context, peers, settings.timeout))
        if self._copies is not None:
            bound.add(LAUNCH, self._copies.action(stream))
        residents = residents_of(peers.device)
        bound.add(LAUNCH, call_launcher(plain, most, stream, peers.device, peers.order, residents, owner))
        bound.last_start = len(bound.actions) - 1
        bound.mark = lambda: mark(stream)


def _is_copied(one: Operands, item: Item, place: np.ndarray) -> bool:
    """Tell whether a call needs a copy of its input, for it is in the place of the output.

    Args:
        one: the call.
        item: its cells.
        place: address of its input and output.
    """
    if not one.nbytes or not (one.held or one.aliased):
        return False
    return not (item.in_place and place[0] == place[1])


def _input_bytes(one: Operands) -> int:
    return int(one.input.array.nbytes) if one.input else 0
