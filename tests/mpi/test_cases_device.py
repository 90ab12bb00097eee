"""Cases of users that need a GPU: order with streams, several ranks on a device, memory, measuring.

What also has a meaning on the host is in the other files, where the same tests run on both.
"""

import statistics
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpi.busy import spin
from mpi.calling import Case, check
from mpicoll.request import Request

pytestmark = pytest.mark.gpu

SIZE = MPI.COMM_WORLD.Get_size()
RANK = MPI.COMM_WORLD.Get_rank()
WORLD = MPI.COMM_WORLD
PATHS = pytest.mark.parametrize("memory", ["cupy-direct", "cupy-staged", "cupy-mapped"], indirect=True)
#: sum over ranks of rank + 1
RANKS = SIZE * (SIZE + 1) // 2


@pytest.fixture(autouse=True)
def on_path(request):
    """Use the path of the memory, in tests that have one."""
    memory = request.getfixturevalue("memory") if "memory" in request.fixturenames else None
    with mpicoll.override(path=memory.path if memory else None):
        yield


def slow_fill(x, value):
    """Fill an array on the current stream, behind a kernel that takes about 3 ms."""
    spin(6_000_000)
    x.fill(value)


def plain(nbytes):
    """Allocate without a pool: memory goes back to the driver when the array is gone."""
    import cupy

    return cupy.cuda.MemoryPointer(cupy.cuda.Memory(nbytes), 0)


def is_everywhere(x, value):
    """Tell whether all elements of a large array have a value, with little memory."""
    step = 1 << 28
    return all(bool((x[k : k + step] == value).all()) for k in range(0, x.size, step))


def ranks_of_my_device():
    """How many ranks share this rank's device, and how many there are on this node."""
    import cupy

    device = cupy.cuda.runtime.deviceGetPCIBusId(cupy.cuda.Device().id)
    places = WORLD.allgather((MPI.Get_processor_name(), device))
    return places.count(places[RANK])


# Order.


@pytest.mark.case("SYNC-PRODUCER")
@PATHS
def test_a_kernel_that_is_still_running(world, memory):
    """The array is filled by queued work, and reduced at once, a hundred times."""
    xp = memory.xp
    x, y, wrong = xp.zeros(50_000), xp.zeros(50_000), xp.zeros((), "i8")
    for turn in range(100):
        slow_fill(x, turn + RANK)
        world.Allreduce(x, y)
        wrong += (y != turn * SIZE + RANKS - SIZE).sum()
    assert int(wrong) == 0


@pytest.mark.case("SYNC-STREAM")
@PATHS
@pytest.mark.parametrize("how", ["stream=", "event", "current"])
def test_data_of_another_stream(world, memory, how):
    """Named by stream=, ordered by an event before the current one, or made current."""
    xp = memory.xp
    stream = xp.cuda.Stream(non_blocking=True)
    x, y = xp.zeros(50_000), xp.zeros(50_000)
    xp.cuda.Device().synchronize()
    for turn in range(10):
        with stream:
            slow_fill(x, turn + RANK)
        if how == "stream=":
            world.Allreduce(x, y, stream=stream)
            stream.synchronize()
        elif how == "event":
            xp.cuda.get_current_stream().wait_event(stream.record())
            world.Allreduce(x, y)
        else:
            with stream:
                world.Allreduce(x, y)
            stream.synchronize()
        assert (y == turn * SIZE + RANKS - SIZE).all()
        xp.cuda.Device().synchronize()


@pytest.mark.case("SYNC-STREAM")
@PATHS
def test_an_exporter_that_names_its_stream(world, memory):
    """An array of another library says on which stream its data are made."""
    xp = memory.xp
    stream = xp.cuda.Stream(non_blocking=True)

    class Exporter:
        def __init__(self, array):
            self.array = array

        @property
        def __cuda_array_interface__(self):
            return {**self.array.__cuda_array_interface__, "version": 3, "stream": stream.ptr}

    x, y = xp.zeros(50_000), xp.zeros(50_000)
    xp.cuda.Device().synchronize()
    for turn in range(10):
        with stream:
            slow_fill(x, turn + RANK)
        world.Allreduce(Exporter(x), y)
        assert (y == turn * SIZE + RANKS - SIZE).all()


@pytest.mark.case("SYNC-STAGE")
def test_staging_on_a_stream_of_the_users(world):
    """Many lengths and changing data; pinned memory is not used again before it was copied."""
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    with mpicoll.override(path="staged"):
        for count in (10_000, 12_500, 1_000_000):
            arrays = [(cupy.zeros(count), cupy.zeros(count)) for _ in range(3)]
            cupy.cuda.Device().synchronize()
            with stream:
                wrong = cupy.zeros((), "i8")
                for turn in range(200 if count < 1_000_000 else 30):
                    x, y = arrays[turn % 3]
                    x.fill(turn + RANK)
                    world.Allreduce(x, y)
                    wrong += (y != turn * SIZE + RANKS - SIZE).sum()
                assert int(wrong) == 0


@pytest.mark.case("CTX-THREAD")
@PATHS
def test_a_thread_that_never_used_the_device(world, memory):
    """Blocking and nonblocking calls from a new thread."""
    xp, failed = memory.xp, []
    x, y, z = xp.full(5000, RANK + 1.0), xp.zeros(5000), xp.zeros(5000)
    xp.cuda.Device().synchronize()

    def work():
        try:
            with mpicoll.override(path=memory.path):
                world.Allreduce(x, y)
                world.Iallreduce(x, z).Wait()
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    xp.cuda.Device().synchronize()
    assert not failed
    assert (y == RANKS).all()
    assert (z == RANKS).all()


@pytest.mark.case("NBRED-GPU")
@PATHS
@pytest.mark.parametrize("method", ["Ireduce", "Iallreduce", "Ireduce_scatter_block", "Iscan", "Iexscan"])
def test_nonblocking_reductions_of_many_sizes(world, memory, method):
    """Several in flight, on the device, finished in any order."""
    xp, factor = memory.xp, SIZE if "scatter" in method else 1
    wanted = {"Iscan": RANK + 1, "Iexscan": RANK, "Ireduce": SIZE if RANK == 0 else 0}.get(method, SIZE)
    pairs = [(xp.ones(n * factor), xp.zeros(n)) for n in (1, 1000, 200_000)]
    requests = [getattr(world, method)(x, y) for x, y in pairs]
    Request.Waitall(requests if RANK % 2 else requests[::-1])
    for _, y in pairs:
        assert (memory.to_host(y) == wanted).all()


@pytest.mark.case("NB-LIFETIME")
@PATHS
def test_a_request_of_a_temporary(world, memory):
    """The pool would give the memory of the input to the next array."""
    xp = memory.xp
    requests, results = [], []
    for turn in range(5):
        y = xp.zeros(300_000)
        requests.append(world.Iallreduce(xp.ones(300_000) + turn, y))
        results.append((y, xp.full(300_000, -1.0)))
    Request.Waitall(requests)
    for turn, (y, _) in enumerate(results):
        assert (y == SIZE * (1 + turn)).all()


@pytest.mark.case("NB-PROGRESS")
@PATHS
def test_work_while_a_call_is_in_flight(world, memory):
    """Kernels on the user's stream and tests of the request in between."""
    xp = memory.xp
    x, y, other = xp.ones(4_000_000, "f4"), xp.zeros(4_000_000, "f4"), xp.ones((1024, 1024), "f4")
    xp.cuda.Device().synchronize()
    request = world.Iallreduce(x, y)
    end = time.monotonic() + 60
    while not request.Test():
        other = xp.sin(other)
        assert time.monotonic() < end
    assert (y == SIZE).all()


# Several ranks, several devices.


@pytest.mark.case("MULTIRANK-1GPU")
@PATHS
@pytest.mark.mpi(min_size=2)
def test_all_ranks_on_one_device(world, memory):
    """Messages both ways with two tags, then collectives, all on the first device."""
    xp = memory.xp
    with xp.cuda.Device(0):
        right, left = (RANK + 1) % SIZE, (RANK - 1) % SIZE
        if memory.path == "direct":
            sent = [xp.full(100_000, 10.0 * RANK + tag) for tag in (1, 2)]
            got = [xp.zeros(100_000) for _ in range(2)]
            xp.cuda.get_current_stream().synchronize()
            raw = MPI.Intracomm(world)
            requests = [raw.Irecv(g, left, tag) for tag, g in zip((1, 2), got, strict=True)]
            requests += [raw.Isend(s, right, tag) for tag, s in zip((2, 1), reversed(sent), strict=True)]
            MPI.Request.Waitall(requests)
            assert all((g == 10.0 * left + tag).all() for tag, g in zip((1, 2), got, strict=True))
        for count in (1, 1000, 1 << 20):
            x, y = xp.full(count, RANK + 1.0), xp.zeros(count)
            world.Allreduce(x, y)
            assert (y == RANKS).all()
            first, second = xp.zeros(count), xp.zeros(count)
            Request.Waitall([world.Iallreduce(x, first), world.Iallreduce(x, second, MPI.MAX)])
            assert (first == RANKS).all()
            assert (second == SIZE).all()


@pytest.mark.case("DEV-RANKMAP")
def test_the_device_of_a_rank(world):
    """Ranks of a node have its devices in turn; calls change no device and open no other one."""
    import cupy

    from mpicoll.runtime.environment import local_rank

    count = cupy.cuda.runtime.getDeviceCount()
    assert cupy.cuda.Device().id == local_rank() % count
    x, y = cupy.ones(1000), cupy.zeros(1000)
    world.Allreduce(x, y)
    assert cupy.cuda.Device().id == x.device.id == y.device.id == local_rank() % count


@pytest.mark.case("PARTIAL-API")
@PATHS
def test_calls_that_mpi_itself_cannot_do(world, memory):
    """Reductions and an alltoall with its own block, without any collective call of MPI's."""
    for method in ("Reduce_scatter_block", "Reduce_scatter", "Alltoall", "Alltoallv", "Reduce", "Exscan"):
        for count in (1, 7, 10_000):
            check(world, Case(method, None, count, root=SIZE - 1), memory)
        for algorithm in next(iter(mpicoll.algorithms(method).values())):
            check(world, Case(method, algorithm, 9), memory)


@pytest.mark.case("DDT-SLOW")
@PATHS
def test_interior_blocks_of_a_cube(world, memory):
    """Packed by kernels: not slower than a hundred times the dense blocks of that size."""
    xp, n = memory.xp, 128
    cube, out = xp.ones((SIZE, n, n, n), "f4"), xp.zeros((SIZE, n, n, n), "f4")
    inner = (slice(None), *(slice(1, n - 1),) * 3)
    dense, received = xp.ones((SIZE, (n - 2) ** 3), "f4"), xp.zeros((SIZE, (n - 2) ** 3), "f4")

    def seconds(*arguments):
        times = []
        for _ in range(4):
            world.Barrier()
            start = time.monotonic()
            world.Alltoall(*arguments)
            xp.cuda.get_current_stream().synchronize()
            times.append(time.monotonic() - start)
        return min(times)

    packed, plain = seconds(cube[inner], out[inner]), seconds(dense, received)
    assert float(out.sum()) == SIZE * (n - 2) ** 3
    slowest = WORLD.allreduce(packed, MPI.MAX) / WORLD.allreduce(plain, MPI.MAX)
    assert slowest < 100


# Memory.


@pytest.mark.case("MANAGED")
@PATHS
@pytest.mark.parametrize("count", [1 << 14, 1 << 20, 1 << 24])
def test_managed_memory_of_many_sizes(world, memory, count):
    """64 KB to 64 MB of memory that moves between host and device by itself."""
    xp = memory.xp
    with xp.cuda.using_allocator(xp.cuda.malloc_managed):
        x, y = xp.full(count, RANK + 1, "f4"), xp.zeros(count, "f4")
    for _ in range(2):
        world.Allreduce(x, y)
        assert (y == RANKS).all()
        world.Bcast(y, root=SIZE - 1)
        assert (y == RANKS).all()
        y.fill(0)


@pytest.mark.case("IPC-LEAK")
@PATHS
def test_memory_stays_flat(world, memory):
    """Arrays of new sizes, without a pool, come and go; peers keep nothing of them."""
    xp = memory.xp
    free = xp.cuda.runtime.memGetInfo

    def rounds(first, number):
        with xp.cuda.using_allocator(plain):
            for turn in range(number):
                x = xp.full(500_000 + 1000 * (first + turn), float(RANK))
                world.Bcast(x, root=turn % SIZE)
                assert float(x[-1]) == turn % SIZE
                del x
        xp.cuda.Device().synchronize()
        xp.get_default_memory_pool().free_all_blocks()
        WORLD.Barrier()
        return free()[0]

    before = rounds(0, 50)
    after = rounds(50, 200)
    WORLD.Barrier()
    lost = WORLD.allreduce(before - after, MPI.MAX)
    # An array has 4 to 6 MB: 200 that stayed mapped would be a gigabyte.
    assert lost < 300 << 20


@pytest.mark.case("MEM-SCRATCH")
def test_an_array_of_almost_half_the_memory(world):
    """45 % of the device; scratch is bounded, so all algorithms have room."""
    import cupy

    if not world._get_channel().awareness.aware:
        pytest.skip("staged arrays have copies as large in pinned memory")
    sharing = ranks_of_my_device()
    cupy.get_default_memory_pool().free_all_blocks()
    WORLD.Barrier()
    _, total = cupy.cuda.runtime.memGetInfo()
    count = WORLD.allreduce(int(0.45 * total) // sharing, MPI.MIN)
    with cupy.cuda.using_allocator(plain), mpicoll.override(path="direct"):
        x = cupy.empty(count, "u1")
        for start in range(0, count, 1 << 28):
            x[start : start + (1 << 28)] = 1
        world.Allreduce(MPI.IN_PLACE, x)
        assert is_everywhere(x, SIZE)
        del x
    cupy.get_default_memory_pool().free_all_blocks()


@pytest.mark.case("BIGCOUNT")
def test_more_than_2_to_the_31_bytes_on_the_device(world):
    """Float16 with a few more than 2**31 bytes, in messages that MPI can count."""
    import cupy

    sharing = ranks_of_my_device()
    count = (1 << 30) + 8
    if WORLD.allreduce(cupy.cuda.runtime.memGetInfo()[1], MPI.MIN) < 3 * 2 * count * sharing:
        pytest.skip("not enough device memory")
    if not world._get_channel().awareness.aware:
        pytest.skip("staged arrays have copies as large in pinned memory")
    with cupy.cuda.using_allocator(plain):
        x = cupy.ones(count, "f2")
        world.Allreduce(MPI.IN_PLACE, x)
        assert is_everywhere(x, SIZE)
        x[-8:] = RANK
        world.Bcast(x, root=SIZE - 1)
        assert x[-8:].tolist() == [SIZE - 1] * 8
        del x


# Measuring.


def medians(arguments):
    """Run the benchmark and return its medians in microseconds and paths, by size."""
    from mpicoll.bench import results
    from mpicoll.bench.run import run

    with tempfile.TemporaryDirectory() as mine:
        folder = WORLD.bcast(mine, root=0)
        file = Path(folder) / "results.json"
        assert run([*arguments.split(), "--buffers", "cupy", "--json", str(file)]) == 0
        rows = WORLD.bcast(results.read(file)["rows"] if RANK == 0 else None, root=0)
        WORLD.Barrier()
    return {row["bytes"]: (statistics.median(row["time_us"]["samples"]), row["path"]) for row in rows}


@pytest.mark.case("BENCH-NOSYNC", "IPC-VISIBLE")
@pytest.mark.mpi(min_size=2)
def test_times_grow_with_the_size():
    """The clock stops after the device's work, and the path is told."""
    found = medians("--op allreduce --min 1K --max 256M --iters 5 --warmup 2 --outofplace")
    (small, _), (large, _) = found[min(found)], found[max(found)]
    assert large > 5 * small
    assert large > 256e6 / 10e12 * 1e6  # no machine moves 10 TB/s
    assert {path for _, path in found.values()} <= {"direct", "staged", "mapped"}


@pytest.mark.case("STAGED-SLOW")
@pytest.mark.mpi(min_size=2)
def test_no_path_is_much_better_than_the_chosen_one(world):
    """Of small, middle and large messages, the choice is near the better way."""
    import cupy

    def seconds(count, **named):
        x, y = cupy.ones(count, "f4"), cupy.zeros(count, "f4")
        times = []
        for _ in range(12):
            world.Barrier()
            start = time.monotonic()
            world.Allreduce(x, y, **named)
            cupy.cuda.get_current_stream().synchronize()
            times.append(WORLD.allreduce(time.monotonic() - start, MPI.MAX))
        return statistics.median(times[2:])

    paths = world._get_channel().paths()
    for count in (2, 1 << 10, 1 << 16, 1 << 22):
        best = min(seconds(count, algorithm=f"ring@{path}") for path in paths)
        best = min(best, *(seconds(count, algorithm=f"one_shot@{path}") for path in paths))
        assert seconds(count) < 3 * best + 50e-6, count


@pytest.mark.case("NAN-MAX", "INT-WRAP", "DTYPE-BOOL", "DTYPE-F16")
def test_results_of_host_and_device_are_equal(world):
    """One rule for both."""
    import cupy

    rng = np.random.default_rng(RANK)
    for dtype, ops in (("i1", "SUM PROD BXOR"), ("?", "SUM PROD MAX LXOR"), ("f4", "MAX MIN LAND"), ("f2", "SUM MAX")):
        x = rng.random(500) * 200 - 100
        x = x > 0 if dtype == "?" else x.astype(dtype)
        if x.dtype.kind == "f":
            x[rng.integers(0, 500, 20)] = np.nan
        for op in ops.split():
            host = mpicoll.allreduce(x, getattr(MPI, op), comm=world, algorithm="one_shot")
            device = mpicoll.allreduce(cupy.asarray(x), getattr(MPI, op), comm=world, algorithm="one_shot")
            np.testing.assert_array_equal(device.get(), host, err_msg=f"{op} of {dtype}")
