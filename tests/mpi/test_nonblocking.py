"""The nonblocking collectives: what they give, and in which order they may end."""

import time

import numpy as np
import pytest
from mpi4py import MPI

import data
import mpicoll
from mpi.begun import COUNTS, ENDS, METHODS, Ended, begin, late, mixed, wait
from mpi.calling import check
from mpi.cases import HOST, REDUCING, ROOTED, VECTOR, Case, forms
from mpicoll.request import Request

SIZE = MPI.COMM_WORLD.Get_size()
#: calls in flight, several times as many as may be on their way
MANY = 20


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
        for last in {0, SIZE - 1}:
            comm = comms["reversed"]
            if comm.rank == last:
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
