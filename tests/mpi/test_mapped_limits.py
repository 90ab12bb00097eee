"""The path mapped where something is missing: a rank that does not come, memory, too small inboxes."""

import time

import pytest
from mpi4py import MPI

import mpicoll
from mpi.calling import check
from mpi.cases import Case, Memory
from mpi.mapped_comms import NARROW, connected

pytestmark = [pytest.mark.gpu, pytest.mark.mpi(min_size=2)]

WORLD = MPI.COMM_WORLD
SIZE, RANK = WORLD.Get_size(), WORLD.Get_rank()
#: the rank that does not come
ODD = SIZE - 1
#: seconds after which a call gives up, what it may take beyond them, and the limit where none may give up
LIMIT, BEYOND, AMPLE = 2.0, 5.0, 60.0
#: sum over ranks of rank + 1
RANKS = SIZE * (SIZE + 1) // 2
#: bytes that may be missing after communicators came and went
FLAT = 64 << 20


@pytest.fixture
def xp():
    import cupy

    return cupy


def blocking(comm, x, y):
    comm.Allreduce(x, y, algorithm="one_shot@mapped")
    comm.Synchronize()


def nonblocking(comm, x, y):
    comm.Iallreduce(x, y, algorithm="two_shot@mapped").Wait(synchronize=True)


def persistent(comm, x, y):
    request = comm.Allreduce_init(x, y, algorithm="ring@mapped")
    request.Start()
    request.Wait(synchronize=True)


def pushed(comm, x, y):
    """A root that waits for nothing but that all have come."""
    comm.Bcast(x, root=0, algorithm="linear@mapped")
    comm.Synchronize()


def raised(call, *arguments):
    """Return what a call raises, None if nothing, and how long it took."""
    begin = time.monotonic()
    try:
        call(*arguments)
    except mpicoll.StalledError as error:
        return error, time.monotonic() - begin
    return None, time.monotonic() - begin


@pytest.mark.parametrize("count", [5, 1_000_003])
@pytest.mark.parametrize("call", [blocking, nonblocking, persistent, pushed], ids=lambda call: call.__name__)
def test_a_rank_that_does_not_come_is_not_waited_for(xp, call, count):
    """The others say so in time; their kernels leave, and their GPUs go on."""
    comm = connected(timeout=AMPLE)
    x, y = xp.full(count, RANK + 1.0), xp.zeros(count)
    with mpicoll.override(timeout=AMPLE):
        call(comm, x, y)
        if call is not pushed:
            assert (y.get() == RANKS).all()
        x.fill(RANK + 1)
    xp.cuda.Device().synchronize()
    WORLD.Barrier()
    with mpicoll.override(timeout=LIMIT):
        error, seconds = (None, 0) if RANK == ODD else raised(call, comm, x, y)
        if RANK != ODD:
            xp.cuda.Device().synchronize()
            assert float(xp.ones(1000).sum()) == 1000
        told = WORLD.allgather((str(error), seconds))
        if RANK == ODD:  # the others' messages may have come, so only the next call waits in vain
            error = next(filter(None, (raised(call, comm, x, y)[0] for _ in range(3))), None)
        again, _ = raised(blocking, comm, x, y)
    assert isinstance(error, mpicoll.StalledError), told
    assert isinstance(again, mpicoll.StalledError)
    assert "cannot be used after" in str(again)
    assert all(0.9 * LIMIT <= s <= LIMIT + BEYOND for r, (_, s) in enumerate(told) if r != ODD), told
    assert all(f"rank {r}, waiting in its kernel" in text for r, (text, _) in enumerate(told) if r != ODD), told
    xp.cuda.Device().synchronize()
    assert float(xp.ones(1000).sum()) == 1000
    comm.Free()
    comm = connected()
    check(comm, Case("Allreduce", "one_shot@mapped"), Memory(xp, "mapped"))
    comm.Free()


@pytest.mark.parametrize("call", [blocking, nonblocking, persistent], ids=lambda call: call.__name__)
def test_a_rank_that_is_only_slow_is_waited_for(xp, call):
    comm = connected(timeout=AMPLE)
    x, y = xp.full(1000, RANK + 1.0), xp.zeros(1000)
    with mpicoll.override(timeout=AMPLE):
        for _ in range(3):
            time.sleep(0.3 if RANK == ODD else 0)
            y.fill(0)
            call(comm, x, y)
            assert (y.get() == RANKS).all()
    comm.Free()


def test_a_call_with_a_time_limit_does_not_wait_on_the_host(xp):
    """A slow rank's kernels are awaited on the GPU."""
    comm = connected(timeout=AMPLE)
    x, y = xp.full(1000, RANK + 1.0), xp.zeros(1000)
    with mpicoll.override(timeout=AMPLE):
        for _ in range(3):
            blocking(comm, x, y)
        WORLD.Barrier()
        time.sleep(1.0 if RANK == ODD else 0)
        begin = time.monotonic()
        for _ in range(5):
            comm.Allreduce(x, y, algorithm="one_shot@mapped")
        assert time.monotonic() - begin < 0.5
        comm.Synchronize()
        assert (y.get() == RANKS).all()
    comm.Free()


def test_communicators_that_come_and_go_leave_nothing(xp):
    """The inboxes of twenty would be gigabytes."""
    x, y = xp.full(1000, RANK + 1.0), xp.zeros(1000)

    def rounds(number):
        for _ in range(number):
            comm = connected()
            y.fill(0)
            comm.Allreduce(x, y, algorithm="one_shot@mapped")
            assert (y.get() == RANKS).all()
            comm.Free()
        xp.cuda.Device().synchronize()
        xp.get_default_memory_pool().free_all_blocks()
        WORLD.Barrier()
        free = xp.cuda.runtime.memGetInfo()[0]
        WORLD.Barrier()
        return free

    before = rounds(3)
    after = rounds(20)
    lost = WORLD.allreduce(before - after, MPI.MAX)
    assert lost < FLAT


def test_derived_communicators_have_inboxes_of_their_own(xp):
    """Calls on both in turn."""
    comm = connected()
    with mpicoll.override(path="mapped", mapped_bytes=NARROW):
        half = comm.Split(RANK % 2, RANK)
        members = [r + 1 for r in range(SIZE) if r % 2 == RANK % 2]
        for turn in range(20):
            x, y, z = xp.full(5000, RANK + 1.0 + turn), xp.zeros(5000), xp.zeros(5000)
            comm.Allreduce(x, y, algorithm="one_shot")
            half.Allreduce(x, z, algorithm="one_shot")
            assert (y.get() == RANKS + turn * SIZE).all()
            assert (z.get() == sum(members) + turn * len(members)).all()
    half.Free()
    comm.Free()


def test_inboxes_that_are_too_small_are_not_offered(xp):
    """The plan says why; the call goes another way."""
    connected().Free()
    with mpicoll.override(mapped_bytes="64K"):
        comm = mpicoll.Communicator(WORLD.Dup())
        x, y = xp.full(1000, RANK + 1.0), xp.zeros(1000)
        comm.Allreduce(x, y)
        plan = comm.Get_plan("Allreduce", x, y)
        assert plan.path != "mapped"
        assert f"mapped_bytes=64K is too little for {SIZE} ranks" in str(plan)
        assert (y.get() == RANKS).all()
        with pytest.raises(mpicoll.UnsupportedError, match="path 'mapped' cannot serve device arrays here"):
            comm.Allreduce(x, y, algorithm="ring@mapped")
    comm.Free()


def test_no_inboxes_are_made_where_they_are_not_wanted(xp):
    connected().Free()
    comm = mpicoll.Communicator(WORLD.Dup())
    x, y = xp.full(1000, RANK + 1.0), xp.zeros(1000)
    with mpicoll.override(path="staged"):
        comm.Allreduce(x, y)
    assert "mapped" not in comm._get_context().attached
    with mpicoll.override(path=None):
        comm.Allreduce(x, y)
        assert not isinstance(comm._get_context().attached["mapped"], str)
    assert (y.get() == RANKS).all()
    comm.Free()


def test_freed_on_a_rank_that_has_not_stalled(xp):
    """It waits for the others no longer than the limit says."""
    comm = connected(timeout=AMPLE)
    x, y = xp.full(100, RANK + 1.0), xp.zeros(100)
    with mpicoll.override(timeout=LIMIT):
        if RANK != ODD:
            assert raised(blocking, comm, x, y)[0] is not None
        begin = time.monotonic()
        comm.Free()
        assert time.monotonic() - begin < LIMIT + BEYOND
    check(mpicoll.Communicator(WORLD), Case("Allreduce"))
