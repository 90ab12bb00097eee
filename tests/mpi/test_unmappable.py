"""Device memory that peers cannot map: it is copied, in order."""

import pytest
from mpi4py import MPI

from mpi.calling import check
from mpi.cases import VECTOR, Case, forms
from mpi.device_arrays import allocating, busy, streams
from mpicoll.algorithms import registry
from mpicoll.request import Request
from mpicoll.runtime.cuda.ipc import can_be_mapped

pytestmark = pytest.mark.gpu

SIZE = MPI.COMM_WORLD.Get_size()
RANK = MPI.COMM_WORLD.Get_rank()
METHODS = [m for row in registry.COLLECTIVES.values() for m in row.methods if m != "Barrier"]
UNMAPPABLE = ("async", "managed")
#: sum over ranks of rank + 1
RANKS = SIZE * (SIZE + 1) // 2


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
        return {key: arena.nbytes for key, arena in world._get_context().slot(0).arenas.items()}

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
