"""Many copies by one action: on the host, and the device's kernel, its very text, run there."""

import ctypes
import importlib
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from mpi.made_up_device import Memory
from mpicoll.runtime.cuda import kernels
from mpicoll.runtime.host.batch import Batch as HostBatch
from unit import recorded_cuda
from unit.recorded_cuda import CALLER, OTHER

made = recorded_cuda.made

HERE = Path(__file__).parent
#: (bytes, bytes from the target's and the source's 16-byte boundary)
CASES = [(0, 0, 0), (1, 0, 0), (15, 3, 3), (17, 3, 4), (4096, 0, 0), (4099, 5, 5), (4096, 4, 8), (100, 1, 2)]
CASES += [(16384, 0, 0), (16385, 15, 15), (50_001, 0, 4), (70_003, 9, 9), (3, 14, 14), (2, 9, 9), (33_000, 2, 6)]


def aligned(nbytes, shift, value):
    """An array of bytes that begins so many bytes after a 16-byte boundary."""
    memory = np.full(nbytes + 32, value, "u1")
    start = -memory.ctypes.data % 16 + shift
    return memory, memory[start : start + nbytes]


class Copies:
    """Arrays to be copied, with memory around each target that must stay as it is."""

    def __init__(self, seed):
        numbers = np.random.default_rng(seed)
        self.targets = [aligned(nbytes, to, 0xEE) for nbytes, to, _ in CASES]
        self.sources = [aligned(nbytes, origin, 0)[1] for nbytes, _, origin in CASES]
        for source in self.sources:
            source[:] = numbers.integers(0, 200, source.size)
        pairs = zip(self.targets, self.sources, strict=True)
        self.list = [(to.ctypes.data, origin.ctypes.data, origin.nbytes) for (_, to), origin in pairs]

    def check(self):
        for (memory, target), source in zip(self.targets, self.sources, strict=True):
            np.testing.assert_array_equal(target, source)
            assert (memory == 0xEE).sum() == memory.size - target.size

    def untouched(self):
        return all((memory == 0xEE).all() for memory, _ in self.targets)


def test_one_action_does_all_copies_on_the_host():
    copies = Copies(1)
    action = HostBatch(copies.list).action()
    assert copies.untouched()
    action()
    copies.check()


def test_an_action_of_the_host_follows_where_the_batch_is_aimed():
    first, second = Copies(1), Copies(2)
    batch = HostBatch(first.list)
    action = batch.action()
    batch.aim([*first.list[:3], *second.list[3:]])
    action()
    assert sum((memory == 0xEE).all() for memory, _ in first.targets) == len(CASES) - 2
    assert sum((memory == 0xEE).all() for memory, _ in second.targets) == 3
    for (_, target), source in zip(second.targets[3:], second.sources[3:], strict=True):
        np.testing.assert_array_equal(target, source)


def test_no_copies_are_no_work(made):
    batch = importlib.import_module("mpicoll.runtime.cuda.batch")
    HostBatch([(0, 0, 0)]).action()()
    empty = batch.Batch(0, [(0, 0, 0)], CALLER)
    made.taken()
    empty.action(CALLER)()
    assert made.taken() == []


@pytest.fixture
def device(made, monkeypatch, tmp_path):
    """The device's module; its copies are done at once, and its kernel by threads of the host."""
    runtime, driver = made.module.cuda.runtime, made.module.cuda.driver

    def copy(to, origin, nbytes, kind, stream):
        made.log.append(("copy", nbytes, stream))
        ctypes.memmove(to, origin, nbytes)

    monkeypatch.setattr(runtime, "memcpyAsync", copy)
    monkeypatch.setattr(made.module.cuda, "alloc_pinned_memory", Memory)

    def compiled(source, name, number):
        text = f'#include "{HERE}/cuda_on_host.h"\n#define collective {name}\n{source}\n'
        (tmp_path / "copies.cpp").write_text(text + f'#include "{HERE}/cuda_on_host_run.h"\n', encoding="utf-8")
        command = ["g++", "-std=c++17", "-O1", "-shared", "-fPIC", "-pthread", "-w", "-fno-strict-aliasing"]
        subprocess.run([*command, "-o", tmp_path / "copies.so", tmp_path / "copies.cpp"], check=True, timeout=120)
        return ctypes.CDLL(str(tmp_path / "copies.so")).run_grid, "module"

    def launch(function, *rest):
        made.log.append(("launch", rest[0], rest[7]))
        argument = ctypes.c_void_p.from_address(rest[8])
        assert function(argument, min(rest[0], 3), 64) == 0  # fewer blocks than chunks, so that each takes several

    monkeypatch.setattr(kernels, "compiled", compiled)
    monkeypatch.setattr(driver, "launchKernel", launch)
    return importlib.import_module("mpicoll.runtime.cuda.batch")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
def test_one_kernel_does_all_copies_of_any_length_and_alignment(made, device):
    """A second upload has the addresses only; none is needed for those that there are."""
    first, second = Copies(1), Copies(2)
    batch = device.Batch(0, first.list, CALLER)
    action = batch.action(CALLER)
    assert first.untouched()
    action()
    first.check()
    count = sum(nbytes > 0 for nbytes, _, _ in CASES)
    chunks = sum(-(-nbytes // device.CHUNK) for nbytes, _, _ in CASES)
    notes = [note for note in made.taken() if note[0] in ("copy", "launch")]
    assert notes == [("copy", 24 * count + 8 * chunks, CALLER), ("launch", chunks, CALLER)]
    batch.aim(list(first.list), CALLER)
    assert made.taken() == []
    batch.aim(second.list, CALLER)
    action()
    second.check()
    assert [note[0] for note in made.taken()] == ["await", "copy", "record", "launch"]


def test_the_kernel_is_launched_on_the_stream_of_its_action(made):
    batch = importlib.import_module("mpicoll.runtime.cuda.batch")
    one = batch.Batch(0, [(64, 128, 1 << 30)], CALLER)
    made.taken()
    one.action(OTHER)()
    assert made.taken() == [("launch", "copies", OTHER)]


def test_a_batch_keeps_its_lengths(made):
    batch = importlib.import_module("mpicoll.runtime.cuda.batch")
    memory = np.zeros(64, "u1").ctypes.data
    for one in (batch.Batch(0, [(memory, memory + 32, 8)], CALLER), HostBatch([(memory, memory + 32, 8)])):
        with pytest.raises(ValueError, match="other lengths"):
            one.aim([(memory, memory + 32, 9)], CALLER)
