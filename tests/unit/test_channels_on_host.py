"""The kernel of messages, its very text, compiled for the host and run there on all ranks at the same time."""

import ctypes
import random
import shutil
import threading

import numpy as np
import pytest

from mpicoll.errors import UnsupportedError
from mpicoll.runtime.paths.mapped import channels
from mpicoll.runtime.paths.mapped.channels import Transfer
from mpicoll.runtime.paths.mapped.source import LINES, Protocol
from unit.test_mapped_on_host import compiled

SLICES = Protocol("slices", 2, 512)
SIZE = 3
LEFT = 3

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Rings of 8 and 4 tiles, so that messages go round them many times, and kernels of few warps."""
    monkeypatch.setattr(channels, "RING", 4096)
    monkeypatch.setattr(channels, "BLOCKS", 3)


class Ranks:
    """All ranks of a communicator with channels, on memory of the host."""

    def __init__(self, protocol, folder):
        self.protocol = protocol
        self.layout = channels.layout_of(SIZE, protocol)
        self.pieces = [np.zeros(self.layout.nbytes // 8 + 1, "u8") for _ in range(SIZE)]
        self.addresses = [piece.ctypes.data for piece in self.pieces]
        self.host = np.zeros(16, "u4")
        compiled("#define KERNEL channels\n" + channels.channel_source(protocol, SIZE, 8), folder, "kernel")
        self.libraries = []
        for rank in range(SIZE):  # each rank has its own, for a kernel's blockDim and gridDim are the library's
            shutil.copy(folder / "kernel.so", folder / f"rank{rank}.so")
            self.libraries.append(ctypes.CDLL(str(folder / f"rank{rank}.so")))

    def run(self, transfers, grids=(None,) * SIZE):
        """Run the kernels of all ranks that have messages."""
        threads = [
            threading.Thread(target=self._run, args=(rank, mine, grids[rank]))
            for rank, mine in enumerate(transfers)
            if mine
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _run(self, rank, transfers, grid):
        host = self.host.ctypes.data
        packed = channels.argument(transfers, self.layout, self.addresses, rank, host, self.protocol, 0)
        grid = grid or channels.grid_for(transfers, self.protocol)
        assert self.libraries[rank].run_grid(ctypes.byref(packed), *grid) == 0


def exchange(ranks, messages, chance):
    """Send messages (source, target, bytes), each rank's in its own order but for those of a channel."""
    mine, wanted = [[] for _ in range(SIZE)], []
    for source, target, nbytes in messages:
        shift = chance.randrange(3)
        sent = np.frombuffer(chance.randbytes(nbytes + shift), "u1")[shift:]
        got = np.full(nbytes + 8, 7, "u1")
        mine[source].append(Transfer(True, target, sent.ctypes.data, nbytes))
        mine[target].append(Transfer(False, source, got.ctypes.data, nbytes))
        wanted.append((sent, got, nbytes))
    ranks.run(mine, [None, (2, 128), (1, 256)])
    for sent, got, nbytes in wanted:
        assert (got[:nbytes] == sent).all()
        assert (got[nbytes:] == 7).all()


@pytest.mark.slow
@pytest.mark.parametrize("protocol", [LINES, SLICES], ids=lambda p: p.name)
def test_messages_of_any_length_come_whole(tmp_path, protocol):
    """Also longer than a ring, none at all, and several of a channel; not all ranks take part each time."""
    ranks, chance = Ranks(protocol, tmp_path), random.Random(5)
    exchange(ranks, [(0, 1, 448), (1, 0, 448)], chance)
    exchange(ranks, [(r, (r + 1) % SIZE, 9_000) for r in range(SIZE)], chance)
    exchange(ranks, [(0, 2, 10_001), (0, 2, 0), (0, 2, 5), (2, 0, 12_345), (2, 1, 100)], chance)
    for _ in range(2):
        pairs = [(a, b) for a in range(SIZE) for b in range(SIZE) if a != b]
        chosen = chance.sample(pairs, 4)
        exchange(ranks, [(a, b, chance.choice([1, 447, 449, 5000, 7_000])) for a, b in chosen], chance)
    assert not any(piece.view("u4")[LEFT] for piece in ranks.pieces)


def test_both_ends_count_the_same_tiles(tmp_path):
    """What a replayed kernel goes on from."""
    ranks, chance = Ranks(LINES, tmp_path), random.Random(5)
    for _ in range(3):
        exchange(ranks, [(0, 1, 1000), (0, 1, 1), (1, 2, 0), (2, 0, 448 * 9)], chance)
    first = channels._CONTROL // 8
    sent = [piece[first : first + SIZE].tolist() for piece in ranks.pieces]
    received = [piece[first + SIZE : first + 2 * SIZE].tolist() for piece in ranks.pieces]
    assert sent == [[0, 12, 0], [0, 0, 0], [27, 0, 0]]
    assert received == [[0, 0, 27], [12, 0, 0], [0, 0, 0]]


def test_a_kernel_behind_one_that_was_given_up_sends_nothing(tmp_path):
    ranks = Ranks(LINES, tmp_path)
    for piece in ranks.pieces:
        piece.view("u4")[LEFT] = 1
    before = [piece.copy() for piece in ranks.pieces]
    x, y = np.ones(100, "u1"), np.zeros(100, "u1")
    ranks.run([[Transfer(True, 1, x.ctypes.data, 100)], [Transfer(False, 0, y.ctypes.data, 100)], []])
    assert not y.any()
    for piece, old in zip(ranks.pieces, before, strict=True):
        np.testing.assert_array_equal(piece, old)


def test_each_message_has_a_warp(monkeypatch):
    """However many there are, and however short."""
    monkeypatch.undo()
    for number in (1, 7, 8, 9, 31, 80):
        for nbytes in (0, 1, 448 * 40):
            blocks, threads = channels.grid_for([Transfer(True, 1, 0, nbytes)] * number, LINES)
            assert blocks * threads // 32 >= number
            assert blocks <= channels.BLOCKS
            assert threads <= channels.THREADS


def test_more_messages_than_a_kernel_has_room_for_are_refused():
    assert [channels.capacity_for(n) for n in (0, 8, 9, 32, 80)] == [8, 8, 32, 32, 80]
    with pytest.raises(
        UnsupportedError, match="a group has 81 messages of device arrays, at most 80 can be one kernel"
    ):
        channels.capacity_for(81)


def test_the_argument_fits_into_a_kernels():
    """CUDA takes 4 KiB."""
    layout = channels.layout_of(16, LINES)
    transfers = [Transfer(True, 1, 0, 1)] * 80
    assert len(channels.argument(transfers, layout, [0] * 16, 0, 0, LINES, 0)) <= 4096
