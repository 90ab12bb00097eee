"""Device arrays: order with streams, paths, devices.  What is moved and reduced is tested elsewhere.

The work that fills an array is made slow on purpose: whoever reads it too early, or writes too
late, gives a wrong result.
"""

import threading

import numpy as np
import pytest

import mpicoll
from mpi.busy import spin
from mpi.calling import check
from mpi.cases import Case
from mpi.device_arrays import usable

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.parametrize("memory", ["cupy-direct", "cupy-staged", "cupy-mapped"], indirect=True),
]

#: clock cycles of a kernel that keeps its stream busy, about 10 ms
BUSY = 20_000_000
COUNT = 30_000


@pytest.fixture(autouse=True)
def on_device(memory):
    """Each test runs on both paths."""
    with mpicoll.override(path=memory.path):
        yield


def streams():
    import cupy

    return {
        "null": cupy.cuda.Stream.null,
        "blocking": cupy.cuda.Stream(),
        "non-blocking": cupy.cuda.Stream(non_blocking=True),
    }


@pytest.mark.case("SYNC-PRODUCER", "SYNC-STREAM")
@pytest.mark.parametrize("named", [False, True], ids=["current", "stream="])
@pytest.mark.parametrize("kind", ["null", "blocking", "non-blocking"])
@pytest.mark.parametrize("method", ["Allreduce", "Bcast", "Allgather", "Alltoall", "Reduce_scatter_block", "Scan"])
def test_ordered_with_the_stream(world, memory, method, kind, named):
    """What comes before is awaited, what comes after sees the result; nobody waits."""
    xp, stream, p = memory.xp, streams()[kind], world.size
    blocks = p if method in ("Alltoall", "Reduce_scatter_block") else 1
    result = p if method in ("Allgather", "Alltoall") else 1
    x, y = xp.zeros(COUNT * blocks), xp.zeros(COUNT * result)
    xp.cuda.Device().synchronize()
    totals = []
    for turn in range(1, 4):
        with stream:
            spin(BUSY)
            x.fill(turn)
        arguments = (x,) if method == "Bcast" else (x, y)
        with xp.cuda.Stream.null if named else stream:
            getattr(world, method)(*arguments, stream=stream if named else None)
        with stream:
            totals.append((arguments[-1] * 2).sum())
            y.fill(0)
            x.fill(-1)  # what was sent may be overwritten
    stream.synchronize()
    factor = {"Allreduce": p, "Reduce_scatter_block": p, "Scan": world.rank + 1}.get(method, 1)
    elements = x.size if method == "Bcast" else y.size
    assert [float(t) for t in totals] == [2.0 * turn * factor * elements for turn in range(1, 4)]


@pytest.mark.case("SYNC-STAGE")
def test_streams_take_turns(world, memory):
    """One call after the other on two streams: scratch of the first is not overwritten by the second."""
    xp = memory.xp
    first, second = xp.cuda.Stream(non_blocking=True), xp.cuda.Stream(non_blocking=True)
    arrays = [(xp.zeros(COUNT), xp.zeros(COUNT)) for _ in range(6)]
    xp.cuda.Device().synchronize()
    for turn, (x, y) in enumerate(arrays):
        stream = (first, second)[turn % 2]
        with stream:
            spin(BUSY)
            x.fill(turn + world.rank)
        world.Allreduce(x, y, stream=stream)
    xp.cuda.Device().synchronize()
    p = world.size
    for turn, (_, y) in enumerate(arrays):
        assert (y.get() == turn * p + p * (p - 1) // 2).all()


@pytest.mark.case("SYNC-STAGE")
def test_a_thousand_times(world, memory):
    """Changing data in the same arrays, with nothing in between that would synchronise."""
    xp = memory.xp
    x, y, wrong = xp.zeros(COUNT), xp.zeros(COUNT), xp.zeros((), "i8")
    for turn in range(1000):
        x.fill(turn)
        world.Allreduce(x, y)
        wrong += (y != turn * world.size).sum()
    assert int(wrong) == 0


@pytest.mark.parametrize("count", [1, 1000, 300_000, 3_000_001])
def test_large_and_small(world, memory, count):
    for method in ("Allreduce", "Bcast", "Reduce_scatter_block"):
        check(world, Case(method, None, count, dtype="float32", root=1), memory)


def test_the_path_is_told(world, memory):
    x, y = memory.xp.zeros(10), memory.xp.zeros(10)
    plan = world.Get_plan("Allreduce", x, y)
    assert plan.path == memory.path
    assert f"path {memory.path}" in str(plan)


def test_the_path_can_be_said(world, memory):
    x, y = memory.xp.full(10, 1.0), memory.xp.zeros(10)
    with mpicoll.override(path="auto"):
        for path in usable(world):
            assert world.Get_plan("Allreduce", x, y, algorithm=f"ring@{path}").path == path
            y.fill(0)
            world.Allreduce(x, y, algorithm=f"ring/2@{path}")
            assert (y.get() == world.size).all()
        with pytest.raises(mpicoll.UnsupportedError, match="path 'host' cannot serve device arrays here; usable: "):
            world.Allreduce(x, y, algorithm="ring@host")


@pytest.mark.case("MIXED-HOSTDEV")
def test_host_and_device_do_not_mix(world, memory):
    """One call takes arrays of one place only."""
    x = memory.xp.zeros(10)
    device = f"on device {x.device.id}"
    with pytest.raises(ValueError, match=f"^allreduce: sendbuf is {device}, recvbuf is on the host$"):
        world.Allreduce(x, np.zeros(10))
    with pytest.raises(ValueError, match=f"^allreduce: sendbuf is on the host, recvbuf is {device}$"):
        world.Allreduce(np.zeros(10), x)
    check(world, Case("Allreduce"), memory)


def test_the_current_device_and_stream_stay(world, memory):
    cuda = memory.xp.cuda
    device, stream = cuda.Device().id, cuda.Stream(non_blocking=True)
    x, y = memory.xp.zeros(10), memory.xp.zeros(10)
    with stream:
        world.Allreduce(x, y, stream=cuda.Stream.null)
        assert cuda.get_current_stream() == stream
    assert cuda.Device().id == device


def test_arrays_of_another_device_than_the_current(world, memory):
    """The arrays say where the work is done."""
    xp = memory.xp
    mine, count = xp.cuda.Device().id, xp.cuda.runtime.getDeviceCount()
    if count < 2:
        pytest.skip("one device")
    x, y = xp.full(1000, 1.0), xp.zeros(1000)
    with xp.cuda.Device((mine + 1) % count):
        world.Allreduce(x, y)
        assert xp.cuda.Device().id == (mine + 1) % count
    assert (y.get() == world.size).all()


@pytest.mark.case("CTX-THREAD")
def test_from_a_thread_that_has_not_used_the_device(world, memory):
    """The call makes the arrays' device current in the thread."""
    x, y = memory.xp.full(1000, 1.0), memory.xp.zeros(1000)
    memory.xp.cuda.Device().synchronize()
    thread = threading.Thread(target=lambda: world.Allreduce(x, y))
    thread.start()
    thread.join()
    assert (y.get() == world.size).all()


class Exporter:
    """An array of another library: it only says where its memory is."""

    def __init__(self, array):
        self.array = array

    @property
    def __cuda_array_interface__(self):
        return self.array.__cuda_array_interface__


def test_whatever_exports_its_memory(world, memory):
    x, y = memory.xp.full(100, 1.0), memory.xp.zeros(100)
    world.Allreduce(Exporter(x), Exporter(y))
    assert (y.get() == world.size).all()


def test_arrays_that_come_and_go_from_the_pool(world, memory):
    """The pool gives the same address to other arrays."""
    for turn in range(200):
        x = memory.xp.full(100 + turn % 7, float(turn))
        y = memory.xp.empty_like(x)
        world.Allreduce(x, y)
        assert float(y.sum()) == turn * world.size * y.size


@pytest.mark.case("MANAGED")
def test_managed_memory(world, memory):
    """Memory that moves between host and device by itself."""
    pool = memory.xp.cuda.malloc_managed
    with memory.xp.cuda.using_allocator(pool):
        x, y = memory.xp.full(1000, 1.0), memory.xp.zeros(1000)
    world.Allreduce(x, y)
    assert (y.get() == world.size).all()


@pytest.mark.case("MIXED-HOSTDEV")
@pytest.mark.mpi(min_size=2)
def test_host_arrays_on_one_rank_and_device_arrays_on_others(world):
    """The same error on every rank when calls are compared, and no rank hangs."""
    import cupy

    xp = np if world.rank == 0 else cupy
    x, y = xp.ones(8), xp.zeros(8)
    with mpicoll.override(debug=1), pytest.raises(mpicoll.MismatchError, match=r"^allreduce #\d+: rank 0 calls"):
        world.Allreduce(x, y)
    check(world, Case("Allreduce"))
