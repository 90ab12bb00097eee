"""The kernel of many calls, its very text, compiled for the host and run there on all ranks at the same time."""

import ctypes
import shutil
import threading

import numpy as np
import pytest

from mpicoll.algorithms import registry
from mpicoll.runtime.arguments.operators import OPERATORS
from mpicoll.runtime.paths.mapped.source import LINES, kernel_source
from mpicoll.runtime.program.layout import Shape
from unit import test_mapped_on_host
from unit.test_mapped_on_host import PIECE, SLICES, compiled

mapped = test_mapped_on_host.mapped
pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")

#: elements of each item's block or vector, of 4 bytes: some have none, some several tiles, with few slots several waves
COUNTS = (0, 1, 500, 0, 3, 112, 113, 2000, 4, 31)
CASES = [
    ("allreduce.one_shot", 3, LINES, 2),
    ("allreduce.one_shot", 2, SLICES, 3),
    ("allreduce.two_shot", 3, LINES, 1),
    ("allreduce.two_shot", 3, SLICES, 2),
    ("allreduce.ring", 3, LINES, 2),
    ("bcast.ring", 3, LINES, 1),
    ("bcast.linear", 3, SLICES, 2),
    ("allgather.ring", 3, LINES, 2),
    ("allgather.linear", 3, SLICES, 1),
    ("alltoall.linear", 3, LINES, 2),
]
IDS = [f"{name}-{size}-{protocol.name}-{slots}" for name, size, protocol, slots in CASES]


class Ranks:
    """All ranks of one collective, on memory of the host."""

    def __init__(self, modules, name, size, protocol, slots, folder):
        from mpicoll.runtime.paths.mapped import items

        self.mapped, inbox_layout = modules
        self.items, self.size, self.protocol, self.slots = items, size, protocol, slots
        self.card = registry.get(*name.split("."))
        self.schedules = tuple(self.card.schedules(size, 0))
        layout = inbox_layout.InboxLayout(size, PIECE)
        self.pieces = [np.zeros(PIECE // 8, "u8") for _ in range(size)]
        self.host = np.zeros(16, "u4")
        addresses = [piece.ctypes.data for piece in self.pieces]
        self.peers = [
            type("Peers", (), {"layout": layout, "pieces": addresses, "rank": r, "host": self.host.ctypes.data})()
            for r in range(size)
        ]
        self.folder, self.libraries, self.programs = folder, {}, {}

    def call(self, calls, most=128):
        """Run all ranks' kernels together.

        Args:
            calls: of each rank (aliased, [(shape, input, output)]).
            most: blocks of a kernel.
        """
        for rank, (aliased, _) in enumerate(calls):
            self._compile(rank, aliased)
        threads = [threading.Thread(target=self._run, args=(r, *calls[r], most)) for r in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not any(piece.view("u4")[3] for piece in self.pieces)

    def _compile(self, rank, aliased):
        if (rank, aliased) in self.libraries:
            return
        early, op = self.protocol.name == "lines", OPERATORS["SUM"] if self.card.row.reducing else None
        program = self.mapped.lowered_for(self.schedules, rank, aliased, False, early)
        source = kernel_source(program, self.protocol, self.slots, rank, self.size, op, np.dtype("f4"), True)
        self.programs[rank, aliased] = program
        self.libraries[rank, aliased] = compiled(source, self.folder, f"rank{rank}{aliased}")

    def _run(self, rank, aliased, calls, most):
        program = self.programs[rank, aliased]
        made = [self.items.item_of(s, self.schedules[rank], program, self.protocol, 4) for s, _, _ in calls]
        columns = self.items.Columns(program, made)
        places = np.array([(x.ctypes.data, y.ctypes.data) for _, x, y in calls], "u8")
        content = columns.addresses(places) + columns.content
        table = np.frombuffer(content, "u8").copy()
        addresses = self.mapped.addresses_of(self.peers[rank], self.protocol)
        numbers = self.mapped.numbers_of(self.peers[rank], self.protocol, columns.tiles, self.slots)
        rest = np.array([*addresses, *numbers], "u8").tobytes()
        packed = self.mapped.packed_argument(columns.at(table.ctypes.data), rest)
        grid = self.mapped.grid_for(columns.tiles, self.slots, self.protocol, most)
        assert self.libraries[rank, aliased].run_grid(ctypes.byref(packed), *grid) == 0


def blocks(count, size):
    """Blocks of equal length, one after the other."""
    return (count,) * size, tuple(range(0, count * size, count or 1))[:size] if count else (0,) * size


def shape_of(ranks, rank, count):
    """The shape of a call of blocks or a vector of so many elements."""
    row, size = ranks.card.row, ranks.size
    if row.free:
        return Shape(True, count, ((), ()), ((), ()), rank, size, False, 4)
    single, several = ((count,), (0,)), blocks(count, size)
    source = several if row.name == "alltoall" else single
    return Shape(False, 0, source, several, rank, size, row.name == "alltoall", 4)


def values(ranks, rank, count, item, turn):
    """What a rank sends; and an output in which nothing is that could be right."""
    row, size = ranks.card.row, ranks.size
    sends = count * size if row.name == "alltoall" else count
    receives = count if row.free else count * size
    x = np.arange(sends, dtype="f4") % 97 + 100 * rank + 1000 * turn + 10_000 * item
    return x, np.full(receives, -1, "f4")


def wanted(ranks, inputs, rank):
    """The result of an item on a rank."""
    name = ranks.card.row.name
    if name == "allreduce":
        return np.sum(inputs, axis=0)
    if name == "bcast":
        return inputs[0]
    if name == "allgather":
        return np.concatenate(inputs)
    return np.concatenate([x.reshape(ranks.size, -1)[rank] for x in inputs])


def check(ranks, counts, turn, in_place=(), most=128):
    """Make a call of items, and look at all results; ranks that are named do it in place."""
    calls, inputs = [], []
    for rank in range(ranks.size):
        aliased = rank in in_place or ranks.card.row.shared
        made = [(shape_of(ranks, rank, n), *values(ranks, rank, n, k, turn)) for k, n in enumerate(counts)]
        inputs.append([x.copy() for _, x, _ in made])
        calls.append((aliased, [(s, x, x if aliased else y) for s, x, y in made]))
    ranks.call(calls, most)
    for rank, (_, made) in enumerate(calls):
        for k, (_, _, found) in enumerate(made):
            np.testing.assert_array_equal(found, wanted(ranks, [x[k] for x in inputs], rank), f"{rank} {k}")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "size", "protocol", "slots"), CASES, ids=IDS)
def test_items_of_different_sizes_are_as_single_calls(mapped, tmp_path, name, size, protocol, slots):
    """Again and again, for what one call leaves in the inboxes must not be taken for the next one's."""
    ranks = Ranks(mapped, name, size, protocol, slots, tmp_path)
    for turn in range(4):
        check(ranks, COUNTS[turn % 2 :], turn)
    check(ranks, (0, 0), 5)
    check(ranks, (7,), 6)
    assert [int(piece[0]) for piece in ranks.pieces] == [6] * size


@pytest.mark.slow
@pytest.mark.parametrize("protocol", [LINES, SLICES], ids=lambda p: p.name)
def test_some_ranks_may_be_in_place_and_others_not(mapped, tmp_path, protocol):
    ranks = Ranks(mapped, "allreduce.two_shot", 3, protocol, 2, tmp_path)
    for turn, in_place in enumerate([(0,), (1, 2), (), (0, 1, 2)]):
        check(ranks, COUNTS, turn, in_place, most=1 + turn)


def test_the_tiles_of_an_item_are_those_of_its_longest_block_on_all_ranks(mapped, tmp_path):
    """Those of an alltoall lie in blocks that no other rank has; those of a vector are cut."""
    ranks = Ranks(mapped, "allreduce.two_shot", 3, LINES, 2, tmp_path)
    program = ranks.mapped.lowered_for(ranks.schedules, 0, False, False, True)
    tiles = [ranks.items.item_of(shape_of(ranks, 0, n), ranks.schedules[0], program, LINES, 4).tiles for n in COUNTS]
    assert tiles == [0, 1, 2, 0, 1, 1, 1, 6, 1, 1]
    columns = ranks.items.Columns(program, [ranks.items.Item((), (), n, True) for n in (2, 0, 3)])
    assert columns.tiles == 5
    assert np.frombuffer(columns.content[-40:], "u4").tolist() == [0, 0, 0, 0, 2, 2, 2, 2, 2, 2]
