"""Ranks make one call in different forms: blocking, nonblocking, both on their way at the same time.

MPI keeps the two forms apart; mpicoll lets them match, so that a rank may wait at once for what
another one only starts.
"""

import numpy as np
import pytest
from mpi4py import MPI

from mpi.calling import Call
from mpi.cases import HOST, VECTOR, Case
from mpicoll.algorithms import registry
from mpicoll.request import Request
from mpicoll.runtime.context.context import NONBLOCKING
from mpicoll.runtime.progress import turns

SIZE = MPI.COMM_WORLD.Get_size()
RANK = MPI.COMM_WORLD.Get_rank()
METHODS = [m for row in registry.COLLECTIVES.values() for m in row.methods]
#: elements: one message that MPI sends at once, and one for which it waits for the receiver
COUNTS = (5, 9_000)
#: turns in which another part of the ranks blocks
TURNS = 4


class Started:
    """A call of a communicator; a blocking one is complete at once."""

    def __init__(self, comm, method, blocks, number=0, count=5):
        pattern = "uneven" if method in VECTOR else ""
        case = Case(method, None, count, pattern, dtype="float64", root=number)
        self.call = None if method == "Barrier" else Call(case, comm.rank, comm.size, HOST)
        form = method if blocks else f"I{method.lower()}"
        self.request = getattr(comm, form)(*(self.call.arguments() if self.call else ()))

    def finish(self):
        if self.request is not None:
            assert self.request.Wait() is True
        if self.call:
            self.call.compare()


@pytest.mark.parametrize("method", METHODS)
def test_blocking_and_nonblocking_calls_match(world, method):
    """In every turn other ranks block; the root is one that does, and one that does not."""
    for turn in range(TURNS):
        for count in COUNTS:
            Started(world, method, (RANK + turn) % 2 == 0, turn // 2, count).finish()
            Started(world, method, turn % SIZE == RANK, turn, count).finish()


@pytest.mark.parametrize("method", METHODS)
def test_the_first_call_on_a_communicator_in_both_forms(comm, method):
    Started(comm, method, RANK % 2 == 0).finish()
    Started(comm, method, RANK % 2 == 1, 1).finish()


#: order of waiting, by rank
ORDERS = {
    "as started": lambda numbers: numbers,
    "backwards": lambda numbers: numbers[::-1],
    "each rank its own": lambda numbers: np.random.default_rng(RANK).permutation(numbers),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("blocking", [1, 3, 7])
def test_several_in_flight_behind_and_before_blocking_ones(world, order, blocking):
    """Every so many calls a rank blocks, each rank at others; more are on their way than there are slots."""
    most = 3 * NONBLOCKING + 2
    started = []
    for number in range(most):
        method, count = METHODS[(5 * number + blocking) % len(METHODS)], COUNTS[number % 2]
        blocks = (number + RANK) % (blocking + 1) == blocking
        started.append(Started(world, method, blocks, number, count))
    for number in ORDERS[order](range(most)):
        started[number].finish()
    assert not turns.in_flight


def test_more_in_flight_than_slots_and_one_that_blocks_behind_them(comm):
    """Some ranks start them all and block in the last; the others block in each."""
    results = [np.zeros(COUNTS[k % 2]) for k in range(4 * NONBLOCKING)]
    requests = []
    for number, y in enumerate(results):
        x = np.full(len(y), number + 1.0)
        if RANK % 2:
            comm.Allreduce(x, y)
        else:
            requests.append(comm.Iallreduce(x, y))
    last = np.zeros(3)
    comm.Allreduce(np.ones(3), last)
    Request.Waitall(requests)
    assert (last == SIZE).all()
    assert all((y == SIZE * (number + 1)).all() for number, y in enumerate(results))


def test_two_communicators_in_other_forms(world, comm):
    """What blocks on one lets the calls of the other go on."""
    x, y, z = np.full(COUNTS[1], RANK + 1.0), np.zeros(COUNTS[1]), np.zeros(COUNTS[1])
    for turn in range(TURNS):
        y[:] = z[:] = 0
        pair = (world, comm) if turn % 2 else (comm, world)
        request = pair[0].Iallreduce(x, y) if RANK % 2 else None
        if request is None:
            pair[0].Allreduce(x, y)
        pair[1].Allreduce(x, z)
        if request:
            request.Wait()
        assert (y == SIZE * (SIZE + 1) / 2).all()
        assert (z == y).all()


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("turns", ["Test", "Testany", "Testall"])
def test_testing_one_call_advances_all(comm, turns):
    """Rank 0 tests a call that the others only start when another one has passed on through rank 0."""
    other = comm.Dup()
    x, y, z = np.ones(COUNTS[1]), np.zeros(COUNTS[1]), np.zeros(COUNTS[1])
    tested = {"Test": Request.Test, "Testany": lambda r: Request.Testany([r])[1], "Testall": lambda r: r.Testall([r])}
    passed = comm.Iallreduce(x, y, algorithm="ring/3")
    if RANK == 0:
        late = other.Iallreduce(x, z)
        while not tested[turns](late):
            pass
    else:
        passed.Wait()
        late = other.Iallreduce(x, z)
    late.Wait()
    passed.Wait()
    assert (y == SIZE).all()
    assert (z == SIZE).all()
    other.Free()
