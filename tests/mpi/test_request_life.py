"""The life of requests: beyond their communicator's, and after they have failed."""

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpi.calling import check
from mpi.cases import Case

WORLD = MPI.COMM_WORLD
SIZE, RANK = WORLD.Get_size(), WORLD.Get_rank()
#: elements: in messages that are sent at once, and in such that are not
COUNTS = (10, 100_000)


@pytest.fixture
def comm():
    """A communicator that was used; the tests free it."""
    made = mpicoll.Communicator(WORLD.Dup())
    made.Barrier()
    return made


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("end", ["Free", "Disconnect"])
def test_a_call_in_flight_outlives_its_communicator(comm, count, end):
    """MPI: what has begun completes normally; several calls, one of them persistent."""
    x, out, sent, kept = np.ones(count), np.zeros(count), np.full(count, RANK), np.zeros(count)
    persistent = comm.Allreduce_init(x, kept)
    persistent.Start()
    requests = [comm.Iallreduce(x, out), comm.Ibcast(sent, root=SIZE - 1), persistent]
    getattr(comm, end)()
    assert comm == MPI.COMM_NULL
    for request in requests:
        request.Wait()
    assert (out == SIZE).all()
    assert (sent == SIZE - 1).all()
    assert (kept == SIZE).all()
    persistent.Free()


def test_a_communicator_that_is_freed_right_after_its_first_call():
    """Which may still be exchanging what ranks must know of each other."""
    comm, y = mpicoll.Communicator(WORLD.Dup()), np.zeros(3)
    request = comm.Iallreduce(np.ones(3), y)
    comm.Free()
    request.Wait()
    assert (y == SIZE).all()


def test_a_call_in_flight_outlives_the_handle_of_mpi4py_that_it_shares():
    """Which is freed without a word to mpicoll's communicator."""
    handle, y = WORLD.Dup(), np.zeros(3)
    comm = mpicoll.Communicator(handle)
    comm.Barrier()
    request = comm.Iallreduce(np.ones(3), y)
    handle.Free()
    request.Wait()
    assert (y == SIZE).all()
    with pytest.raises(RuntimeError, match="the communicator was freed"):
        comm.Barrier()


@pytest.mark.parametrize("end", ["Free", "Disconnect"])
def test_a_persistent_request_of_a_freed_communicator(comm, end):
    """It says so when it is started, and may be freed."""
    y = np.zeros(3)
    request = comm.Allreduce_init(np.ones(3), y)
    request.Start()
    request.Wait()
    getattr(comm, end)()
    with pytest.raises(RuntimeError, match="the communicator was freed"):
        request.Start()
    assert request.Test()
    request.Free()
    with pytest.raises(RuntimeError, match="the persistent request was freed"):
        request.Start()


@pytest.mark.mpi(min_size=2)
def test_a_failed_request_never_looks_complete(comm):
    """A message of the last rank is longer than the others expect: they hear of it as often as they ask."""
    count = 6 if RANK == SIZE - 1 else 4
    request = comm.Iallreduce(np.ones(count), np.zeros(count), algorithm="one_shot/1")
    for _ in range(2):
        if RANK == SIZE - 1:
            request.Wait()
            continue
        for ask in (request.Wait, request.Test):
            with pytest.raises(mpicoll.MismatchError, match="which came longer than expected; MPICOLL_DEBUG=1"):
                ask()
            assert request
    check(comm, Case("Allreduce"))
    comm.Free()
