"""The kernels of the path mapped, their very text, compiled for the host and run there: every lane a thread."""

import ctypes
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import pytest

from mpicoll.algorithms import registry
from mpicoll.runtime.arguments.operators import OPERATORS
from mpicoll.runtime.paths.mapped.credits import unheard
from mpicoll.runtime.paths.mapped.lowering import lower
from mpicoll.runtime.paths.mapped.source import LINES, Protocol, kernel_source, memory_cells
from mpicoll.schedule.partition import offsets, split

HERE = Path(__file__).parent
SLICES = Protocol("slices", 2, 512)
#: bytes of a piece, and calls of each kernel
PIECE, CALLS = 8 << 20, 5
#: word of the control block that says that a kernel was given up
LEFT = 3
#: what the host has instead of PTX
PTX = {
    "st.volatile.global.v4": "host_put16(to, x, LINES);",
    "ld.volatile.global.v4": "x = host_get16(from, LINES);",
    "st.release.sys": "__atomic_store_n(reinterpret_cast<u64*>(to), x, __ATOMIC_SEQ_CST);",
    "ld.acquire.sys": "sched_yield(); x = __atomic_load_n(reinterpret_cast<u64*>(from), __ATOMIC_SEQ_CST);",
    '"" : "+r"': "",
    "fence.acq_rel.sys": "std::atomic_thread_fence(std::memory_order_seq_cst);",
    "globaltimer": "now = 1;",
}

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")


@pytest.fixture(scope="module")
def mapped():
    """The module that packs a kernel's argument; it names CuPy, but needs nothing of it for that."""
    parts = "path", "kernel", "inboxes", "nvlink", "order", "launch", "enqueued", "watchdog", "residents", "items"
    names = [f"mpicoll.runtime.paths.mapped.{name}" for name in parts]
    names += [f"mpicoll.runtime.cuda.{name}" for name in ("work", "order", "launch", "table", "batch")]
    before = {name: sys.modules.pop(name, None) for name in ("cupy", *names)}
    sys.modules["cupy"] = MagicMock()
    try:
        from mpicoll.runtime.paths.mapped import inbox_layout, kernel

        yield kernel, inbox_layout
    finally:
        for name, module in before.items():
            sys.modules.pop(name, None)
            if module is not None:
                sys.modules[name] = module


def host_text(source):
    """The kernel's source with host code in the place of PTX."""

    def instead(match):
        (found,) = [text for word, text in PTX.items() if word in match[0]]
        return found

    text = re.sub(r"asm volatile\(.*?\);", instead, source, flags=re.DOTALL)
    return f'#include "{HERE}/cuda_on_host.h"\n{text}\n#include "{HERE}/cuda_on_host_run.h"\n'


def compiled(source, folder, name):
    (folder / f"{name}.cpp").write_text(host_text(source), encoding="utf-8")
    library = folder / f"{name}.so"
    command = ["g++", "-std=c++17", "-O1", "-shared", "-fPIC", "-pthread", "-w", "-fno-strict-aliasing"]
    subprocess.run([*command, "-o", library, folder / f"{name}.cpp"], check=True, timeout=120)
    return ctypes.CDLL(str(library))


class Ranks:
    """All ranks of one collective, on memory of the host."""

    def __init__(self, modules, name, size, protocol, slots, folder, first=0):
        self.mapped, inbox_layout = modules
        self.most = [128] * size  # blocks of each rank's kernel
        card = registry.get(*name.split("."))
        self.card, self.size, self.protocol, self.slots = card, size, protocol, slots
        self.schedules = card.schedules(size, 0)
        silent = unheard(self.schedules)
        layout = inbox_layout.InboxLayout(size, PIECE)
        self.pieces = [np.zeros(PIECE // 8, "u8") for _ in range(size)]
        for piece in self.pieces:
            piece[0] = first  # calls so far
            piece.view("u4")[layout.tokens // 4 : layout.tokens // 4 + size] = first & 0xFFFFFFFF
        self.host = np.zeros(16, "u4")
        addresses = [piece.ctypes.data for piece in self.pieces]
        self.peers = [
            type("Peers", (), {"layout": layout, "pieces": addresses, "rank": r, "host": self.host.ctypes.data})()
            for r in range(size)
        ]
        op = OPERATORS["SUM"] if card.row.reducing else None
        self.programs, self.libraries = [], []
        for rank, schedule in enumerate(self.schedules):
            awaited = frozenset(b for a, b in silent if a == rank)
            credited = frozenset(a for a, b in silent if b == rank)
            program = lower(schedule, False, awaited, credited, protocol.name == "lines")
            source = kernel_source(program, protocol, slots, rank, size, op, np.dtype("f4"))
            self.programs.append(program)
            self.libraries.append(compiled(source, folder, f"rank{rank}"))

    def call(self, inputs, outputs, counts):
        """Run all ranks' kernels together; arrays are rows of cells."""
        threads = [
            threading.Thread(target=self._run, args=(r, inputs[r], outputs[r], counts)) for r in range(self.size)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _run(self, rank, source, target, counts):
        program = self.programs[rank]
        starts = offsets(counts)
        base = {"input": source.ctypes.data, "output": target.ctypes.data}

        def nbytes(cell):
            return 4 * counts[self.schedules[rank].scratch[cell[1]] if cell[0] == "scratch" else cell[1]]

        memory = [base[buffer] + 4 * starts[number] for buffer, number in memory_cells(program)]
        lengths = [nbytes(cell) for cell in program.cells]
        tiles = -(-max(lengths) // self.protocol.tile)
        addresses = self.mapped.addresses_of(self.peers[rank], self.protocol)
        numbers = self.mapped.numbers_of(self.peers[rank], self.protocol, tiles, self.slots)
        packed = self.mapped.packed_argument(memory, self.mapped._rest(lengths, addresses, numbers))
        grid = self.mapped.grid_for(tiles, self.slots, self.protocol, self.most[rank])
        assert self.libraries[rank].run_grid(ctypes.byref(packed), *grid) == 0


def called(ranks, turn, tiles):
    """Make a call whose blocks have so many tiles, and look at all results."""
    blocks, shared = ranks.schedules[0].blocks, ranks.card.row.shared
    count = blocks * (tiles * ranks.protocol.tile // 4) - 3
    counts = split(count, blocks, 4)
    inputs = [np.arange(count, dtype="f4") % 97 + 100 * r + 1000 * turn for r in range(ranks.size)]
    outputs = [x.copy() if shared else np.full(count, -1, "f4") for x in inputs]
    wanted = inputs[0] if shared else np.sum(inputs, axis=0)
    ranks.call(outputs if shared else inputs, outputs, counts)
    for found in outputs:
        np.testing.assert_array_equal(found, wanted)


CASES = [
    ("allreduce.one_shot", 3, LINES, 2),
    ("allreduce.two_shot", 2, LINES, 1),
    ("allreduce.two_shot", 3, SLICES, 1),
    ("allreduce.ring", 2, SLICES, 2),
    ("bcast.ring", 3, LINES, 1),
    ("bcast.ring", 3, SLICES, 1),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "size", "protocol", "slots"), CASES)
@pytest.mark.parametrize("first", [0, (1 << 32) - 3], ids=["new", "after 2^32 calls"])
def test_several_calls_of_several_waves(mapped, tmp_path, name, size, protocol, slots, first):
    """The number of calls passes 2^32 on the way; sizes change, so that slots are used otherwise."""
    ranks = Ranks(mapped, name, size, protocol, slots, tmp_path, first)
    for turn in range(CALLS):
        called(ranks, turn, (5, 1, 4, 2, 5)[turn] * slots)
    assert [int(piece[0]) for piece in ranks.pieces] == [first + CALLS] * size


@pytest.mark.slow
@pytest.mark.parametrize(("name", "size", "protocol"), [case[:3] for case in CASES])
def test_slots_are_taken_in_turn_where_a_grid_is_kept_small(mapped, tmp_path, name, size, protocol):
    """Each rank has another number of warps, and none has one for each of its 7 slots, but the last."""
    ranks = Ranks(mapped, name, size, protocol, 7, tmp_path)
    ranks.most = [1, 2, 7][:size]
    for turn, tiles in enumerate((30, 3, 7, 16)):
        called(ranks, turn, tiles)


def test_a_kernel_behind_one_that_was_given_up_leaves_at_once(mapped, tmp_path):
    """What that one has sent must stay as it is, and no call is counted any more."""
    ranks = Ranks(mapped, "allreduce.one_shot", 2, SLICES, 2, tmp_path)
    x, y = [np.ones(999, "f4") for _ in range(2)], [np.full(999, -1, "f4") for _ in range(2)]
    ranks.call(x, y, (999,))
    for piece in ranks.pieces:
        piece.view("u4")[LEFT] = 1
    before = [piece.copy() for piece in ranks.pieces]
    x = [2 * one for one in x]
    ranks.call(x, y, (999,))
    assert all((one == 2).all() for one in y)  # the result of the first call
    for piece, old in zip(ranks.pieces, before, strict=True):
        np.testing.assert_array_equal(piece, old)


PROBE = """
extern "C" void probe(u64 from, u64 to, long long bytes, u64 tile) {
  for (u32 lane = 0; lane < 32; lane++) {
    Place p;
    p.tile = tile; p.lane = lane;
    Unit v;
    fetch(from, v, bytes, p);
    keep(to, v, bytes, p);
  }
}
"""


@pytest.mark.parametrize("protocol", [LINES, SLICES], ids=lambda p: p.name)
def test_tiles_far_behind_the_end_of_a_block_touch_nothing(tmp_path, protocol):
    """Blocks may differ in length by more than 2 GiB; a tile within the longest is nothing to the others."""
    program = lower(registry.get("bcast", "linear").schedules(2, 0)[0], False)
    source = kernel_source(program, protocol, 1, 0, 2, None, np.dtype("f4")) + PROBE
    library = compiled(source, tmp_path, "probe")
    library.probe.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_longlong, ctypes.c_uint64]
    source, target = np.arange(4096, dtype="u1"), np.zeros(4096, "u1")
    for nbytes in (0, 10, 1000):
        target[:] = 0
        library.probe(source.ctypes.data, target.ctypes.data, nbytes, 0)
        tile = min(nbytes, protocol.tile)
        assert (target[:tile] == source[:tile]).all()
        assert not target[tile:].any()
        for far in (1, *((1 << 29) * k // protocol.tile for k in range(1, 20))):
            if far * protocol.tile >= nbytes:
                library.probe(source.ctypes.data, target.ctypes.data, nbytes, far)
        assert not target[tile:].any()
