"""Order of calls with the streams of users, with each path."""

import threading
import time

import pytest
from mpi4py import MPI

import mpicoll
from mpi.busy import spin
from mpicoll.request import Request

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("on_path")]

SIZE = MPI.COMM_WORLD.Get_size()
RANK = MPI.COMM_WORLD.Get_rank()
PATHS = pytest.mark.parametrize("memory", ["cupy-direct", "cupy-staged", "cupy-mapped"], indirect=True)
#: sum over ranks of rank + 1
RANKS = SIZE * (SIZE + 1) // 2


def slow_fill(x, value):
    """Fill an array on the current stream, behind a kernel that takes about 3 ms."""
    spin(6_000_000)
    x.fill(value)


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
