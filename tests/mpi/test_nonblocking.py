"""The nonblocking collectives: what they give, in which order they may end, and what a request holds.

Algorithms, counts and dtypes are tested with the blocking calls, for both have one executor.  What is
nonblocking's own is that calls are in flight at the same time, that every waiting call makes progress
for all of them, and that the arrays live as long as they are needed.
"""

import gc
import time
import weakref

import numpy as np
import pytest
from mpi4py import MPI

import data
import mpicoll
from mpi.busy import spin
from mpi.calling import HOST, REDUCING, ROOTED, VECTOR, Call, Case, check, forms
from mpicoll.algorithms import registry
from mpicoll.request import Request
from mpicoll.runtime.progress import turns

SIZE = MPI.COMM_WORLD.Get_size()
METHODS = [m for row in registry.COLLECTIVES.values() for m in row.methods if m != "Barrier"]
#: calls in flight, several times as many as may be on their way
MANY = 20
#: elements: one message that MPI sends at once, and one for which it waits for the receiver
COUNTS = (5, 9_000)


def wait(request):
    assert request.Wait() is True


def keep_testing(request):
    while not request.Test():
        pass


def waitall(request):
    Request.Waitall([request])


ENDS = {"Wait": wait, "Test": keep_testing, "Waitall": waitall}


class Ended:
    """A communicator's nonblocking collectives under the names of the blocking ones, for `check`."""

    def __init__(self, comm, end="Wait"):
        self.comm, self.rank, self.size, self.end = comm, comm.rank, comm.size, ENDS[end]

    def __getattr__(self, method):
        form = getattr(self.comm, f"I{method.lower()}")

        def call(*arguments, **named):
            request = form(*arguments, **named)
            self.end(request)
            assert not request
            assert request.Test()
            wait(request)

        return call


def begin(comm, case, memory):
    """Start a call; returns it and its request."""
    call = Call(case, comm.rank, comm.size, memory)
    with mpicoll.override(path=memory.path):
        form = getattr(comm, f"I{case.method.lower()}")
        return call, form(*call.arguments(), algorithm=case.algorithm)


def mixed(number):
    """Return the case of one of many calls: the methods in turn, small and large."""
    method = METHODS[number % len(METHODS)]
    pattern = "uneven" if method in VECTOR else ""
    return Case(method, None, COUNTS[number // 3 % 2], pattern, dtype="float64", root=number)


@pytest.fixture
def pair():
    """Two communicators of all ranks."""
    made = [mpicoll.Communicator(MPI.COMM_WORLD.Dup()) for _ in range(2)]
    for comm in made:
        comm.Barrier()
    yield made
    for comm in made:
        comm.Free()


@pytest.fixture
def comm(pair):
    """A communicator that a failed call may spoil."""
    return pair[0]


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
        "end": ENDS,
    }
    return data.pairwise(axes)


@pytest.mark.parametrize("method", METHODS)
def test_like_the_blocking_call(comms, memory, method):
    for row in rows(method):
        ended = Ended(comms[row.pop("comm")], row.pop("end"))
        check(ended, Case(method, **row), memory)


def test_barrier(comms):
    """Nobody ends before the last one has started: clocks of one machine tell."""
    for end in ENDS:
        for late in {0, SIZE - 1}:
            comm = comms["reversed"]
            if comm.rank == late:
                time.sleep(0.02)
            came = time.monotonic()
            Ended(comm, end).Barrier()
            times = MPI.Intracomm(comm).allgather((came, time.monotonic()))
            assert max(came for came, _ in times) <= min(left for _, left in times)


ORDERS = {
    "as started": lambda rank, n: range(n),
    "backwards": lambda rank, n: range(n)[::-1],
    "each rank its own": lambda rank, n: np.random.default_rng(rank).permutation(n),
}


@pytest.mark.parametrize("order", ORDERS)
def test_many_in_flight(world, memory, order):
    """More calls than may be on their way; each rank waits for them in an order of its own."""
    begun = [begin(world, mixed(k), memory) for k in range(MANY)]
    for k in ORDERS[order](world.rank, MANY):
        wait(begun[k][1])
        begun[k][0].compare()


def test_blocking_calls_between(world, memory):
    """Blocking calls do not disturb, and are not disturbed by, what is in flight."""
    begun = []
    for k in range(MANY // 2):
        begun.append(begin(world, mixed(k), memory))
        check(world, mixed(3 * k + 1), memory)
        if k % 3 == world.rank % 3:
            wait(begun[k // 2][1])
    for call, request in begun[::-1]:
        wait(request)
        call.compare()


def test_blocking_call_of_the_same_arrays_as_the_last_nonblocking_one(world, memory):
    xp = memory.xp
    x, y = xp.zeros(50), xp.zeros(50)
    with mpicoll.override(path=memory.path):
        for turn in range(10):
            x[...] = turn
            wait(world.Iallreduce(x, y))
            assert (memory.to_host(y) == turn * world.size).all()
            x[...] = -turn
            world.Allreduce(x, y)
            assert (memory.to_host(y) == -turn * world.size).all()


def test_waiting_in_opposite_orders(pair, memory):
    """Neither of two ranks waits for the other, whatever they wait for first."""
    case = Case("Alltoall", None, 40_000)
    for _ in range(3):
        begun = [begin(comm, case, memory) for comm in pair]
        for call, request in begun[:: 1 if pair[0].rank % 2 else -1]:
            wait(request)
            call.compare()


def late(comm, start, meanwhile):
    """Start calls, which the last rank does only after the others have done something; returns their requests.

    Nobody's call can be complete before the last rank has started it.
    """
    last = comm.rank == comm.size - 1
    requests = None if last else start()
    if not last:
        meanwhile(requests)
    MPI.COMM_WORLD.Barrier()
    return start() if last else requests


@pytest.mark.mpi(min_size=2)
def test_communicators_go_on_independently(pair):
    """What stands still on one does not hold up the other."""
    x, y, z = np.full(9, 1.0), np.zeros(9), np.zeros(9)
    waiting, other = pair
    last = waiting.rank == waiting.size - 1
    stuck = None if last else waiting.Iallreduce(x, y)
    for _ in range(10):
        wait(other.Iallreduce(x, z))
    other.Allreduce(x, z)
    assert (z == SIZE).all()
    assert last or not stuck.Test()
    MPI.COMM_WORLD.Barrier()
    wait(waiting.Iallreduce(x, y) if last else stuck)
    assert (y == SIZE).all()


@pytest.mark.mpi(min_size=2)
def test_not_complete_before_all_have_started(world, memory):
    x, y = memory.xp.full(9, 1.0), memory.xp.zeros(9)

    def look(request):
        end = time.monotonic() + 0.02
        while time.monotonic() < end:
            assert not request.Test()
        assert request
        assert Request.Testany([request]) == (MPI.UNDEFINED, False)
        assert not Request.Testall([request])

    with mpicoll.override(path=memory.path):
        request = late(world, lambda: world.Iallreduce(x, y), look)
        wait(request)
    assert (memory.to_host(y) == SIZE).all()


@pytest.mark.mpi(min_size=2)
def test_the_users_messages_between(world):
    """What the user sends and receives goes its own way, with any tag."""
    rank, right, left = world.rank, (world.rank + 1) % SIZE, (world.rank - 1) % SIZE
    got = np.zeros((3, 40_000))
    receives = [world.Irecv(row, left, MPI.ANY_TAG) for row in got]
    begun = [begin(world, mixed(k), HOST) for k in range(4)]
    sends = [world.Isend(np.full(40_000, 10.0 * rank + k), right, k) for k in range(3)]
    requests = [*sends, *(request for _, request in begun), *receives]
    assert Request.Waitall(requests) is True
    assert not any(requests)
    for call, _ in begun:
        call.compare()
    assert (got == 10.0 * left + np.arange(3)[:, None]).all()


def mixture(world):
    """Return requests of mpicoll and of mpi4py, and what they will have done."""
    rank, right, left = world.rank, (world.rank + 1) % SIZE, (world.rank - 1) % SIZE
    sums, got, copy = np.zeros(1000), np.zeros(40_000), np.full(7, float(rank))
    requests = [
        world.Irecv(got, left, 3),
        world.Iallreduce(np.full(1000, 1.0), sums),
        MPI.REQUEST_NULL,
        world.Isend(np.full(40_000, float(rank)), right, 3),
        world.Ibcast(copy, SIZE - 1),
        MPI.Intracomm(world).Ibarrier(),
        world.Ibarrier(),
    ]

    def compare():
        assert (sums == SIZE).all()
        assert (got == left).all()
        assert (copy == SIZE - 1).all()

    return requests, compare


def test_waitall(world):
    requests, compare = mixture(world)
    assert Request.Waitall(requests) is True
    compare()
    assert Request.Waitall(requests) is True
    assert Request.Waitall([]) is True


def test_testall(world):
    requests, compare = mixture(world)
    while not Request.Testall(requests):
        pass
    compare()
    assert Request.Testall(requests)
    assert Request.Testall([])


def test_waitany(world):
    """Each is returned once, then none is left."""
    requests, compare = mixture(world)
    found = [Request.Waitany(requests) for _ in range(6)]
    assert sorted(found) == [0, 1, 3, 4, 5, 6]
    compare()
    assert Request.Waitany(requests) == MPI.UNDEFINED
    assert Request.Waitany([]) == MPI.UNDEFINED


def test_testany(world):
    requests, compare = mixture(world)
    found = []
    while len(found) < 6:
        index, done = Request.Testany(requests)
        assert done is (index != MPI.UNDEFINED)
        found += [index] * done
    assert sorted(found) == [0, 1, 3, 4, 5, 6]
    compare()
    assert Request.Testany(requests) == (MPI.UNDEFINED, True)


def test_lower_case_words(world):
    x, y = np.ones(3), np.zeros(3)
    assert world.Iallreduce(x, y).wait() is True
    request = world.Iallreduce(x, y)
    while not request.test():
        pass
    assert (y == SIZE).all()


@pytest.mark.parametrize("algorithm", next(iter(mpicoll.algorithms("Allreduce").values())))
def test_only_tested(world, algorithm):
    """All ranks do nothing but test, now and then: that alone must bring every step of an algorithm."""
    call = Case("Allreduce", f"{algorithm}/3", 3000)
    if registry.get("Allreduce", algorithm).refuses(SIZE):
        return
    calculation, request = begin(world, call, HOST)
    for _ in range(20_000):
        if request.Test():
            break
        time.sleep(0.0005)
    calculation.compare()
    assert not request


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("count", COUNTS)
def test_arrays_are_held_until_the_end(world, memory, count):
    """The input is dropped and its memory used again before the last rank has even started."""
    xp, y, refs = memory.xp, memory.xp.zeros(count), []

    def start():
        x = xp.full(count, 1.0 + world.rank)
        refs.append(weakref.ref(x))
        return world.Iallreduce(x, y)

    def overwrite(_):
        gc.collect()
        assert refs[0]() is not None
        for _ in range(20):
            xp.full(count, -1.0)

    with mpicoll.override(path=memory.path):
        request = late(world, start, overwrite)
        wait(request)
    assert (memory.to_host(y) == SIZE * (SIZE + 1) / 2).all()
    gc.collect()
    assert refs[0]() is None


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("method", ["Bcast", "Allgather", "Alltoall", "Reduce_scatter_block", "Exscan"])
def test_the_output_is_held_too(world, memory, method):
    """Nobody but the request has the arrays."""
    held = []

    def start():
        call, request = begin(world, Case(method, None, 40_000), memory)
        held.append(call)
        part = call.target
        part.seen = part.whole[:]  # a view: it keeps the memory, the array itself is only the request's
        del part.__dict__["array"], part.whole
        call.sendbuf = call.recvbuf = None
        return request

    request = late(world, start, lambda _: gc.collect())
    wait(request)
    call = held[0]
    call.target.whole, call.target.array = call.target.seen, None
    call.compare()


@pytest.mark.mpi(min_size=2)
def test_a_dropped_request_warns_and_completes(comm):
    y = np.zeros(5)

    def drop(requests):
        with pytest.warns(ResourceWarning, match=r"^unfinished allreduce request was dropped$"):
            requests.clear()
            gc.collect()

    left = late(comm, lambda: [comm.Iallreduce(np.full(5, 2.0), y)], drop)
    if left:
        wait(left[0])
    for _ in range(6):  # they wait for other slots, and advance the call that nobody waits for
        wait(comm.Ibarrier())
    assert (y == 2.0 * SIZE).all()
    assert not turns.in_flight


def test_a_complete_request_is_dropped_in_silence(world, recwarn):
    request = world.Iallreduce(np.ones(3), np.zeros(3))
    wait(request)
    del request
    gc.collect()
    assert not [w for w in recwarn if issubclass(w.category, ResourceWarning)]


def test_arrays_that_are_packed(world, memory):
    """Packed at the start, unpacked at the end: strided, transposed, reversed."""
    xp, p, rank = memory.xp, world.size, world.rank
    base = xp.arange(60.0).reshape(5, 12) + rank
    views = {"strided": lambda a: a[:, ::3], "transposed": lambda a: a.T, "reversed": lambda a: a[::-1]}
    with mpicoll.override(path=memory.path):
        for view in views.values():
            x, whole = view(base.copy()), xp.full((5, 12), -1.0)
            y = view(whole)
            first, second = world.Iallreduce(x, y), world.Ibcast(z := view(base.copy()), p - 1)
            x[...] = x  # to be read is allowed
            wait(second)
            wait(first)
            before = memory.to_host(view(base)) - rank
            assert (memory.to_host(y) == p * before + p * (p - 1) / 2).all()
            assert (memory.to_host(z) == before + p - 1).all()
            y[...] = -1
            assert (memory.to_host(whole) == -1).all()


def broken(comm):
    """Return calls that must raise, by what they say."""
    x, y, p = np.zeros(6), np.zeros(6), comm.size
    return {
        "Iallreduce": (ValueError, lambda: comm.Iallreduce(x, np.zeros(7))),
        "Ibcast": (ValueError, lambda: comm.Ibcast(x, p)),
        "Igather": (ValueError, lambda: comm.Igather(x, None, comm.rank)),
        "Iscatter": (TypeError, lambda: comm.Iscatter(np.zeros(6 * p, "f4"), x, comm.rank)),
        "Iallgatherv": (ValueError, lambda: comm.Iallgatherv(x, [y, [6] * (p + 1)])),
        "Ialltoall": (ValueError, lambda: comm.Ialltoall(np.zeros(p), np.zeros(2 * p))),
        "Ireduce": (TypeError, lambda: comm.Ireduce(x, y.astype("f4"), root=comm.rank)),
        "Ireduce_scatter": (ValueError, lambda: comm.Ireduce_scatter(x, y, [7] * p)),
        "Iscan": (mpicoll.UnsupportedError, lambda: comm.Iscan(x, y, MPI.REPLACE)),
        "Iexscan": (ValueError, lambda: comm.Iexscan(x, y, algorithm="none")),
        "stream": (ValueError, lambda: comm.Iallreduce(x, y, stream=1)),
    }


def test_mistakes_are_raised_at_the_call(world):
    """On one rank alone, and no message is sent: what follows is right, with calls in flight or without."""
    begun = [begin(world, mixed(k), HOST) for k in range(3)]
    for number, (error, call) in enumerate(broken(world).values()):
        if world.rank == number % world.size:
            with pytest.raises(error):
                call()
    check(Ended(world), Case("Allreduce"))
    for call, request in begun:
        wait(request)
        call.compare()


class OperatorError(Exception):
    pass


def failing(a, b):
    raise OperatorError("no such sum")


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("end", ["Wait", "Test"])
def test_an_exception_of_the_users_operator(comm, memory, end):
    """It comes out of Wait or Test, never of the call, even where all messages are there, and whenever it is asked."""
    x, y, op = memory.xp.ones(5), memory.xp.zeros(5), mpicoll.Op(failing, commute=True)
    with mpicoll.override(path=memory.path):
        comm.Get_plan("Allreduce", x, y, op)  # the first call with device arrays is collective
        request = late(comm, lambda: comm.Iallreduce(x, y, op, algorithm="one_shot"), lambda _: time.sleep(0.02))
        assert request
        for again in (ENDS[end], Request.Wait, Request.Test, lambda q: Request.Waitany([q])):
            with pytest.raises(OperatorError, match=r"^no such sum$"):
                again(request)
    assert request, "a call that has failed is not complete"
    assert not turns.in_flight


@pytest.mark.mpi(min_size=2)
def test_starting_waits_for_nobody(comm):
    """MPI: a rank may start any number of calls, and only then send what another one waits for."""
    token, ends = np.zeros(1), (0, SIZE - 1)
    if comm.rank == ends[1]:
        comm.Recv(token, 0, 1)
    requests = [comm.Ibarrier() for _ in range(MANY)]
    if comm.rank == ends[0]:
        comm.Send(token, ends[1], 1)
    Request.Waitall(requests)


def streams(memory):
    cuda = memory.xp.cuda
    return [cuda.Stream.null, cuda.Stream(), cuda.Stream(non_blocking=True)]


def busy():
    """Keep the current stream busy for about 10 ms."""
    spin(20_000_000)


def on_device(function):
    """Mark a test that is only for device arrays, on all paths."""
    both = pytest.mark.parametrize("memory", ["cupy-direct", "cupy-staged", "cupy-mapped"], indirect=True)
    return pytest.mark.gpu(both(function))


@on_device
@pytest.mark.parametrize("method", ["Allreduce", "Bcast", "Allgather", "Alltoall", "Reduce_scatter_block", "Scan"])
def test_ordered_with_the_stream(world, memory, method):
    """What the stream did before the call is awaited; what it does after Wait sees the result."""
    xp, p, count = memory.xp, world.size, 30_000
    x = xp.zeros(count * (p if method in ("Alltoall", "Reduce_scatter_block") else 1))
    y = x if method == "Bcast" else xp.zeros(count * (p if method in ("Allgather", "Alltoall") else 1))
    factor = {"Allreduce": p, "Reduce_scatter_block": p, "Scan": world.rank + 1}.get(method, 1)
    totals = []
    xp.cuda.Device().synchronize()
    with mpicoll.override(path=memory.path):
        for turn, stream in enumerate(streams(memory), 1):
            with stream:
                busy()
                x.fill(turn)
                request = getattr(world, f"I{method.lower()}")(*((x,) if y is x else (x, y)))
                wait(request)
                totals.append((y * 2).sum())
                y.fill(0)
                x.fill(-1)
            stream.synchronize()
    assert [float(t) for t in totals] == [2.0 * turn * factor * y.size for turn in range(1, 4)]


@on_device
def test_the_call_does_not_wait_for_the_stream(world, memory):
    """It returns while the kernel before it still runs."""
    xp = memory.xp
    x, y = xp.zeros(1000), xp.zeros(1000)
    stream = xp.cuda.Stream(non_blocking=True)
    with mpicoll.override(path=memory.path), stream:
        wait(world.Iallreduce(x, y))  # all is made and loaded
        stream.synchronize()
        for _ in range(20):
            busy()
        x.fill(1)
        request = world.Iallreduce(x, y)
        assert not stream.done
        assert not request.Test()
        wait(request)
        assert float(y.sum()) == 1000.0 * world.size


@on_device
def test_streams_in_flight_at_the_same_time(world, memory):
    xp, p = memory.xp, world.size
    arrays = [(xp.zeros(30_000), xp.zeros(30_000)) for _ in range(9)]
    xp.cuda.Device().synchronize()
    requests, used = [], streams(memory)
    with mpicoll.override(path=memory.path):
        for turn, (x, y) in enumerate(arrays):
            with used[turn % 3]:
                busy()
                x.fill(turn + world.rank)
                requests.append(world.Iallreduce(x, y))
        for turn in np.random.default_rng(world.rank).permutation(9):
            wait(requests[turn])
            with used[turn % 3]:
                arrays[turn][1].__isub__(turn * p)
    xp.cuda.Device().synchronize()
    assert all((y.get() == p * (p - 1) / 2).all() for _, y in arrays)


@pytest.mark.mpi(min_size=2)
def test_a_call_keeps_the_settings_of_its_start(memory):
    """What is decided only in Wait, as for a communicator's first call, is decided by what was set at the call."""
    comm = mpicoll.Communicator(MPI.COMM_WORLD.Dup())
    x, y = memory.xp.ones(5), memory.xp.zeros(5)
    with mpicoll.override(algorithms="allreduce:ring", path=memory.path):
        request = comm.Iallreduce(x, y)
    with mpicoll.override(algorithms="allreduce:one_shot"):
        request.Wait()
    assert request.plan.algorithm == "ring"
    assert (memory.to_host(y) == comm.size).all()
    comm.Free()
