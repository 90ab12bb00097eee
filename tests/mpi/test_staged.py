"""Large staged arrays go segment by segment, after what is still at work on them."""

import pytest
from mpi4py import MPI

import mpicoll
from mpi.calling import check
from mpi.cases import REDUCING, VECTOR, Case, Memory, forms
from mpi.device_arrays import allocating, busy, streams
from mpicoll.algorithms import registry
from mpicoll.request import Request

pytestmark = pytest.mark.gpu

SIZE = MPI.COMM_WORLD.Get_size()
RANK = MPI.COMM_WORLD.Get_rank()
WORLD = MPI.COMM_WORLD
METHODS = [m for row in registry.COLLECTIVES.values() for m in row.methods if m != "Barrier"]
UNMAPPABLE = ("async", "managed")
#: sum over ranks of rank + 1
RANKS = SIZE * (SIZE + 1) // 2


@pytest.fixture(params=["direct", "staged"])
def path(request, world):
    """Both paths that send messages."""
    if request.param == "direct" and not world._get_context().cuda_aware.aware:
        pytest.skip("MPI is not given device pointers")
    with mpicoll.override(path=request.param):
        yield request.param


@pytest.mark.parametrize("method", [m for m in METHODS if m not in VECTOR])
def test_staged_segments(world, method):
    """All algorithms and forms, with more segments than are in flight."""
    import cupy

    memory = Memory(cupy, "staged")
    for name in next(iter(mpicoll.algorithms(method).values())):
        for form in forms(method):
            check(world, Case(method, f"{name}/9", 360 * SIZE + 7, root=SIZE - 1, form=form), memory)


@pytest.mark.parametrize("method", [m for m in VECTOR if m != "Allgatherv"])
def test_staged_blocks_of_unequal_lengths(world, method):
    import cupy

    for layout in ("dense", "gaps", "permuted"):
        case = Case(method, "linear/3", pattern="uneven", layout=layout, spelling="list")
        check(world, case, Memory(cupy, "staged"))


@pytest.mark.parametrize("op", ["SUM", "AVG", "MAX"])
@pytest.mark.parametrize("method", REDUCING)
def test_staged_reductions_of_megabytes(world, method, op):
    import cupy

    for segments in (1, 8):
        check(world, Case(method, f"linear/{segments}", 300_001, op=op, dtype="float64"), Memory(cupy, "staged"))


@pytest.mark.case("SYNC-STAGE")
@pytest.mark.parametrize("stream", ["null", "blocking", "non-blocking"])
def test_staged_segments_are_in_order(world, stream):
    """Copies back come on another stream; what is behind the call on its own stream comes behind them."""
    import cupy

    stream, count = streams()[stream], 2_000_000
    x, y, wrong = cupy.zeros(count), cupy.zeros(count), cupy.zeros((), "i8")
    cupy.cuda.Device().synchronize()
    with stream, mpicoll.override(path="staged"):
        for turn in range(1, 21):
            if turn % 5 == 0:
                busy()
            x.fill(turn)
            world.Allreduce(x, y, algorithm=f"ring/{(1, 4, 16)[turn % 3]}")
            wrong += (y != turn * SIZE).sum()
            y.fill(0)
            x.fill(-1)
        stream.synchronize()
    assert int(wrong) == 0


@pytest.mark.case("NB-PROGRESS")
def test_staged_segments_of_calls_that_do_not_block(world):
    """Several in flight, each with copies both ways on streams of its own."""
    import cupy

    with mpicoll.override(path="staged"):
        pairs = [(cupy.full(1_000_000, RANK + k + 1.0), cupy.zeros(1_000_000)) for k in range(4)]
        requests = [world.Iallreduce(x, y, algorithm="ring/8") for x, y in pairs]
        Request.Waitall(requests)
        for k, (_, y) in enumerate(pairs):
            assert bool((y == RANKS + k * SIZE).all())


@pytest.mark.case("SYNC-PRODUCER")
@pytest.mark.parametrize("kind", ["pool", *UNMAPPABLE])
@pytest.mark.parametrize("stream", ["null", "blocking", "non-blocking"])
@pytest.mark.parametrize("method", ["Allreduce", "Bcast", "Allgather", "Gather", "Scatter"])
def test_the_receiver_is_still_busy(world, path, kind, stream, method):
    """Slow work still reads the old contents of what the call writes."""
    import cupy

    stream, n = streams()[stream], 50_000
    with allocating(kind):
        x = cupy.full(n * SIZE if method == "Scatter" else n, 1.0)
        y, old = cupy.zeros(n * SIZE), cupy.zeros(n * SIZE)
    received = y if method in ("Allgather", "Gather") else y[:n]
    cupy.cuda.Device().synchronize()
    for turn in range(1, 4):
        with stream:
            if method == "Bcast":
                received.fill(turn if RANK == 0 else -turn)
            else:
                received.fill(-turn)
            if RANK % 2 or SIZE == 1 or turn > 1:  # ranks are not late together
                busy()
            old[: received.size] = received
            arguments = {
                "Bcast": (received,),
                "Gather": (x, received if RANK == 0 else None),
                "Scatter": (x if RANK == 0 else None, received),
            }.get(method, (x, received))
            getattr(world, method)(*arguments)
        stream.synchronize()
        before = turn if method == "Bcast" and RANK == 0 else -turn
        assert bool((old[: received.size] == before).all())
        if method != "Gather" or RANK == 0:
            after = {"Allreduce": SIZE, "Bcast": turn}.get(method, 1)
            assert bool((received == after).all())


@pytest.mark.case("SYNC-STREAM")
@pytest.mark.parametrize("other", ["blocking", "non-blocking"])
def test_a_slow_kernel_on_another_stream(world, path, other):
    """An event of the other stream before the current one is enough."""
    import cupy

    other = streams()[other]
    x, y = cupy.zeros(50_000), cupy.zeros(50_000)
    cupy.cuda.Device().synchronize()
    for turn in range(1, 4):
        with other:
            busy()
            x.fill(turn)
            done = other.record()
        cupy.cuda.Stream.null.wait_event(done)
        with cupy.cuda.Stream.null:
            world.Allreduce(x, y)
            total = y.sum()
        assert float(total) == 50_000 * turn * SIZE
        other.wait_event(cupy.cuda.Stream.null.record())


@pytest.mark.case("MEM-SCRATCH")
def test_in_place_with_almost_half_of_the_memory(world, direct):
    """45 % of the device; no more than scratch is allocated beside it."""
    import cupy

    device = cupy.cuda.runtime.deviceGetPCIBusId(cupy.cuda.Device().id)
    places = WORLD.allgather((MPI.Get_processor_name(), device))
    sharing = places.count(places[RANK])
    cupy.get_default_memory_pool().free_all_blocks()
    WORLD.Barrier()
    free, total = cupy.cuda.runtime.memGetInfo()
    count = WORLD.allreduce(int(0.45 * total) // sharing // 4, MPI.MIN)
    if WORLD.allreduce(free < 4 * count * sharing + (2 << 30), MPI.LOR):
        pytest.skip("the device is in use")
    with allocating("plain"):
        x = cupy.empty(count, "f4")
    x.fill(1)
    world.Allreduce(MPI.IN_PLACE, cupy.ones(1000, "f4"))  # what MPI allocates once
    cupy.cuda.Device().synchronize()
    WORLD.Barrier()
    before = cupy.cuda.runtime.memGetInfo()[0]
    world.Allreduce(MPI.IN_PLACE, x)
    cupy.cuda.Device().synchronize()
    WORLD.Barrier()
    taken = before - cupy.cuda.runtime.memGetInfo()[0]
    step = 1 << 26
    right = all(bool((x[k : k + step] == SIZE).all()) for k in range(0, count, step))
    del x
    cupy.get_default_memory_pool().free_all_blocks()
    assert right
    assert WORLD.allreduce(taken, MPI.MAX) < (mpicoll.settings.scratch_limit + (512 << 20)) * sharing
