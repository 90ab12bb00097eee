"""A call that one rank alone cannot make: the others hear why instead of waiting for ever, without any setting."""

import time

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpi.raising import raised
from mpicoll.runtime.progress.turns import advance_all

WORLD = MPI.COMM_WORLD
P, RANK = WORLD.Get_size(), WORLD.Get_rank()
#: cannot make the call
ODD = P - 1

pytestmark = pytest.mark.ranks(2, 3)


@pytest.fixture(autouse=True)
def grace(monkeypatch):
    """Seconds after which those who wait look whether a rank has refused the call."""
    for module in ("traffic", "operations"):
        monkeypatch.setattr(f"mpicoll.runtime.progress.{module}.GRACE", 0.3)
    return 0.3


def one_short():
    return np.zeros(4 - (RANK == ODD))


def blocking(comm, x, y):
    comm.Allreduce(x, y)


def nonblocking(comm, x, y):
    comm.Iallreduce(x, y).Wait()


def persistent(comm, x, y):
    request = comm.Allreduce_init(x, y)
    request.Start()
    request.Wait()


@pytest.mark.parametrize("times", [0, 20], ids=["first", "remembered"])
@pytest.mark.parametrize("call", [blocking, nonblocking, persistent], ids=lambda call: call.__name__)
def test_the_others_raise_what_it_has_raised(comm, call, times):
    x, y = np.ones(4), np.zeros(4)
    comm.Barrier()  # the communicator's first call has all ranks anyway
    for _ in range(times):
        call(comm, x, y)
    error, seconds = raised(lambda: call(comm, x, one_short()))
    kind, text = (
        (ValueError, "allreduce: recvbuf has 3 elements, sendbuf has 4")
        if RANK == ODD
        else (mpicoll.MismatchError, f"rank {ODD} raised ValueError('allreduce: recvbuf has 3 elements")
    )
    assert isinstance(error, kind)
    assert text in str(error)
    assert seconds < 5
    WORLD.Barrier()
    error, seconds = raised(lambda: call(comm, x, y))  # and nobody waits on what cannot be used any more
    assert isinstance(error, mpicoll.MismatchError | mpicoll.StalledError)
    assert seconds < 5


def test_a_call_that_all_ranks_refuse_is_forgotten(comm, grace):
    """The next one has another number, however late a rank comes to it."""
    y = np.zeros(4)
    for _ in range(3):
        with pytest.raises(ValueError, match="recvbuf has 4 elements, sendbuf has 3"):
            comm.Allreduce(np.zeros(3), y)
    if RANK == ODD:
        time.sleep(3 * grace)
    comm.Allreduce(np.ones(4), y)
    request = comm.Iallreduce(np.ones(4), y)
    if RANK == ODD:
        time.sleep(3 * grace)
    request.Wait()
    assert y.tolist() == [P] * 4


def test_a_call_that_no_other_rank_makes_hurts_nobody(comm):
    """A rank may try, and then make the call that the others make."""
    y = np.zeros(4)
    if RANK == ODD:
        with pytest.raises(ValueError, match="recvbuf has 4 elements, sendbuf has 3"):
            comm.Allreduce(np.zeros(3), y)
    for _ in range(5):
        comm.Allreduce(np.ones(4), y)
    assert y.tolist() == [P] * 4


def test_what_a_plan_refuses_on_one_rank_is_heard(comm):
    algorithm = "no_such" if RANK == ODD else None
    error, seconds = raised(lambda: comm.Allreduce(np.ones(4), np.zeros(4), algorithm=algorithm))
    assert "no_such" in str(error)
    assert seconds < 5


def test_an_operator_that_raises_on_one_rank_is_heard(comm):
    def add(a, b):
        if RANK == ODD:
            raise ZeroDivisionError("on the odd rank")
        return a + b

    error, seconds = raised(lambda: comm.Allreduce(np.ones(4), np.zeros(4), mpicoll.Op(add), algorithm="linear"))
    error = error or raised(lambda: comm.Allreduce(np.ones(4), np.zeros(4)))[0]
    if error is not None and RANK != ODD:
        assert "on the odd rank" in str(error)
    assert seconds < 5


def test_a_first_call_that_does_not_block_is_heard_once_the_communicator_is_ready(comm):
    if RANK != ODD:
        error, _ = raised(lambda: comm.Iallreduce(np.ones(4), np.zeros(4)).Wait())
        assert isinstance(error, mpicoll.MismatchError)
        return
    with pytest.raises(ValueError, match="recvbuf has 3 elements, sendbuf has 4"):
        comm.Iallreduce(np.ones(4), np.zeros(3))
    end = time.monotonic() + 1
    while time.monotonic() < end:  # as in any later call of mpicoll that waits
        advance_all()
