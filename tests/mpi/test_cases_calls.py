"""Cases of users: calls in flight, operators, threads, communicators, algorithms, large counts."""

import gc
import itertools
import os
import threading
import time
import zlib

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpi.calling import REDUCING, ROOTED, UNKNOWN_COUNTS, VECTOR, Case, check, each_that_serves, refusal
from mpicoll.algorithms import registry
from mpicoll.request import Request
from mpicoll.runtime import channel, turns
from mpicoll.runtime.layout import Layout, Shape
from mpicoll.schedule.ir import Ref, Schedule
from mpicoll.schedule.program import TAGS

SIZE = MPI.COMM_WORLD.Get_size()
RANK = MPI.COMM_WORLD.Get_rank()
several = pytest.mark.mpi(min_size=2)
needs_threads = pytest.mark.skipif(MPI.Query_thread() < MPI.THREAD_MULTIPLE, reason="MPI is not thread-safe")


@pytest.fixture
def own():
    """A communicator that nobody has used."""
    comm = mpicoll.Communicator(MPI.COMM_WORLD.Dup())
    yield comm
    comm.Free()


@pytest.fixture(autouse=True)
def on_path(request):
    """Use the path of the memory, in tests that have one."""
    memory = request.getfixturevalue("memory") if "memory" in request.fixturenames else None
    with mpicoll.override(path=memory.path if memory else None):
        yield


def in_threads(*functions):
    """Run functions at the same time; what one raises is raised."""
    raised = []

    def run(function):
        try:
            function()
        except Exception as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(f,)) for f in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]


# Calls in flight.


@pytest.mark.case("NBRED-GPU")
@pytest.mark.parametrize("method", ["Ireduce", "Iallreduce", "Ireduce_scatter_block", "Iscan", "Iexscan"])
def test_nonblocking_reductions(world, memory, method):
    """On the arrays' device, by our own messages."""
    xp, scattered = memory.xp, "scatter" in method
    x, y = xp.ones(4 * SIZE if scattered else 4), xp.zeros(4)
    request = getattr(world, method)(x, y)
    assert request.Wait() is True
    wanted = {"Iscan": RANK + 1, "Iexscan": RANK, "Ireduce": SIZE if RANK == 0 else 0}.get(method, SIZE)
    assert memory.to_host(y).tolist() == [wanted] * 4


@pytest.mark.case("NB-LIFETIME")
def test_arrays_that_only_the_request_holds(world, memory):
    """The input is a temporary, and its memory would be taken by the next array."""
    results, requests = [], []
    for turn in range(2):
        y = memory.xp.zeros(5000)
        requests.append(world.Iallreduce(memory.xp.full(5000, 1.0) + turn, y))
        results.append((y, memory.xp.full(5000, -99.0)))
    Request.Waitall(requests)
    for turn, (y, _) in enumerate(results):
        assert (memory.to_host(y) == SIZE * (1.0 + turn)).all()


@pytest.mark.case("NB-LIFETIME")
@several
def test_a_request_that_is_dropped(world, memory):
    """Dropping it warns, and the call is completed all the same."""
    y = memory.xp.zeros(5)
    world.Barrier()
    if RANK == 0:
        MPI.COMM_WORLD.Barrier()  # the others must drop theirs before it can be complete
        world.Iallreduce(memory.xp.ones(5), y).Wait()
    else:
        with pytest.warns(ResourceWarning, match="unfinished allreduce request was dropped"):
            world.Iallreduce(memory.xp.ones(5), y)
            gc.collect()
        MPI.COMM_WORLD.Barrier()
    world.Barrier()
    check(world, Case("Allreduce"))
    end = time.monotonic() + 20
    while turns.in_flight and time.monotonic() < end:
        turns.advance_all()
    assert memory.to_host(y).tolist() == [SIZE] * 5


@pytest.mark.case("NB-PROGRESS")
@several
def test_testing_makes_progress(world, memory):
    """All steps of a call can pass inside Test, while the program does other things."""
    x, y = memory.xp.ones(3000), memory.xp.zeros(3000)
    request = world.Iallreduce(x, y, algorithm="ring/2")
    end = time.monotonic() + 30
    while not request.Test():
        sum(range(100))
        os.sched_yield()
        assert time.monotonic() < end
    assert not request
    assert (memory.to_host(y) == SIZE).all()


@pytest.mark.case("NB-PROGRESS")
@several
def test_waiting_for_one_advances_the_others(world):
    """Ranks wait for their requests in different orders."""
    ys = [np.zeros(10) for _ in range(4)]
    requests = [world.Iallreduce(np.full(10, float(k)), y) for k, y in enumerate(ys)]
    for request in requests if RANK % 2 else reversed(requests):
        request.Wait()
    assert [y[0] for y in ys] == [k * SIZE for k in range(4)]


@pytest.mark.case("NB-ORDER")
def test_several_in_flight_complete_in_any_order(world, memory):
    """Started in the same order everywhere, each result is its own call's."""
    total, most = memory.xp.zeros(6), memory.xp.zeros(6)
    x = memory.xp.full(6, RANK + 1.0)
    first = world.Iallreduce(x, total, MPI.SUM)
    second = world.Iallreduce(x, most, MPI.MAX)
    for request in (second, first) if RANK % 2 else (first, second):
        request.Wait()
    assert memory.to_host(total).tolist() == [SIZE * (SIZE + 1) / 2] * 6
    assert memory.to_host(most).tolist() == [SIZE] * 6


# Operators.


@pytest.mark.case("UDOP-GPU")
def test_a_function_of_two_arrays_as_operator(world, memory):
    """It gets arrays, and they are on the device of the arguments."""
    seen = []

    def larger(a, b):
        seen.append((type(a), type(b)))
        return memory.xp.maximum(a, b)

    y = memory.xp.zeros(100)
    op = mpicoll.Op(larger, commute=True)
    world.Allreduce(memory.xp.arange(100.0) * (RANK + 1), y, op)
    assert memory.to_host(y).tolist() == [SIZE * v for v in range(100)]
    assert set(seen) <= {(memory.xp.ndarray,) * 2} or memory.path == "staged"
    request = world.Iallreduce(memory.xp.ones(100), y, op)
    request.Wait()
    assert memory.to_host(y).tolist() == [1] * 100


@pytest.mark.case("UDOP-GPU")
@several
def test_an_operator_that_raises(own):
    """It is an ordinary exception of the call, and the program goes on."""

    def fail(a, b):
        raise ArithmeticError("no such sum")

    # Every rank combines something in this algorithm, so every rank's function raises.
    with pytest.raises(ArithmeticError, match="no such sum"):
        own.Allreduce(np.ones(3), np.zeros(3), mpicoll.Op(fail, commute=True), algorithm="one_shot")
    assert MPI.COMM_WORLD.allreduce(1) == SIZE


@pytest.mark.case("ALGO-NONCOMM")
@pytest.mark.parametrize("method", ["Reduce", "Allreduce", "Scan"])
def test_the_order_of_ranks_is_kept(world, memory, method):
    """A product of matrices; the first and the last rank as root."""
    product = mpicoll.Op(lambda a, b: (a.reshape(-1, 2, 2) @ b.reshape(-1, 2, 2)).reshape(-1), width=4)
    matrices = [np.array([[1.0, r + 1], [1, 0]]) for r in range(SIZE)]
    wanted = np.linalg.multi_dot([np.eye(2), *(matrices[: RANK + 1] if method == "Scan" else matrices)])
    for root in sorted({0, SIZE - 1}):
        y = memory.xp.zeros(4)
        rest = (root,) if method == "Reduce" else ()
        getattr(world, method)(memory.xp.asarray(matrices[RANK].ravel()), y, product, *rest)
        if method != "Reduce" or root == RANK:
            assert memory.to_host(y).tolist() == wanted.ravel().tolist()


# Algorithms.


@pytest.mark.case("ALGO-NPOF2")
@pytest.mark.parametrize("method", [m for row in registry.COLLECTIVES.values() for m in row.methods if m != "Barrier"])
def test_every_algorithm_on_this_number_of_ranks(world, memory, method):
    """Right, or refused by name; the first and the last rank as root."""
    for algorithm in next(iter(mpicoll.algorithms(method).values())):
        for root in sorted({0, SIZE - 1}) if method in ROOTED else (0,):
            check(world, Case(method, algorithm, 5, "uneven" if method in VECTOR else "", root=root), memory)
    card = next((c for c in registry.known(method) if c.refuses(SIZE, counts_known=method not in UNKNOWN_COUNTS)), None)
    assert card is None or refusal(Case(method, card.name), SIZE)


@pytest.mark.case("FP-CONSISTENT")
@pytest.mark.parametrize("dtype", ["f2", "f4"])
def test_bits_do_not_depend_on_the_rank(world, memory, dtype):
    """For every algorithm; and with reproducible="ranks" not on algorithm or length either."""
    data = np.random.default_rng(RANK).standard_normal(4000).astype(dtype)
    for count in (1, 16, 4000):
        y = memory.xp.zeros(count, dtype)
        world.Allreduce(memory.xp.asarray(data[:count]), y)
        assert len(set(MPI.COMM_WORLD.allgather(zlib.crc32(memory.to_host(y).tobytes())))) == 1
    found = set()
    with mpicoll.override(reproducible="ranks"):
        for count in (16, 100, 4000):
            y = memory.xp.zeros(count, dtype)
            world.Allreduce(memory.xp.asarray(data[:count]), y)
            found.add(memory.to_host(y)[:16].tobytes())

        def reduce(algorithm):
            y = memory.xp.zeros(50, dtype)
            world.Allreduce(memory.xp.asarray(data[:50]), y, algorithm=algorithm)
            found.add(memory.to_host(y)[:16].tobytes())

        ran = each_that_serves("allreduce", SIZE, reduce, left_fold=True)
    assert len(found) == 1
    assert ran


@pytest.mark.case("TUNE-SIZE")
def test_a_threshold_is_exact(own):
    """One byte less, the same, one more; and which algorithm ran can be asked."""
    for count, name in ((99, "linear"), (100, "binomial"), (101, "binomial")):
        x = np.zeros(count, "u1")
        with mpicoll.override(algorithms="bcast:0-100:linear;bcast:100-inf:binomial"):
            plan = own.Get_plan("Bcast", x)
            assert plan.algorithm == name
            assert "the setting `algorithms`" in str(plan)
            own.Bcast(x)
    with (
        mpicoll.override(algorithms="bcast:100:linear:64"),
        pytest.raises(ValueError, match=r"^the setting `algorithms`: rule 'bcast:100:linear:64'"),
    ):
        own.Bcast(x)


# Communicators.


@pytest.mark.case("COMM-LEAK")
def test_split_use_and_free_many_times(world):
    """No communicator stays behind, nor does a wrapper make one."""
    before = len(channel.live)
    for turn in range(10):
        comm = world.Split(RANK % 2, RANK)
        y = np.zeros(2)
        comm.Allreduce(np.full(2, float(turn)), y)
        comm.Iallreduce(np.full(2, float(turn)), y).Wait()
        assert y[0] == turn * comm.size
        comm.Free()
    for _ in range(500):
        mpicoll.Communicator(world)
    assert len(channel.live) == before


@pytest.mark.case("COMM-NULL")
def test_ranks_are_those_of_the_communicator(comms):
    """Reversed, split and Cartesian communicators; ranks that are left out get the null one."""
    world = comms["world"]
    backwards = world.Split(0, -RANK)
    x = np.full(2, float(RANK))
    backwards.Bcast(x, root=0)
    assert x.tolist() == [SIZE - 1] * 2
    backwards.Free()
    grid = mpicoll.Communicator(MPI.COMM_WORLD.Create_cart([1, SIZE], periods=[False, True]))
    assert mpicoll.allgather(np.array(grid.rank), comm=grid).tolist() == list(range(SIZE))
    grid.Free()
    left_out = world.Split(MPI.UNDEFINED if RANK == 0 else 1)
    assert (left_out == MPI.COMM_NULL) == (RANK == 0)
    if RANK == 0:
        with pytest.raises(ValueError, match=r"^comm is the null communicator$"):
            mpicoll.Communicator(left_out)
    else:
        check(left_out, Case("Allgather"))
        left_out.Free()


@pytest.mark.case("TAG-UB")
def test_tags_stay_below_their_bound(own):
    """Counters that were running for long make no tag too large, on split communicators too."""
    half = own.Split(RANK % 2)
    for comm in (own, half):
        channel = comm._get_channel()
        bound = MPI.COMM_WORLD.Get_attr(MPI.TAG_UB)
        assert channel.most_slots * TAGS - 1 <= bound
        channel.persistent = channel.most_slots * 1000 - 10
        for turn in range(20):
            y = np.zeros(3)
            comm.Iallreduce(np.full(3, float(turn)), y).Wait()
            assert y[0] == turn * comm.size
            request = comm.Allreduce_init(np.full(3, float(turn)), y)
            request.Start()
            request.Wait()
            request.Free()
            assert y[0] == turn * comm.size
        assert max(slot.lane for slot in channel.slots.values()) * TAGS <= bound
    half.Free()


@pytest.mark.case("TAG-UB")
@pytest.mark.ranks(2, 3)  # slow with more
def test_many_segments_need_no_more_tags(world):
    """More messages than a slot has tags."""
    x = np.arange(16.0 * TAGS) + RANK
    world.Bcast(x, algorithm=f"linear/{TAGS + 5}")
    assert (x == np.arange(16.0 * TAGS)).all()


@pytest.mark.case("THREADS")
@needs_threads
def test_threads_with_communicators_of_their_own(world):
    """Two threads, each with a communicator, at the same time."""
    comms = [mpicoll.Communicator(MPI.COMM_WORLD.Dup()) for _ in range(2)]

    def work(comm, factor):
        y = np.zeros(50)
        for turn in range(40):
            comm.Allreduce(np.full(50, float(turn * factor)), y)
            assert (y == turn * factor * SIZE).all()
            comm.Iallreduce(np.full(50, float(turn)), y).Wait()
            assert (y == turn * SIZE).all()

    in_threads(*(lambda c=comm, f=factor: work(c, f) for factor, comm in enumerate(comms, 1)))
    for comm in comms:
        comm.Free()


@pytest.mark.case("COMM-LAZYDUP")
@needs_threads
def test_the_first_call_from_a_thread(own):
    """The private duplicate is made by a worker thread while the main thread is in MPI."""
    y, met = np.zeros(3), threading.Event()

    def work():
        own.Allreduce(np.ones(3), y)
        met.set()

    thread = threading.Thread(target=work)
    thread.start()
    requests = [MPI.COMM_WORLD.Irecv(np.zeros(1), (RANK - 1) % SIZE, 99)]
    requests.append(MPI.COMM_WORLD.Isend(np.ones(1), (RANK + 1) % SIZE, 99))
    MPI.Request.Waitall(requests)
    MPI.COMM_WORLD.Barrier()
    thread.join(60)
    assert met.is_set()
    assert y.tolist() == [SIZE] * 3


@pytest.mark.case("COMM-LAZYDUP")
@several
def test_wrapping_on_some_ranks_only(world):
    """A wrapper alone makes no collective call."""
    if RANK == 0:
        for _ in range(3):
            mpicoll.Communicator(MPI.COMM_WORLD)
    parent = MPI.COMM_WORLD.Dup()
    if RANK == 1:
        mpicoll.Communicator(parent)
    comm = mpicoll.Communicator(parent)
    check(comm, Case("Allreduce"))
    comm.Free()


# Large counts.


@pytest.mark.case("INT32-DISPL")
def test_addresses_of_large_arrays():
    """Counts fit in 32 bits, what they add up to does not."""
    counts = (1_200_000_000,) * 3
    displs = (0, 1_200_000_000, 2_400_000_000)
    shape = Shape(False, 0, ((counts[2],), (0,)), (counts, displs), 2, 3, False, 1)
    layout = Layout(shape, Schedule.of([], blocks=3), 2, 1, 1)
    bases = {"output": 1 << 40, "input": 0}
    assert layout.cell("output", 2, 0, bases) == ((1 << 40) + 2_400_000_000, 600_000_000)
    assert layout.cell("output", 2, 1, bases) == ((1 << 40) + 3_000_000_000, 600_000_000)
    assert layout.runs(Ref("output", (0, 1, 2)), 1, bases)[-1] == ((1 << 40) + 3_000_000_000, 600_000_000)


@pytest.mark.case("BIGCOUNT")
def test_addresses_of_a_large_vector():
    """More than 2**31 elements of 8 bytes, in segments and blocks, without a gap."""
    count = (1 << 33) + 5
    shape = Shape(True, count, ((), ()), ((), ()), 0, 4, False, 2)
    layout = Layout(shape, Schedule.of([], blocks=4), 64, 4, 8)
    runs = sorted(layout.cell("output", b, s, {"output": 0}) for s in range(64) for b in range(4))
    assert runs[0][0] == 0
    assert all(a + n == b for (a, n), (b, _) in itertools.pairwise(runs))
    assert sum(n for _, n in runs) == 8 * count
    assert max(n for _, n in runs) < 1 << 30


@pytest.mark.case("BIGCOUNT")
@pytest.mark.parametrize("name", ["Bcast", "Allreduce", "Allgather", "Alltoall", "Reduce_scatter_block", "Scan"])
def test_messages_of_large_arrays_are_cut(name):
    """No message has more than 2**30 bytes, whatever the algorithm."""
    for nbytes in ((1 << 31) + 8, 3 * (1 << 32) + 1):

        def cut(algorithm, nbytes=nbytes):
            plan = mpicoll.plan(name, size=4, nbytes=nbytes, algorithm=algorithm)
            assert plan.algorithm == algorithm
            assert -(-nbytes // plan.segments) <= 1 << 30

        assert each_that_serves(name, 4, cut)


big = pytest.mark.skipif("MPICOLL_TEST_BIG" not in os.environ, reason="takes gigabytes: set MPICOLL_TEST_BIG")


@pytest.mark.case("BIGCOUNT")
@big
@pytest.mark.slow
@pytest.mark.mpi(min_size=2)
def test_more_than_2_to_the_31_elements(world):
    """Int8 arrays a little longer than 2**31, broadcast and reduced."""
    count = (1 << 31) + 8
    x = np.full(count, RANK + 1, "i1") if RANK < 2 else np.zeros(count, "i1")
    world.Allreduce(MPI.IN_PLACE, x)
    assert x[0] == x[-1] == x[1 << 31] == x.max() == x.min() == 3
    x[-8:] = RANK
    x[:8] = RANK
    world.Bcast(x, root=1)
    assert x[-8:].tolist() == x[:8].tolist() == [1] * 8


@pytest.mark.case("INT32-DISPL")
@big
@pytest.mark.slow
@pytest.mark.mpi(min_size=2)
def test_displacements_above_2_to_the_31(world):
    """Blocks whose counts fit in 32 bits, and whose places do not."""
    each = 1_100_000_000 if SIZE == 2 else (1 << 31) // SIZE + 1000
    counts, displs = [each] * SIZE, [r * each for r in range(SIZE)]
    y = np.zeros(each * SIZE, "i1")
    y[displs[RANK] : displs[RANK] + each] = RANK + 1
    world.Allgatherv(MPI.IN_PLACE, [y, counts, displs])
    for r in range(SIZE):
        assert y[displs[r]] == y[displs[r] + each - 1] == r + 1


@pytest.mark.case("INT32-DISPL")
def test_gathered_counts_that_overflow_together(world):
    """The number of bytes is computed with Python's integers, whatever holds the counts."""
    from mpicoll.runtime.spec import read_spec

    spec = read_spec("allgatherv", "recvbuf", [np.zeros(1, "i1"), np.full(3, 1_200_000_000, "i4")])
    assert sum(spec.counts) == 3_600_000_000
    assert all(type(c) is int for c in spec.counts)


@pytest.mark.case("ALGO-NPOF2")
def test_reductions_at_every_root(world):
    """Whatever the distance to the root is."""
    for method in (m for m in REDUCING if m in ROOTED):
        for root in range(SIZE):
            check(world, Case(method, None, 3, root=root))
