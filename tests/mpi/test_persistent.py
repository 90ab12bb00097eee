"""The persistent collectives: planned and bound once, started as often as the arrays change."""

import gc
import time
import weakref

import numpy as np
import pytest
from mpi4py import MPI

import data
import mpicoll
import oracle
from mpi.calling import HOST, MANY_RECEIVED, MANY_SENT, REDUCING, ROOTED, VECTOR, Case, check, forms
from mpicoll.algorithms import registry
from mpicoll.request import PersistentRequest, Request
from mpicoll.runtime.progress import turns

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


class Repeated:
    """A persistent call whose input is different at every start."""

    def __init__(self, comm, method, count, memory=HOST, root=0, algorithm=None):
        self.comm, self.method, self.memory, self.root = comm, method, memory, root % comm.size
        collective, p = registry.collective(method).name, comm.size
        self.counts = [[count] * p] * p if collective == "alltoall" else [count] * p
        self.sent = count * (p if collective in MANY_SENT else 1)
        self.x = memory.xp.zeros(self.sent)
        self.y = self.x if method == "Bcast" else memory.xp.zeros(count * (p if collective in MANY_RECEIVED else 1))
        spelled = [self.y, self.counts] if method in ("Gatherv", "Allgatherv") else self.y
        arguments = (self.x,) if method == "Bcast" else (self.x, spelled)
        if method == "Reduce_scatter":
            arguments += (self.counts,)
        named = {"root": self.root} if method in ROOTED else {}
        with mpicoll.override(path=memory.path):
            self.request = getattr(comm, f"{method}_init")(*arguments, **named, algorithm=algorithm)

    def fill(self, turn):
        """Change the input; what the output must be then is compared by the next compare()."""
        op, p, rank = "SUM" if self.method in REDUCING else "", self.comm.size, self.comm.rank
        inputs = [data.values("float64", self.sent, r + 3 * turn, op) for r in range(p)]
        self.y[...] = -1
        self.x[...] = self.memory.xp.asarray(inputs[rank])
        self.expected = oracle.EXPECTED[self.method](inputs, rank, root=self.root, op=op, counts=self.counts)

    def compare(self):
        if self.expected is not None:
            assert (self.memory.to_host(self.y) == self.expected).all(), self.method

    def turn(self, number):
        self.fill(number)
        self.request.Start()
        self.request.Wait()
        self.compare()


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


@pytest.mark.mpi(min_size=2)
def test_start_of_an_active_one(world):
    """It raises, and the call goes on."""
    x, y = np.full(5, 1.0), np.zeros(5)
    request = world.Allreduce_init(x, y)
    last = world.rank == SIZE - 1
    if not last:
        request.Start()
        assert request
        assert not request.Test()
        with pytest.raises(RuntimeError, match=r"^allreduce: the persistent request is still active$"):
            request.Start()
    MPI.COMM_WORLD.Barrier()
    if last:
        request.Start()
    request.Wait()
    assert (y == SIZE).all()
    request.Free()


def test_start_of_one_that_is_complete_but_was_not_waited_for(comms):
    """MPI: a request is active until Wait or Test has told that it is complete."""
    request = comms["self"].Barrier_init()
    request.Start()
    with pytest.raises(RuntimeError, match=r"^barrier: the persistent request is still active$"):
        request.Start()


def test_start_after_free(world):
    request = world.Allreduce_init(np.ones(5), np.zeros(5))
    request.Free()
    with pytest.raises(RuntimeError, match=r"^allreduce: the persistent request was freed$"):
        request.Start()
    request.Free()
    assert request.Wait() is True


def test_free_of_an_active_one(world):
    """The call is completed first."""
    x, y = np.full(5, 1.0), np.zeros(5)
    request = world.Allreduce_init(x, y)
    request.Start()
    request.Free()
    assert (y == SIZE).all()
    assert not turns.in_flight


def test_many_are_made_and_freed(world):
    for turn in range(200):
        one = Repeated(world, METHODS[turn % len(METHODS)], 9, root=turn)
        one.turn(turn)
        one.request.Free()


def test_many_are_kept(world):
    made = [Repeated(world, METHODS[k % len(METHODS)], 9, root=k) for k in range(60)]
    for turn in range(2):
        for one in made:
            one.fill(turn)
        PersistentRequest.Startall([one.request for one in made])
        Request.Waitall([one.request for one in made])
        for one in made:
            one.compare()
    for one in made[::-1]:
        one.request.Free()


def test_arrays_are_held_until_it_is_freed(world, memory):
    """Input and output are only the request's, from before the first start; their memory is not used again."""
    xp, count = memory.xp, 1000
    x, y = xp.full(count, 1.0 + world.rank), xp.zeros(count)
    refs, seen = (weakref.ref(x), weakref.ref(y)), y[:]
    with mpicoll.override(path=memory.path):
        request = world.Allreduce_init(x, y)
    del x, y
    for _ in range(TURNS):
        gc.collect()
        assert all(ref() is not None for ref in refs)
        keep = [xp.full(count, -1.0) for _ in range(9)]
        seen[...] = 0
        request.Start()
        request.Wait()
        assert (memory.to_host(seen) == SIZE * (SIZE + 1) / 2).all()
        del keep
    request.Free()
    del seen
    gc.collect()
    assert [ref() for ref in refs] == [None, None]


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


def test_mistakes_are_raised_when_it_is_made(world):
    """On one rank alone, and no message is sent: the others' calls still meet."""
    x, y, p = np.zeros(6), np.zeros(6), world.size
    calls = [
        (ValueError, lambda: world.Allreduce_init(x, np.zeros(7))),
        (ValueError, lambda: world.Bcast_init(x, p)),
        (ValueError, lambda: world.Gather_init(x, None, world.rank)),
        (ValueError, lambda: world.Alltoallv_init([x, [7] * p], [y, [7] * p])),
        (TypeError, lambda: world.Reduce_init(x, y.astype("f4"), root=world.rank)),
        (mpicoll.UnsupportedError, lambda: world.Scan_init(x, y, MPI.REPLACE)),
        (ValueError, lambda: world.Exscan_init(x, y, algorithm="none")),
        (ValueError, lambda: world.Allreduce_init(x, y, stream=1)),
    ]
    one = Repeated(world, "Allreduce", 5)
    for number, (error, call) in enumerate(calls):
        if world.rank == number % p:
            with pytest.raises(error):
                call()
    two = Repeated(world, "Alltoall", 5)
    for turn in range(TURNS):
        two.turn(turn)
        one.turn(turn)
    one.request.Free()
    two.request.Free()


def test_info_is_where_mpi4py_has_it(world):
    x, y = np.ones(3), np.zeros(3)
    for request in (
        world.Barrier_init(MPI.INFO_NULL),
        world.Allreduce_init(x, y, MPI.SUM, MPI.INFO_NULL),
        world.Bcast_init(x, 0, info=MPI.INFO_NULL),
    ):
        request.Start()
        request.Wait()
        request.Free()
    assert (y == SIZE).all()


@pytest.mark.mpi(min_size=2)
def test_a_dropped_active_request_warns_and_completes(world):
    y = np.zeros(5)
    request, last = world.Allreduce_init(np.full(5, 1.0), y), world.rank == SIZE - 1
    if not last:
        request.Start()
        with pytest.warns(ResourceWarning, match=r"^unfinished allreduce request was dropped$"):
            request = None
            gc.collect()
    MPI.COMM_WORLD.Barrier()
    if last:
        request.Start()
        request.Wait()
    while turns.in_flight:  # any waiting call does this
        turns.advance_all()
    MPI.COMM_WORLD.Barrier()
    assert (y == SIZE).all()
