"""Device memory of all kinds: what peers cannot map is copied, large staged arrays go segment by segment.

The work before a call is made slow on purpose, so that whoever does not wait for it is found out.
"""

import functools
from contextlib import contextmanager

import pytest
from mpi4py import MPI

import mpicoll
from mpi.busy import spin
from mpi.calling import REDUCING, VECTOR, Case, Memory, check, forms
from mpicoll.algorithms import registry
from mpicoll.request import Request
from mpicoll.runtime.pointers import can_be_mapped

pytestmark = pytest.mark.gpu

SIZE = MPI.COMM_WORLD.Get_size()
RANK = MPI.COMM_WORLD.Get_rank()
WORLD = MPI.COMM_WORLD
METHODS = [m for row in registry.COLLECTIVES.values() for m in row.methods if m != "Barrier"]
UNMAPPABLE = ("async", "managed")
#: sum over ranks of rank + 1
RANKS = SIZE * (SIZE + 1) // 2


@functools.cache
def allocator(kind):
    """How memory of a kind is allocated."""
    import cupy

    if kind == "plain":
        return lambda nbytes: cupy.cuda.MemoryPointer(cupy.cuda.Memory(nbytes), 0)
    if kind == "pool":
        return cupy.cuda.MemoryPool().malloc
    if kind == "managed":
        return cupy.cuda.malloc_managed
    return cupy.cuda.MemoryAsyncPool().malloc


@contextmanager
def allocating(kind):
    """Allocate all arrays in memory of a kind."""
    import cupy

    cupy.cuda.get_current_stream().synchronize()
    with cupy.cuda.using_allocator(allocator(kind)):
        yield
    cupy.cuda.get_current_stream().synchronize()


def busy(milliseconds=5):
    """Keep the current stream busy."""
    spin(1_800_000 * milliseconds)


def streams():
    import cupy

    return {
        "null": cupy.cuda.Stream.null,
        "blocking": cupy.cuda.Stream(),
        "non-blocking": cupy.cuda.Stream(non_blocking=True),
    }


@pytest.fixture
def direct(world):
    """The direct path, where MPI takes device pointers."""
    import cupy

    awareness = world._get_channel().awareness
    if not awareness.aware:
        pytest.skip(f"MPI is not given device pointers: {awareness.reason}")
    with mpicoll.override(path="direct"):
        yield Memory(cupy, "direct")


@pytest.fixture(params=["direct", "staged"])
def path(request, world):
    """Both paths that send messages."""
    if request.param == "direct" and not world._get_channel().awareness.aware:
        pytest.skip("MPI is not given device pointers")
    with mpicoll.override(path=request.param):
        yield request.param


# Memory that peers cannot map.


@pytest.mark.case("MANAGED")
@pytest.mark.parametrize(("kind", "can"), [("plain", True), ("pool", True), ("async", False), ("managed", False)])
def test_what_the_driver_says(kind, can):
    """Of the start of an array, and of its middle."""
    import cupy

    with allocating(kind):
        for count in (1, 1000, 1 << 22):
            x = cupy.zeros(count, "f4")
            assert can_be_mapped(x.data.ptr) is can
            assert can_be_mapped(x[count // 2 :].data.ptr) is can


@pytest.mark.case("MANAGED")
@pytest.mark.parametrize("kind", UNMAPPABLE)
@pytest.mark.parametrize("method", METHODS)
def test_every_method(world, direct, method, kind):
    """All forms, small and large, one segment and several."""
    with allocating(kind):
        for form in forms(method):
            for count, segments in ((1, ""), (1000, ""), (50_000, "linear/3")):
                if method in VECTOR and form == "alias":
                    continue
                check(world, Case(method, segments or None, count, root=SIZE - 1, form=form), direct)


@pytest.mark.case("MANAGED")
@pytest.mark.parametrize("kind", UNMAPPABLE)
def test_large_arrays(world, direct, kind):
    """64 MB, in several messages in flight, again and again in the same copies."""
    import cupy

    with allocating(kind):
        x, y = cupy.full(1 << 24, RANK + 1, "f4"), cupy.zeros(1 << 24, "f4")
        for algorithm in ("ring/4", "two_shot/2", None):
            for _ in range(3):
                y.fill(0)
                world.Allreduce(x, y, algorithm=algorithm)
                assert bool((y == RANKS).all())
        world.Allreduce(MPI.IN_PLACE, x)
        assert bool((x == RANKS).all())


@pytest.mark.parametrize("kind", UNMAPPABLE)
@pytest.mark.parametrize("where", ["input", "output", "one rank"])
def test_only_some_are_of_that_kind(world, direct, kind, where):
    """It is a fact of one array on one rank; the others do as always."""
    import cupy

    plain = "pool" if where != "one rank" or RANK else kind
    with allocating(kind if where == "input" else plain):
        x = cupy.full(100_000, RANK + 1.0)
    with allocating(kind if where == "output" else plain):
        y, z = cupy.zeros(100_000), cupy.zeros((SIZE, 100_000))
    for algorithm in ("ring/3", "one_shot", None):
        y.fill(0)
        world.Allreduce(x, y, algorithm=algorithm)
        assert bool((y == RANKS).all())
    world.Allgather(x, z)
    assert [float(v) for v in z.sum(axis=1)] == [100_000 * (r + 1.0) for r in range(SIZE)]
    world.Bcast(y, root=SIZE - 1)
    assert bool((y == RANKS).all())


@pytest.mark.case("IPC-LEAK")
@pytest.mark.parametrize("kind", UNMAPPABLE)
def test_the_copies_are_kept(world, direct, kind):
    """Other arrays of that kind come and go; memory for copies is allocated once."""
    import cupy

    def used():
        return {key: arena.nbytes for key, arena in world._get_channel().slot(0).arenas.items()}

    with allocating(kind):
        x = cupy.ones(300_000)
        world.Allreduce(MPI.IN_PLACE, x, algorithm="ring")
        before = used()
        for turn in range(50):
            x = cupy.full(200_000 + 1000 * turn, 1.0)
            world.Allreduce(MPI.IN_PLACE, x, algorithm="ring")
            assert bool((x == SIZE).all())
    assert used() == before


@pytest.mark.case("SYNC-PRODUCER")
@pytest.mark.parametrize("kind", UNMAPPABLE)
@pytest.mark.parametrize("stream", ["null", "blocking", "non-blocking"])
def test_the_copies_are_in_order(world, direct, kind, stream):
    """Slow work before, other work behind, nobody waits in between."""
    import cupy

    stream = streams()[stream]
    with allocating(kind):
        x, y = cupy.zeros(100_000), cupy.zeros(100_000)
    cupy.cuda.Device().synchronize()
    totals = []
    with stream:
        for turn in range(1, 6):
            busy()
            x.fill(turn)
            world.Allreduce(x, y, algorithm=f"ring/{1 + turn % 3}")
            totals.append((y * 2).sum())
            y.fill(0)
            x.fill(-1)
        stream.synchronize()
    assert [float(t) for t in totals] == [2e5 * turn * SIZE for turn in range(1, 6)]


@pytest.mark.parametrize("kind", UNMAPPABLE)
def test_calls_that_do_not_block(world, direct, kind):
    """Several in flight, and a persistent one."""
    import cupy

    with allocating(kind):
        pairs = [(cupy.full(50_000, RANK + k + 1.0), cupy.zeros(50_000)) for k in range(4)]
        requests = [world.Iallreduce(x, y, algorithm="ring/2") for x, y in pairs[:3]]
        kept = world.Allreduce_init(*pairs[3])
        for _ in range(3):
            kept.Start()
            kept.Wait()
        Request.Waitall(requests)
        for k, (_, y) in enumerate(pairs):
            assert bool((y == RANKS + k * SIZE).all())
        kept.Free()


@pytest.mark.case("DEV-RANKMAP")
@pytest.mark.parametrize("kind", UNMAPPABLE)
def test_on_a_device_that_is_not_current(world, direct, kind):
    """Copies are made where the arrays are."""
    import cupy

    mine, count = cupy.cuda.Device().id, cupy.cuda.runtime.getDeviceCount()
    if count < 2:
        pytest.skip("one device")
    with allocating(kind):
        x, y = cupy.full(100_000, RANK + 1.0), cupy.zeros(100_000)
    with cupy.cuda.Device((mine + 1) % count):
        world.Allreduce(x, y)
        assert cupy.cuda.Device().id == (mine + 1) % count
    assert bool((y == RANKS).all())


@pytest.mark.case("MULTIRANK-1GPU")
@pytest.mark.parametrize("kind", UNMAPPABLE)
def test_ranks_that_share_a_device(world, direct, kind):
    """All ranks use the first device."""
    import cupy

    with cupy.cuda.Device(0), allocating(kind):
        for count in (1, 1000, 1 << 20):
            x, y = cupy.full(count, RANK + 1.0), cupy.zeros(count)
            world.Allreduce(x, y)
            assert bool((y == RANKS).all())


# The staged path, segment by segment.


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


# What is still at work on the arrays when the call comes.


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


# How much.


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
