"""Copies between GPUs, on a CUDA that is made up: memory that other processes map is shared memory of the host."""

import ctypes
import sys
import time
from multiprocessing import resource_tracker, shared_memory
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from mpi4py import MPI

from mpicoll.bench.measure.backends import DeviceBackend
from mpicoll.bench.measure.clock import Clock
from mpicoll.bench.puzzles import case
from mpicoll.bench.puzzles.copies import Copies
from mpicoll.bench.puzzles.pairs import Rounds

WORLD = MPI.COMM_WORLD
SIZE = WORLD.size
NBYTES = 1000
pytestmark = pytest.mark.ranks(2, 3)


class Event:
    """The time at which it was recorded; what is enqueued is done at once."""

    def record(self, stream=None):
        self.at = time.monotonic()


class Stream:
    """Counts the copies that were enqueued on it."""

    ptr = 0

    def __init__(self, non_blocking=False):
        self.ptr, self.waited = id(self), []

    def wait_event(self, event):
        self.waited.append(event)

    def synchronize(self):
        assert self.waited or not self.ptr


class Runtime:
    """Memory by address; a handle is the name of shared memory."""

    def __init__(self, spoiled):
        self.spoiled, self.owned, self.opened, self.copied = spoiled, {}, {}, []

    def _address(self, memory):
        return ctypes.addressof(ctypes.c_char.from_buffer(memory.buf))

    def malloc(self, nbytes):
        memory = shared_memory.SharedMemory(create=True, size=nbytes)
        address = self._address(memory)
        self.owned[address] = memory
        return address

    def ipcGetMemHandle(self, address):
        return self.owned[address].name.encode()

    def ipcOpenMemHandle(self, handle, flags):
        if self.spoiled == "open":
            raise RuntimeError("no peer access")
        memory = shared_memory.SharedMemory(name=handle.decode())
        resource_tracker.unregister(memory._name, "shared_memory")  # the owner's, not ours
        address = self._address(memory)
        self.opened[address] = memory
        return address

    def ipcCloseMemHandle(self, address):
        del self.opened[address]

    def free(self, address):
        self.owned.pop(address).unlink()

    def memcpy(self, target, source, nbytes, kind):
        ctypes.memmove(target, source, nbytes)

    def memcpyAsync(self, target, source, nbytes, kind, stream):
        self.copied.append((target, source, stream))
        ctypes.memmove(target, source, nbytes - (self.spoiled == "short"))


class Cuda(ModuleType):
    """CuPy as NumPy, with streams and events."""

    def __init__(self, spoiled):
        super().__init__("cupy")
        self.cuda = SimpleNamespace(
            runtime=Runtime(spoiled),
            Stream=Stream,
            Event=Event,
            Device=lambda number: SimpleNamespace(use=lambda: None),
            get_current_stream=lambda: SimpleNamespace(synchronize=lambda: None, ptr=0),
            get_elapsed_time=lambda first, last: 1e3 * (last.at - first.at),
        )

    def __getattr__(self, name):
        return getattr(np, name)


@pytest.fixture
def backend(monkeypatch):
    """Return a function that makes a backend of the made-up device."""

    def made(spoiled=""):
        monkeypatch.setitem(sys.modules, "cupy", Cuda(spoiled))
        monkeypatch.setattr(DeviceBackend, "pointer", lambda self, array: int(array.ctypes.data))
        return DeviceBackend(0)

    return made


def measured(backend, repeat=4):
    world = WORLD.Dup()
    rounds = Rounds(world, Clock(world, True, backend.synchronize), 0, 2)
    found = case.measured(SimpleNamespace(world=world, backend=backend), rounds, NBYTES, repeat)
    world.Free()
    return found


def test_each_destination_has_its_stream_and_gets_the_source_s_arrays(backend):
    device = backend()
    found = measured(device)
    runtime = device.xp.cuda.runtime
    assert found.wrong == 0
    assert found.how == "copies between GPUs, a CUDA stream for each destination"
    assert list(found.seconds) == [(0, target) for target in range(1, SIZE)]
    assert all(len(seconds) == 2 and (seconds > 0).all() for seconds in found.seconds.values())
    if WORLD.rank == 0:
        assert {pair: len(spans) for pair, spans in found.spans.items()} == {(0, t): 4 for t in range(1, SIZE)}
        assert len({stream for _, _, stream in runtime.copied}) == len({t for t, _, _ in runtime.copied}) == SIZE - 1
        assert len({source for _, source, _ in runtime.copied}) == 4
    assert not runtime.owned
    assert not runtime.opened


def test_a_copy_that_is_cut_is_wrong(backend):
    assert measured(backend("short")).wrong == SIZE - 1


def test_where_memory_cannot_be_mapped_messages_serve(backend):
    device = backend("open")
    found = measured(device)
    assert "no copies: rank 0: RuntimeError: no peer access" in found.how
    assert (found.wrong, device.xp.cuda.runtime.owned) == (0, {})
    assert list(found.seconds) == [(0, target) for target in range(1, SIZE)]


def test_ranks_of_other_hosts_cannot_be_reached(backend, monkeypatch):
    monkeypatch.setattr(MPI, "Get_processor_name", lambda: f"host{WORLD.rank}")
    world, device = WORLD.Dup(), backend()
    copies = Copies(world, device, NBYTES, [], [1])
    assert copies.why == "rank 0: RuntimeError: rank 1 is on another host"
    copies.close()
    world.Free()
