"""Memory of devices: managed, freed at once, almost used up, more than 2 GiB."""

import pytest
from mpi4py import MPI

import mpicoll

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("on_path")]

SIZE = MPI.COMM_WORLD.Get_size()
RANK = MPI.COMM_WORLD.Get_rank()
WORLD = MPI.COMM_WORLD
PATHS = pytest.mark.parametrize("memory", ["cupy-direct", "cupy-staged", "cupy-mapped"], indirect=True)
#: sum over ranks of rank + 1
RANKS = SIZE * (SIZE + 1) // 2


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

    if not world._get_context().cuda_aware.aware:
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
    if not world._get_context().cuda_aware.aware:
        pytest.skip("staged arrays have copies as large in pinned memory")
    with cupy.cuda.using_allocator(plain):
        x = cupy.ones(count, "f2")
        world.Allreduce(MPI.IN_PLACE, x)
        assert is_everywhere(x, SIZE)
        x[-8:] = RANK
        world.Bcast(x, root=SIZE - 1)
        assert x[-8:].tolist() == [SIZE - 1] * 8
        del x
