"""Several ranks on one device, and each rank on its own."""

import time

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpi.calling import check
from mpi.cases import Case
from mpicoll.request import Request

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("on_path")]

SIZE = MPI.COMM_WORLD.Get_size()
RANK = MPI.COMM_WORLD.Get_rank()
WORLD = MPI.COMM_WORLD
PATHS = pytest.mark.parametrize("memory", ["cupy-direct", "cupy-staged", "cupy-mapped"], indirect=True)
#: sum over ranks of rank + 1
RANKS = SIZE * (SIZE + 1) // 2


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

    from mpicoll.runtime.mpi.environment import local_rank

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
