"""Other device arrays at each call: what is hot must be right whatever became of the arrays before."""

import gc

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpi.busy import spin
from mpi.mapped_comms import connected

pytestmark = [pytest.mark.gpu, pytest.mark.mpi(min_size=2)]

WORLD = MPI.COMM_WORLD
SIZE, RANK = WORLD.Get_size(), WORLD.Get_rank()
#: sum over ranks of rank + 1
RANKS = SIZE * (SIZE + 1) // 2


@pytest.fixture
def xp():
    import cupy

    return cupy


@pytest.fixture
def comm():
    found = connected()
    with mpicoll.override(path="mapped"):
        yield found
    found.Free()


def test_memory_that_is_given_out_again(xp, comm):
    """Freed arrays' addresses come back with other sizes and dtypes; results are looked at only at the end."""
    draw, kept = np.random.default_rng(1), []
    for turn in range(400):
        count, dtype = int(draw.integers(1, 3000)), ("f4", "f8", "i4")[int(draw.integers(3))]
        x = xp.full(count, RANK + 1 + turn % 7, dtype)
        y = xp.empty_like(x)
        comm.Allreduce(x, y)
        kept.append((turn, y.sum(), count))
        del x, y
    for turn, total, count in kept:
        assert float(total) == count * (RANKS + SIZE * (turn % 7))


def test_arrays_that_are_freed_before_the_kernel_ran(xp, comm):
    """They are given out again on the same stream, behind the kernel."""
    stream = xp.cuda.Stream(non_blocking=True)
    with stream:
        totals = []
        for turn in range(20):
            spin(2_000_000)
            x, y = xp.full(5000, RANK + 1.0 + turn), xp.empty(5000)
            comm.Allreduce(x, y)
            del x
            xp.full(5000, -1.0)  # where x was
            totals.append(y.sum())
            del y
    stream.synchronize()
    assert [float(t) for t in totals] == [5000.0 * (RANKS + SIZE * turn) for turn in range(20)]


def test_requests_whose_arrays_nobody_holds(xp, comm):
    """A temporary lives until its call has ended, whether it is waited for or let go."""
    held = xp.empty((30, 5000))
    requests = []
    for turn in range(30):
        spin(1_000_000)
        requests.append(comm.Iallreduce(xp.full(5000, RANK + 1.0 + turn), held[turn]))
        if turn % 3 == 0:
            requests.pop().Free()
    for request in requests:
        request.Wait()
    gc.collect()
    comm.Synchronize()
    wanted = [5000.0 * (RANKS + SIZE * turn) for turn in range(30)]
    assert held.sum(axis=1).tolist() == wanted


def test_views_lists_sizes_and_streams_in_turn(xp, comm):
    memory, out = xp.arange(4000.0), xp.zeros(4000)
    streams = [xp.cuda.Stream.null, xp.cuda.Stream(non_blocking=True), xp.cuda.Stream()]
    xp.cuda.Device().synchronize()
    for turn in range(300):
        count, stream = 1 + turn % 37, streams[turn // 5 % 3]
        with stream:
            out.fill(-1)
            if turn % 3 == 0:
                comm.Allreduce(memory[turn : turn + count], out[:count])
            elif turn % 3 == 1:
                comm.Allreduce([memory[turn:], count, MPI.DOUBLE], [out, count, MPI.DOUBLE])
            else:
                comm.Iallreduce(memory[turn : turn + count], out[:count]).Wait()
            found = out.get()
        assert (found[:count] == SIZE * np.arange(turn, turn + count)).all(), turn
        assert (found[count:] == -1).all()


def test_a_request_is_awaited_on_another_stream(xp, comm):
    """The current stream waits, and the one on which the call began."""
    x, y = xp.zeros(100_000), xp.zeros(100_000)
    first, other = xp.cuda.Stream(non_blocking=True), xp.cuda.Stream(non_blocking=True)
    xp.cuda.Device().synchronize()
    for turn in range(6):
        with first:
            spin(5_000_000)
            x.fill(RANK + 1 + turn)
            request = comm.Iallreduce(x, y)
        with other:
            request.Wait()
            one = y.sum()
        with first:
            two = y.sum()
        other.synchronize()
        first.synchronize()
        assert float(one) == float(two) == 100_000.0 * (RANKS + SIZE * turn)


def test_a_capture_after_hot_calls(xp, comm):
    """Arrays that were hot, ones that were never there before, and a call in place; the graph is replayed twice."""
    stream = xp.cuda.Stream(non_blocking=True)
    with stream:
        x, y, z = xp.full(3000, RANK + 1.0), xp.zeros(3000), xp.zeros(3000)
        w = xp.arange(2.0 * SIZE) + 10 * RANK
        for _ in range(5):
            comm.Allreduce(x, y)
            comm.Alltoall(MPI.IN_PLACE, w)
        stream.begin_capture()
        comm.Allreduce(x, y)
        comm.Allreduce(y, z)
        comm.Alltoall(MPI.IN_PLACE, w)
        graph = stream.end_capture()
        for turn in range(2):
            x.fill(RANK + 1.0 + turn)
            w[:] = xp.arange(2.0 * SIZE) + 10 * RANK
            graph.launch(stream)
            stream.synchronize()
            assert (z.get() == SIZE * (RANKS + SIZE * turn)).all()
            assert w.get().tolist() == [2 * RANK + k + 10 * q for q in range(SIZE) for k in range(2)]
        comm.Allreduce(x, y)
        assert (y.get() == RANKS + SIZE).all()


@pytest.mark.parametrize("method", ["Alltoall", "Reduce_scatter_block"])
@pytest.mark.parametrize("count", [1, 7, 3001, 100_003])
def test_in_place_without_a_copy(xp, comm, method, count):
    """Short and long blocks, lines and slices; again and again with the same array, and with views of it."""
    memory = xp.zeros(SIZE * count + 8)
    for turn in range(5):
        y = memory[turn : turn + SIZE * count]
        y[:] = xp.arange(SIZE * count) + 1000 * RANK + turn
        getattr(comm, method)(MPI.IN_PLACE, y)
        found, own = y.get(), np.arange(count) + RANK * count + turn
        if method == "Alltoall":
            assert (found.reshape(SIZE, count) == [own + 1000 * q for q in range(SIZE)]).all()
        else:
            assert (found[:count] == SIZE * own + 1000 * sum(range(SIZE))).all()


def test_many_communicators_in_any_order(xp):
    """Kernels of six wait for each other on the device: each leaves room for the others', or none would ever end."""
    comms = [connected() for _ in range(6)]
    count = 4 << 20
    xs, ys = [xp.full(count, RANK + 1.0 + k, "f4") for k in range(6)], [xp.zeros(count, "f4") for _ in range(6)]
    for k, comm in enumerate(comms):
        comm.Iallreduce(xs[k], ys[k]).Wait(synchronize=True)
    for turn in range(5):
        order = np.random.default_rng(10 * turn + RANK).permutation(6)
        requests = [comms[k].Iallreduce(xs[k], ys[k]) for k in order]
        mpicoll.Communicator(WORLD).Allreduce(xs[0], xp.empty_like(xs[0]))  # a seventh, on the current stream
        for request in requests:
            request.Wait()
        for k, y in enumerate(ys):
            assert bool((y == RANKS + SIZE * k).all())
            y.fill(0)
    for comm in comms:
        comm.Free()


def test_memory_for_each_communicator(xp):
    """16 MiB for short calls; long vectors have more, and all is given back."""
    connected().Free()
    x = xp.ones(1000, "f4")
    long = xp.ones(4 << 20, "f4")
    xp.cuda.Device().synchronize()
    WORLD.Barrier()
    free = xp.cuda.runtime.memGetInfo()[0]
    comms = [connected() for _ in range(4)]
    for comm in comms:
        comm.Allreduce(MPI.IN_PLACE, x)
    short = free - xp.cuda.runtime.memGetInfo()[0]
    for comm in comms:
        comm.Allreduce(MPI.IN_PLACE, long)
    most = free - xp.cuda.runtime.memGetInfo()[0]
    for comm in comms:
        comm.Free()
    left = free - xp.cuda.runtime.memGetInfo()[0]
    told = WORLD.allgather((short, most, left))
    assert all(one <= 4 * (17 << 20) and two >= 4 * (128 << 20) and last <= 8 << 20 for one, two, last in told), told
