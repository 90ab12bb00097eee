"""Requests and communicators that end before, while or after calls are on their way."""

import copy
import pickle

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpi.calling import check
from mpi.cases import Case
from mpicoll.algorithms import registry
from mpicoll.request import Request
from mpicoll.runtime.progress import turns

SIZE = MPI.COMM_WORLD.Get_size()
RANK = MPI.COMM_WORLD.Get_rank()
METHODS = [m for row in registry.COLLECTIVES.values() for m in row.methods]
#: elements: one message that MPI sends at once, and one for which it waits for the receiver
COUNTS = (5, 40_000)
RULES = "allreduce:binomial"
everybody = MPI.COMM_WORLD
several = pytest.mark.mpi(min_size=2)


def ended(comm, how):
    """Free or disconnect a communicator."""
    getattr(comm, how)()
    assert comm == MPI.COMM_NULL


@pytest.mark.parametrize("how", ["Free", "Disconnect"])
@pytest.mark.parametrize("count", COUNTS)
def test_a_communicator_that_is_freed_with_calls_in_flight(how, count):
    """The calls are completed first, also where ranks started or tested them at other times."""
    comm = mpicoll.Communicator(everybody.Dup())
    x = np.full(count, RANK + 1.0)
    sums, copies = [np.zeros(count) for _ in range(9)], np.full(count, float(RANK))
    requests = [comm.Iallreduce(x, y, algorithm="ring/2") for y in sums]
    requests.append(comm.Ibcast(copies, SIZE - 1))
    if RANK % 2:
        requests[3].Test()
    ended(comm, how)
    assert Request.Waitall(requests) is True
    assert all((y == SIZE * (SIZE + 1) / 2).all() for y in sums)
    assert (copies == SIZE - 1).all()
    assert not turns.in_flight


@pytest.mark.parametrize("how", ["Free", "Disconnect"])
def test_a_communicator_whose_first_call_is_in_flight(how):
    comm, y = mpicoll.Communicator(everybody.Dup()), np.zeros(COUNTS[1])
    request = comm.Iallreduce(np.ones(COUNTS[1]), y)
    ended(comm, how)
    request.Wait()
    assert (y == SIZE).all()


@pytest.mark.parametrize("how", ["Free", "Disconnect"])
@pytest.mark.parametrize("started", [False, True])
def test_a_persistent_request_of_a_communicator_that_was_freed(how, started):
    """A start that was made is completed; another one says that it comes too late."""
    comm = mpicoll.Communicator(everybody.Dup())
    y = np.zeros(COUNTS[1])
    request = comm.Allreduce_init(np.ones(COUNTS[1]), y, algorithm="ring/2")
    if started:
        request.Start()
    ended(comm, how)
    assert request.Wait() is True
    assert (y == SIZE).all() or not started
    with pytest.raises(RuntimeError, match=r"^the communicator was freed: no call can be made on it any more$"):
        request.Start()
    assert not request
    request.Free()
    with pytest.raises(RuntimeError, match="persistent request was freed"):
        request.Start()


@pytest.mark.parametrize("method", METHODS)
def test_a_persistent_request_that_is_freed_while_it_is_active(world, method):
    call = {"Barrier": (), "Bcast": (np.ones(4),)}.get(method)
    if call is None:
        sent = np.ones(4 * SIZE if method.startswith(("Scatter", "Alltoall", "Reduce_")) else 4)
        received = np.zeros(4 * SIZE if method.startswith(("Gather", "Allgather", "Alltoall")) else 4)
        counts = [4] * SIZE
        vector = {"Gatherv": (sent, [received, counts]), "Scatterv": ([sent, counts], received)}
        vector |= {"Allgatherv": (sent, [received, counts]), "Alltoallv": ([sent, counts], [received, counts])}
        call = vector.get(method, (sent, received, counts) if method == "Reduce_scatter" else (sent, received))
    request = getattr(world, f"{method}_init")(*call)
    request.Start()
    request.Free()
    with pytest.raises(RuntimeError, match=rf"^{method.lower()}: the persistent request was freed$"):
        request.Start()
    request.Free()
    assert request.Test()
    assert not turns.in_flight


def test_a_nonblocking_request_that_is_freed_goes_on(world):
    """As MPI's: the call completes, the request is null at once."""
    y = np.zeros(COUNTS[1])
    request = world.Iallreduce(np.ones(COUNTS[1]), y)
    request.Free()
    assert not request
    assert request.Test()
    assert request.Wait() is True
    world.Barrier()
    turns.wait_for(lambda: not turns.in_flight)
    everybody.Barrier()
    assert (y == SIZE).all()


class OperatorError(Exception):
    pass


def failing(a, b):
    raise OperatorError("no such sum")


FAILING = mpicoll.Op(failing, commute=True)
#: what a failed request is asked by
ASKED = {
    "Wait": Request.Wait,
    "wait": Request.wait,
    "Test": Request.Test,
    "test": Request.test,
    "Waitall": lambda request: Request.Waitall([request]),
    "Waitany": lambda request: Request.Waitany([request]),
    "Testall": lambda request: Request.Testall([request]),
    "Testany": lambda request: Request.Testany([request]),
}


@several
@pytest.mark.parametrize("form", ["Iallreduce", "Allreduce_init"])
def test_a_failed_request_raises_whenever_it_is_asked(form):
    comm = mpicoll.Communicator(everybody.Dup())
    request = getattr(comm, form)(np.ones(5), np.zeros(5), FAILING, algorithm="one_shot")
    if form.endswith("_init"):
        request.Start()
    with pytest.raises(OperatorError):
        request.Wait()
    for _ in range(2):
        for ask in ASKED.values():
            with pytest.raises(OperatorError, match=r"^no such sum$"):
                ask(request)
    assert request, "a call that has failed is not complete"
    assert not turns.in_flight
    everybody.Barrier()


@several
def test_others_complete_when_one_has_failed():
    """On another communicator, in the same list."""
    comms = [mpicoll.Communicator(everybody.Dup()) for _ in range(2)]
    y = np.zeros(COUNTS[1])
    failed = comms[0].Iallreduce(np.ones(5), np.zeros(5), FAILING, algorithm="one_shot")
    right = comms[1].Iallreduce(np.ones(COUNTS[1]), y)
    with pytest.raises(OperatorError):
        Request.Waitall([right, failed])
    right.Wait()
    assert (y == SIZE).all()
    with pytest.raises(OperatorError):
        failed.Wait()
    everybody.Barrier()


def dup_with_info(comm):
    info = MPI.Info.Create({"mpicoll_hint": "none"})
    made = comm.Dup_with_info(info)
    info.Free()
    return made


def idup(comm):
    made, request = comm.Idup()
    request.Wait()
    return made


def idup_with_info(comm):
    info = MPI.Info.Create({"mpicoll_hint": "none"})
    made, request = comm.Idup_with_info(info)
    request.Wait()
    info.Free()
    return made


#: ways to another communicator
MADE = {
    "Dup": lambda comm: comm.Dup(),
    "Dup with info": lambda comm: comm.Dup(MPI.INFO_NULL),
    "Dup_with_info": dup_with_info,
    "Idup": idup,
    "Idup_with_info": idup_with_info,
    "Clone": lambda comm: comm.Clone(),
    "Split": lambda comm: comm.Split(0, -RANK),
}
#: ways to another object for the same communicator
COPIED = {
    "copy": copy.copy,
    "wrapped again": mpicoll.Communicator,
    "copied twice": lambda comm: copy.copy(copy.copy(comm)),
}


def is_ruled(comm):
    """Tell whether a communicator has its rules, and works."""
    x, y = np.ones(3), np.zeros(3)
    plan = comm.Get_plan("Allreduce", x, y)
    comm.Allreduce(x, y)
    comm.Iallreduce(x, y).Wait()
    check(comm, Case("Allreduce"))
    return plan.algorithm == "binomial" and (y == comm.size).all()


@pytest.mark.parametrize("how", {**MADE, **COPIED})
def test_what_is_made_of_a_communicator_has_its_rules_and_type(how):
    parent = mpicoll.Communicator(everybody.Dup(), algorithms=RULES)
    made = {**MADE, **COPIED}[how](parent)
    assert type(made) is mpicoll.Communicator
    assert is_ruled(made)
    if how in MADE:
        again = copy.copy(made)
        assert is_ruled(again)
        made.Free()
    else:
        assert made == parent
        assert made._get_context() is parent._get_context()
    assert is_ruled(parent)
    parent.Free()


@pytest.mark.parametrize("comm", [MPI.COMM_WORLD, MPI.COMM_SELF])
def test_a_pickled_communicator_has_its_rules(comm):
    """MPI's own can be pickled, since every process has them."""
    ruled = mpicoll.Communicator(comm, algorithms=RULES)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(ruled, protocol))
        assert type(again) is mpicoll.Communicator
        assert again == comm
        assert is_ruled(again)


def test_a_communicator_that_cannot_be_pickled_says_so():
    """As with mpi4py: other processes do not know it."""
    made = mpicoll.Communicator(everybody.Dup())
    for again in (pickle.dumps, copy.deepcopy):
        with pytest.raises(ValueError, match="cannot serialize"):
            again(made)
    made.Free()


@pytest.mark.parametrize("look", ["Waitany", "Testany"])
def test_an_idle_persistent_request_of_mpi4py_is_never_the_next_one(world, look):
    """Before its first start, and after it was complete; among ours, before and behind them."""
    right, left = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    got, y = np.zeros(1), np.zeros(COUNTS[1])
    idle, receive = world.Recv_init(np.zeros(1), left, 98), world.Recv_init(got, left, 99)
    send = world.Send_init(np.full(1, float(RANK)), right, 99)

    def found(requests):
        if look == "Waitany":
            return Request.Waitany(requests)
        while True:
            index, done = Request.Testany(requests)
            if done:
                return index

    assert found([idle, receive]) == MPI.UNDEFINED
    ours = world.Iallreduce(np.ones(COUNTS[1]), y)
    assert found([idle, ours, receive]) == 1
    assert found([idle, ours, receive]) == MPI.UNDEFINED
    receive.Start()
    send.Start()
    ours = world.Ibarrier()
    assert sorted(found([idle, ours, receive]) for _ in range(2)) == [1, 2]
    assert found([idle, ours, receive]) == MPI.UNDEFINED
    assert got[0] == left
    send.Wait()
    for request in (idle, receive, send):
        request.Free()
