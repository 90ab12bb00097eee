"""The first call on a communicator: one that does not block waits for nobody there, either."""

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpi.calling import Call, check
from mpi.cases import HOST, VECTOR, Case
from mpicoll.algorithms import registry
from mpicoll.request import Request
from mpicoll.runtime.context import context

SIZE = MPI.COMM_WORLD.Get_size()
RANK = MPI.COMM_WORLD.Get_rank()
METHODS = [m for row in registry.COLLECTIVES.values() for m in row.methods]
everybody = MPI.COMM_WORLD


def idup(parent):
    comm, request = parent.Idup()
    request.Wait()
    return comm


MAKERS = {
    "wrapped": lambda parent: mpicoll.Communicator(MPI.Intracomm(parent).Dup()),
    "Dup": lambda parent: parent.Dup(),
    "Split": lambda parent: parent.Split(0, -RANK),
    "Idup": idup,
}


class Started:
    """A nonblocking call of any collective."""

    def __init__(self, comm, method, number=0):
        pattern = "uneven" if method in VECTOR else ""
        case = Case(method, None, 700, pattern, dtype="float64", root=number)
        self.call = None if method == "Barrier" else Call(case, comm.rank, comm.size, HOST)
        self.request = getattr(comm, f"I{method.lower()}")(*(self.call.arguments() if self.call else ()))

    def finish(self):
        assert self.request.Wait() is True
        if self.call:
            self.call.compare()


@pytest.mark.parametrize("how", MAKERS)
@pytest.mark.parametrize("method", METHODS)
def test_it_may_be_started_before_the_others_come(world, method, how):
    """Ranks start it one after the other, a message of plain MPI between them."""
    comm = MAKERS[how](world)
    token = np.zeros(1)
    if RANK:
        everybody.Recv(token, RANK - 1, 4)
    started = Started(comm, method, 1)
    if RANK + 1 < SIZE:
        everybody.Send(token, RANK + 1, 4)
    started.finish()
    Started(comm, method).finish()
    comm.Free()


@pytest.mark.parametrize("settings", [{}, {"debug": 1}, {"errors": "agree"}, {"timeout": 60.0}])
def test_many_may_be_started_before_the_others_come(world, settings):
    """All collectives at once, of each form of asking."""
    with mpicoll.override(**settings):
        comm = world.Dup()
        last = RANK == SIZE - 1
        started = [] if last else [Started(comm, method, number) for number, method in enumerate(METHODS)]
        everybody.Barrier()
        if last:
            started = [Started(comm, method, number) for number, method in enumerate(METHODS)]
        for one in started[:: -1 if RANK % 2 else 1]:
            one.finish()
        comm.Free()


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("order", [1, -1])
def test_communicators_that_overlap_like_the_links_of_a_ring(world, order):
    """Each rank shares one with each neighbour; no order of first calls, of waiting or of testing hangs."""
    links = []
    for low in range(SIZE):  # made in one order everywhere
        members = {low, (low + 1) % SIZE}
        made = world.Split(0 if RANK in members else MPI.UNDEFINED, RANK)
        if made != MPI.COMM_NULL:
            links.append((made, sum(members)))
    results = [np.zeros(5000) for _ in links]
    turns = range(len(links))[:: order if RANK % 2 else -order]
    requests = [links[k][0].Iallreduce(np.full(5000, float(RANK)), results[k]) for k in turns]
    for request in requests[::-1]:
        request.Wait()
    for (comm, total), y in zip(links, results, strict=True):
        assert (y == total).all()
        comm.Free()


def test_an_exchange_whose_end_is_a_barrier_that_is_tested():
    """The sparse exchange: send, receive what comes, and start a barrier once one's own have arrived."""
    comm = mpicoll.Communicator(everybody.Dup())
    right, got = (RANK + 1) % SIZE, []
    sent = comm.issend(RANK, right, 3)
    barrier = None
    while barrier is None or not barrier.Test():
        if comm.iprobe(tag=3):
            got.append(comm.recv(tag=3))
        if barrier is None and sent.Test():
            barrier = comm.Ibarrier()
    assert got == [(RANK - 1) % SIZE]
    comm.Free()


def test_a_wrapper_alone_sends_nothing(world):
    """Nor do those that are made by a method: what is private is made by the first call."""
    before = len(context.live)
    comm = world.Dup()
    wrappers = [mpicoll.Communicator(comm) for _ in range(3)]
    assert len(context.live) == before
    if RANK == 0:
        wrappers.append(mpicoll.Communicator(comm, algorithms="allreduce:ring"))
    everybody.Barrier()
    check(wrappers[0], Case("Allreduce"))
    comm.Free()


def test_its_plan_can_be_asked_for_before_it_is_complete():
    comm = mpicoll.Communicator(everybody.Dup())
    y = np.zeros(4)
    request = comm.Iallreduce(np.ones(4), y, algorithm="linear/2")
    assert request.plan.algorithm == "linear"
    assert request.plan.segments == 2
    Request.Waitall([request])
    assert y.tolist() == [SIZE] * 4
    comm.Free()


@pytest.mark.mpi(min_size=2)
def test_a_mistake_in_it_is_this_ranks_alone(world):
    """It is raised at the call; the next call is the first one."""
    comm = world.Dup()
    if RANK == 0:
        with pytest.raises(ValueError, match=r"^allreduce: recvbuf has 5 elements, sendbuf has 4$"):
            comm.Iallreduce(np.ones(4), np.zeros(5))
    check(comm, Case("Allreduce"))
    comm.Free()


@pytest.mark.mpi(min_size=2)
def test_a_communicator_is_made_while_a_call_is_in_flight():
    """One rank waits for the call before it makes the communicator, the others afterwards: all need each other."""
    comm = mpicoll.Communicator(MPI.COMM_WORLD.Dup())
    y = np.zeros(40)
    request = comm.Iallreduce(np.ones(40), y, algorithm="ring/2")
    if comm.rank:
        request.Wait()
    made = [comm.Dup(), comm.Split(0, comm.rank)]
    request.Wait()
    assert (y == comm.size).all()
    for one in (*made, comm):
        one.Free()
