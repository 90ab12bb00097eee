"""The persistent collectives: planned and bound once, started as often as the arrays change."""

import time

import numpy as np
import pytest
from mpi4py import MPI

import data
import mpicoll
from mpi.calling import check
from mpi.cases import REDUCING, ROOTED, VECTOR, Case, forms
from mpi.repeated import Repeated
from mpicoll.algorithms import registry
from mpicoll.request import PersistentRequest, Request

SIZE = MPI.COMM_WORLD.Get_size()
METHODS = [m for row in registry.COLLECTIVES.values() for m in row.methods if m != "Barrier"]
#: starts of a request
TURNS = 4
#: elements of a block: one message that MPI sends at once, and one for which it waits for the receiver
COUNTS = (5, 9_000)


class Started:
    """A communicator's persistent collectives under the names of the blocking ones, for `check`."""

    def __init__(self, comm):
        self.comm, self.rank, self.size = comm, comm.rank, comm.size

    def __getattr__(self, method):
        form = getattr(self.comm, f"{method}_init")

        def call(*arguments, **named):
            request = form(*arguments, **named)
            assert not request
            assert request.Test()  # as an inactive request of MPI
            assert request.Wait() is True
            request.Start()
            assert request.Wait() is True
            assert not request
            request.Free()

        return call


def rows(method):
    names = next(iter(mpicoll.algorithms(method).values()))
    axes = {
        "algorithm": [f"{a}/{s}" for a in (names[0], names[-1]) for s in (1, 2)],
        "count": COUNTS[:1] if method in VECTOR else COUNTS,
        "pattern": ("uneven", "alternating") if method in VECTOR else ("",),
        "dtype": ("int16", "float32", "complex128"),
        "op": ("SUM", "PROD") if method in REDUCING else ("SUM",),
        "root": range(min(SIZE, 3)) if method in ROOTED else (0,),
        "form": forms(method),
        "comm": ("world", "reversed"),
    }
    return data.pairwise(axes)


@pytest.mark.parametrize("method", METHODS)
def test_like_the_blocking_call(comms, memory, method):
    for row in rows(method):
        check(Started(comms[row.pop("comm")]), Case(method, **row), memory)


def test_barrier(comms):
    """Nobody ends before the last one has started: clocks of one machine tell."""
    comm = comms["reversed"]
    request = comm.Barrier_init()
    for late in {0, SIZE - 1}:
        if comm.rank == late:
            time.sleep(0.02)
        came = time.monotonic()
        request.Start()
        request.Wait()
        times = MPI.Intracomm(comm).allgather((came, time.monotonic()))
        assert max(came for came, _ in times) <= min(left for _, left in times)
    request.Free()


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("method", METHODS)
def test_other_data_at_every_start(world, memory, method, count):
    repeated = Repeated(world, method, count, memory, root=-1)
    for turn in range(TURNS):
        repeated.turn(turn)
    repeated.request.Free()


@pytest.mark.parametrize("algorithm", next(iter(mpicoll.algorithms("Allreduce").values())))
def test_every_algorithm_many_times(world, memory, algorithm):
    if registry.get("Allreduce", algorithm).refuses(SIZE):
        return
    repeated = Repeated(world, "Allreduce", 30, memory, algorithm=f"{algorithm}/2")
    for turn in range(10 * TURNS):
        repeated.turn(turn)
    repeated.request.Free()


@pytest.mark.parametrize("backwards", [False, True])
def test_several_are_active(world, memory, backwards):
    """All are started, then waited for in an order of each rank's own; nobody waits for nobody."""
    made = [Repeated(world, m, COUNTS[k % 2], memory, root=k) for k, m in enumerate(METHODS)]
    order = np.random.default_rng(world.rank).permutation(len(made))
    for turn in range(TURNS):
        for one in made:
            one.fill(turn)
        PersistentRequest.Startall([one.request for one in made])
        for k in order[:: -1 if backwards else 1]:
            made[k].request.Wait()
            made[k].compare()
    for one in made:
        one.request.Free()


def test_with_other_calls_in_flight(world, memory):
    """Persistent, nonblocking and blocking calls, and messages of the user, at the same time."""
    rank, right, left = world.rank, (world.rank + 1) % SIZE, (world.rank - 1) % SIZE
    made = [Repeated(world, m, 40_000, memory) for m in ("Allreduce", "Alltoall", "Bcast")]
    got = np.zeros(40_000)
    for turn in range(TURNS):
        requests = [world.Irecv(got, left, turn)]
        for one in made:
            one.fill(turn)
            one.request.Start()
            check(world, Case("Allgather"), memory)
            requests += [one.request, world.Ibarrier()]
        requests.append(world.Isend(np.full(40_000, 10.0 * turn + rank), right, turn))
        Request.Waitall(requests[:: -1 if rank % 2 else 1])
        assert not any(requests)
        assert (got == 10 * turn + left).all()
        for one in made:
            one.compare()
    for one in made:
        one.request.Free()


def test_waitany_and_testany(world):
    """Inactive requests do not count."""
    made = [Repeated(world, m, 9) for m in ("Allreduce", "Bcast", "Scan")]
    requests = [one.request for one in made]
    assert Request.Waitany(requests) == MPI.UNDEFINED
    for turn in range(TURNS):
        for one in made[: 2 + turn % 2]:
            one.fill(turn)
            one.request.Start()
        found = [Request.Waitany(requests) for _ in range(2 + turn % 2)]
        assert sorted(found) == list(range(2 + turn % 2))
        assert Request.Testany(requests) == (MPI.UNDEFINED, True)
        assert Request.Testall(requests)
        for one in made[: 2 + turn % 2]:
            one.compare()
    for request in requests:
        request.Free()


def test_mpi4pys_persistent_requests_beside(world):
    right, left = (world.rank + 1) % SIZE, (world.rank - 1) % SIZE
    x, got, one = np.zeros(7), np.zeros(7), Repeated(world, "Allreduce", 7)
    send, receive = world.Send_init(x, right, 2), world.Recv_init(got, left, 2)
    for turn in range(TURNS):
        x[:] = 10 * turn + world.rank
        one.fill(turn)
        for request in (receive, one.request, send):
            request.Start()
        Request.Waitall([receive, one.request, send])
        assert (got == 10 * turn + left).all()
        one.compare()
    for request in (send, receive, one.request):
        request.Free()


def test_arrays_that_are_packed(world, memory):
    """Packed anew at every start."""
    xp, p = memory.xp, world.size
    x, whole = xp.zeros((6, 8)), xp.zeros((6, 8))
    y = whole[:, ::-2]
    with mpicoll.override(path=memory.path):
        request = world.Allreduce_init(x.T[::2], y.T)
        for turn in range(TURNS):
            x[...] = xp.arange(48.0).reshape(6, 8) + turn
            whole.fill(-1)
            request.Start()
            request.Wait()
            found, wanted = memory.to_host(whole), np.full((6, 8), -1.0)
            wanted[:, ::-2] = p * (np.arange(48.0).reshape(6, 8)[:, ::2] + turn)
            assert (found == wanted).all()
        request.Free()


def test_in_place_at_every_start(world, memory):
    """The output of one start is the input of the next."""
    p, rank, xp = world.size, world.rank, memory.xp
    y, z = xp.full(5, 1.0), xp.arange(3.0 * p) + 100 * rank
    before = memory.to_host(z).copy()
    with mpicoll.override(path=memory.path):
        summing = world.Allreduce_init(MPI.IN_PLACE, y)
        turning = world.Alltoall_init(MPI.IN_PLACE, z)
        for turn in range(1, TURNS + 1):
            PersistentRequest.Startall([summing, turning])
            Request.Waitall([turning, summing])
            assert (memory.to_host(y) == float(p) ** turn).all()
            if turn % 2 == 0:
                assert (memory.to_host(z) == before).all()
    summing.Free()
    turning.Free()
