"""The path mapped on streams, in flight, again and again, and in graphs: always in the order of the calls."""

import random

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpi.busy import spin
from mpi.calling import Call
from mpi.cases import REDUCING, VECTOR, Case, Memory, forms, refusal
from mpi.mapped_comms import KINDS, NARROW, connected, names
from mpicoll.algorithms import registry
from mpicoll.request import Request

pytestmark = pytest.mark.gpu

SIZE = MPI.COMM_WORLD.Get_size()
RANK = MPI.COMM_WORLD.Get_rank()
METHODS = [m for row in registry.COLLECTIVES.values() for m in row.methods if m != "Barrier"]
COUNT = 50_003
#: sum over ranks of the rank, and of rank + 1
BELOW, RANKS = SIZE * (SIZE - 1) // 2, SIZE * (SIZE + 1) // 2


@pytest.fixture(params=KINDS)
def comm(request, kinds, monkeypatch):
    made = kinds.comm(request.param, monkeypatch)
    with mpicoll.override(path="mapped"):
        yield made


@pytest.fixture
def xp():
    import cupy

    yield cupy
    cupy.cuda.Device().synchronize()


def busy(milliseconds=3):
    """Keep the current stream busy."""
    spin(1_800_000 * milliseconds)


def test_behind_a_slow_kernel_on_a_stream(comm, xp):
    """The input is filled late, on some ranks later; what comes behind sees the result; nobody waits."""
    stream = xp.cuda.Stream(non_blocking=True)
    x, y, wrong = xp.zeros(COUNT), xp.zeros(COUNT), xp.zeros((), "i8")
    xp.cuda.Device().synchronize()
    with stream:
        for turn in range(20):
            busy(1 + (turn + RANK) % 3)
            x.fill(turn + RANK)
            comm.Allreduce(x, y)
            x.fill(-1)
            wrong += (y != turn * SIZE + BELOW).sum()
            y.fill(0)
        assert int(wrong) == 0


def test_streams_take_turns(comm, xp):
    """Calls come one after the other whatever stream they are on, and whichever is behind."""
    streams = [xp.cuda.Stream(non_blocking=True), xp.cuda.Stream(), xp.cuda.Stream(non_blocking=True)]
    arrays = [(xp.zeros(COUNT), xp.zeros(COUNT)) for _ in range(12)]
    xp.cuda.Device().synchronize()
    for turn, (x, y) in enumerate(arrays):
        stream = streams[turn * 2 % 3]
        with stream:
            if (turn + RANK) % 2:
                busy()
            x.fill(turn + RANK)
        comm.Allreduce(x, y, stream=stream)
    xp.cuda.Device().synchronize()
    for turn, (_, y) in enumerate(arrays):
        assert (y.get() == turn * SIZE + BELOW).all(), turn


def test_a_thousand_times(comm, xp):
    """With nothing in between that would synchronise, and the same arrays."""
    x, y, wrong = xp.zeros(COUNT), xp.zeros(COUNT), xp.zeros((), "i8")
    for turn in range(1000):
        x.fill(turn)
        comm.Allreduce(x, y, algorithm="two_shot")
        wrong += (y != turn * SIZE).sum()
    assert int(wrong) == 0


def test_a_root_that_runs_ahead(comm, xp):
    """It never hears from the others; they are slow."""
    x, wrong = xp.zeros(COUNT), xp.zeros((), "i8")
    for algorithm in ("linear", "ring", "binomial"):
        for turn in range(60):
            if RANK:
                busy(1)
            x.fill(turn if RANK == 0 else -1)
            comm.Bcast(x, algorithm=algorithm)
            wrong += (x != turn).sum()
    assert int(wrong) == 0


@pytest.fixture
def pair(monkeypatch):
    """Two communicators of their own, all of whose kernels are compiled and loaded."""
    made = []
    try:
        made += [connected(), connected(NARROW)]
        yield made
    finally:
        for one in made:
            one.Free()


@pytest.mark.parametrize("count", [1000, 1_000_003])
def test_two_communicators_in_another_order_on_odd_ranks(pair, xp, count):
    """Kernels of both are on the device at the same time."""
    streams = [xp.cuda.Stream(non_blocking=True) for _ in pair]
    arrays = [(xp.full(count, RANK + 1.0 + k), xp.zeros(count), xp.zeros(count)) for k in range(2)]
    with mpicoll.override(path="mapped", timeout=0):
        for comm, (x, y, z), stream in zip(pair, arrays, streams, strict=True):
            comm.Iallreduce(x, y, algorithm="one_shot").Wait()
            comm.Allreduce(x, z, algorithm="one_shot", stream=stream)
        xp.cuda.Device().synchronize()
        for turn in range(10):
            for x, y, z in arrays:
                x += 1
                y.fill(0)
                z.fill(0)
            xp.cuda.Device().synchronize()
            order = [0, 1] if RANK % 2 else [1, 0]
            requests = [pair[k].Iallreduce(*arrays[k][:2], algorithm="one_shot") for k in order]
            Request.Waitall(requests)
            for k in order:
                pair[k].Allreduce(arrays[k][0], arrays[k][2], algorithm="one_shot", stream=streams[k])
            xp.cuda.Device().synchronize()
            for k, (_, y, z) in enumerate(arrays):
                expected = RANKS + SIZE * (k + turn + 1)
                assert (y.get() == expected).all()
                assert (z.get() == expected).all()


def test_several_in_flight_waited_for_in_reverse(comm, xp):
    sizes = (1, 40_000, 3, 300_000, 0, 1000, 77_777, 5)
    arrays = [(xp.full(n, RANK + 1.0 + n), xp.zeros(n)) for n in sizes]
    requests = [comm.Iallreduce(x, y) for x, y in arrays]
    for request in reversed(requests):
        request.Wait()
    for n, (_, y) in zip(sizes, arrays, strict=True):
        assert (y.get() == RANKS + n * SIZE).all()


def test_blocking_calls_among_those_in_flight(comm, xp):
    x, results = xp.full(COUNT, RANK + 1.0), [xp.zeros(COUNT) for _ in range(6)]
    requests = []
    for turn, y in enumerate(results):
        if turn % 2:
            comm.Allreduce(x, y, MPI.MAX)
        else:
            requests.append(comm.Iallreduce(x, y))
    Request.Waitall(requests[::-1] if RANK % 2 else requests)
    xp.cuda.Device().synchronize()
    for turn, y in enumerate(results):
        assert (y.get() == (SIZE if turn % 2 else RANKS)).all()


def test_a_request_is_complete_when_its_kernel_is(comm, xp):
    """Test says so in the end, while the stream goes on."""
    x, y = xp.full(COUNT, RANK + 1.0), xp.zeros(COUNT)
    request = comm.Iallreduce(x, y)
    while not request.Test():
        pass
    assert not request
    assert (y.get() == RANKS).all()


def test_persistent_calls_started_again(comm, xp):
    """Twenty times, with other contents, two of them at the same time."""
    x, y, z = xp.zeros(COUNT), xp.zeros(COUNT), xp.zeros(COUNT * SIZE)
    requests = [comm.Allreduce_init(x, y), comm.Allgather_init(x, z)]
    for turn in range(20):
        x.fill(turn + RANK)
        for request in requests:
            request.Start()
        for request in reversed(requests):
            request.Wait()
        assert (y.get() == turn * SIZE + BELOW).all()
        assert (z.get() == np.repeat(np.arange(SIZE) + turn, COUNT)).all()
    for request in requests:
        request.Free()


def test_three_collectives_in_a_graph(comm, xp):
    """Captured once, launched twenty times with other contents, and other calls in between."""
    stream, count = xp.cuda.Stream(non_blocking=True), 10_001
    with stream, mpicoll.override(timeout=0):
        x, y, z = xp.zeros(count), xp.zeros(count), xp.zeros(count * SIZE)

        def calls():
            comm.Allreduce(x, y, algorithm="two_shot")
            comm.Bcast(x, root=SIZE - 1, algorithm="ring")
            comm.Allgather(y, z, algorithm="linear")

        calls()
        stream.synchronize()
        stream.begin_capture()
        calls()
        graph = stream.end_capture()
        for turn in range(20):
            x.fill(turn + RANK)
            y.fill(-1)
            z.fill(-1)
            graph.launch(stream)
            total = turn * SIZE + BELOW
            assert (y.get() == total).all()
            assert (x.get() == turn + SIZE - 1).all()
            assert (z.get() == total).all()
            if turn % 5 == 0:
                other = xp.ones(100)
                comm.Allreduce(MPI.IN_PLACE, other)
                assert (other.get() == SIZE).all()


def mixture(number, draw):
    """Return cases, the same on all ranks: of all methods, algorithms, lengths, forms."""
    cases = []
    while len(cases) < number:
        method = draw.choice(METHODS)
        algorithm = draw.choice(names(method))
        uneven = {"pattern": draw.choice(("uneven", "last", "zero"))} if method in VECTOR else {}
        count = draw.choice((0, 1, 5, 333, 4000, 30_001))
        dtype = draw.choice(("float32", "float64", "int8", "complex64"))
        op = draw.choice(("SUM", "PROD")) if method in REDUCING else "SUM"
        form, root = draw.choice(forms(method)), draw.randrange(SIZE)
        case = Case(method, f"{algorithm}@mapped", count, dtype=dtype, op=op, form=form, root=root, **uneven)
        if not refusal(case, SIZE):
            cases.append(case)
    return cases


@pytest.mark.parametrize("nbytes", [0, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("seed", range(2))
def test_any_calls_one_after_the_other(xp, monkeypatch, nbytes, seed):
    """All protocols, lengths and algorithms use the same inboxes; some ranks are late.

    Nothing is remembered: a call that is known keeps the protocol that it had, and only one rank may know it.
    """
    from mpicoll.runtime.paths.mapped import protocols

    comm, draw, mine = connected(nbytes), random.Random(seed), random.Random(RANK)
    calls = [(Call(case, RANK, SIZE, Memory(xp, "mapped")), case) for case in mixture(300, draw)]
    arguments = [call.arguments() for call, _ in calls]
    with mpicoll.override(path="mapped"):
        for (_, case), given in zip(calls, arguments, strict=True):
            monkeypatch.setattr(protocols, "LINES_LIMIT", draw.choice((-1, 1 << 62)))
            comm._get_context().attached["mapped"].kernels.clear()
            comm._get_context().cache.clear()
            if mine.random() < 0.1:
                busy(1)
            getattr(comm, case.method)(*given, algorithm=case.algorithm)
    xp.cuda.Device().synchronize()
    for call, case in calls:
        try:
            call.compare()
        except AssertionError as error:
            raise AssertionError(f"{case}") from error
    comm.Free()
