"""Calls that do not block, where ranks compare them or share their errors: who raises what, and when."""

import re

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpi.calling import check
from mpi.cases import Case
from mpicoll.request import Request
from mpicoll.runtime.progress import turns

SIZE = MPI.COMM_WORLD.Get_size()
RANK = MPI.COMM_WORLD.Get_rank()
#: the rank that does something else
ODD = SIZE - 1
everybody = MPI.COMM_WORLD
SETTINGS = {"debug": {"debug": 1}, "errors": {"errors": "agree"}, "both": {"debug": 1, "errors": "agree"}}

pytestmark = pytest.mark.mpi(min_size=2)


@pytest.fixture(params=SETTINGS)
def comm(request):
    """A communicator that has done nothing yet, whose ranks ask each other."""
    with mpicoll.override(**SETTINGS[request.param]):
        made = mpicoll.Communicator(everybody.Dup())
        yield made
        made.Free()


def zeros(count=4):
    return np.zeros(count)


#: what is wrong -> (the call, what it raises on its own rank)
MISTAKES = {
    "count": (lambda c: c.Iallreduce(zeros(), zeros(5)), ValueError),
    "root": (lambda c: c.Ibcast(zeros(), SIZE), ValueError),
    "type": (lambda c: c.Iallreduce(zeros(), np.zeros(4, "f4")), TypeError),
    "object": (lambda c: c.Iallreduce(object(), zeros()), TypeError),
    "algorithm": (lambda c: c.Iallreduce(zeros(), zeros(), algorithm="none"), ValueError),
    "no name": (lambda c: c.Iallreduce(zeros(), zeros(), algorithm=[]), TypeError),
    "stream": (lambda c: c.Iallreduce(zeros(), zeros(), stream=[]), ValueError),
    "operator": (lambda c: c.Iallreduce(zeros(), zeros(), MPI.REPLACE), mpicoll.UnsupportedError),
    "counts": (lambda c: c.Iallgatherv(zeros(), [zeros(4), [4] * (SIZE + 1)]), ValueError),
    "no counts": (lambda c: c.Ireduce_scatter(zeros(), "text"), (TypeError, ValueError)),
}


def told(request):
    """Return what a request raises."""
    with pytest.raises(mpicoll.MismatchError) as caught:
        request.Wait()
    with pytest.raises(mpicoll.MismatchError, match=re.escape(str(caught.value))):
        request.Test()
    return str(caught.value)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_one_ranks_mistake_is_raised_by_its_call_and_by_the_others_waits(comm, mistake, first):
    """Also where the rank then waits in a call of plain MPI; at first it must go on with calls of mpicoll."""
    call, kind = MISTAKES[mistake]
    if not first:
        check(comm, Case("Allreduce"))
    if RANK == ODD:
        with pytest.raises(kind) as caught:
            request = call(comm)
            assert mistake == "algorithm", "only what planning finds is told by Wait"
            request.Wait()
        if not first:
            everybody.Barrier()
        assert not isinstance(caught.value, mpicoll.MismatchError)
    else:
        text = told(comm.Iallreduce(zeros(), zeros()) if mistake != "no counts" else comm.Ibarrier())
        if not first:
            everybody.Barrier()
        assert f"rank {ODD} raised" in text
    check(comm, Case("Allreduce"))
    assert not turns.in_flight


def at_once(comm, mine, enough=None):
    """Stand for an exchange whose words are all there when the call starts."""
    found = comm.allgather(mine)
    yield lambda: True
    return found


def test_a_call_that_starts_says_nothing_of_the_others(monkeypatch, comm):
    """Their words may be there already; they are told by Wait all the same."""
    check(comm, Case("Allreduce"))
    monkeypatch.setattr("mpicoll.runtime.call.decision.exchanged", at_once)
    if RANK == ODD:
        with pytest.raises(ValueError, match="recvbuf has 5 elements"):
            comm.Iallreduce(zeros(), zeros(5))
    else:
        request = comm.Iallreduce(zeros(), zeros())
        assert f"rank {ODD} raised ValueError" in told(request)


def test_a_blocking_call_of_the_others_hears_of_it_too(comm):
    """One rank starts wrongly what the others do at once; and the other way round."""
    for wrong in ("Iallreduce", "Allreduce"):
        if RANK == ODD:
            with pytest.raises(ValueError, match="recvbuf has 5 elements"):
                getattr(comm, wrong)(zeros(), zeros(5))
        elif wrong == "Iallreduce":
            with pytest.raises(mpicoll.MismatchError, match=f"rank {ODD} raised ValueError"):
                comm.Allreduce(zeros(), zeros())
        else:
            assert f"rank {ODD} raised ValueError" in told(comm.Iallreduce(zeros(), zeros()))
    check(comm, Case("Allreduce"))


def test_calls_before_and_behind_the_wrong_one_are_served(comm):
    results = [zeros() for _ in range(9)]
    requests = []
    for number, y in enumerate(results):
        if number == 4 and RANK == ODD:
            with pytest.raises(ValueError, match="recvbuf has 5 elements"):
                comm.Iallreduce(zeros(), zeros(5))
            requests.append(None)
        else:
            requests.append(comm.Iallreduce(np.full(4, number + 1.0), y))
    for number in range(9)[:: -1 if RANK % 2 else 1]:
        if number == 4:
            assert RANK == ODD or f"rank {ODD} raised ValueError" in told(requests[4])
        else:
            requests[number].Wait()
            assert (results[number] == SIZE * (number + 1)).all()


def test_all_ranks_raise_their_own_mistake(comm):
    with pytest.raises(ValueError, match="recvbuf has 5 elements"):
        comm.Iallreduce(zeros(), zeros(5))
    check(comm, Case("Allreduce"))
    assert not turns.in_flight


DIFFERENT = {
    "count": (lambda c: c.Iallreduce(zeros(4), zeros(4)), lambda c: c.Iallreduce(zeros(5), zeros(5))),
    "collective": (lambda c: c.Iscan(zeros(), zeros()), lambda c: c.Iexscan(zeros(), zeros())),
    "barrier": (lambda c: c.Ibarrier(), lambda c: c.Ibcast(zeros())),
}


@pytest.mark.parametrize("differs", DIFFERENT)
def test_calls_that_differ_are_told_on_all_ranks_by_wait(differs):
    usual, odd = DIFFERENT[differs]
    with mpicoll.override(debug=1):
        comm = mpicoll.Communicator(everybody.Dup())
        for _ in range(2):
            text = told((odd if RANK == ODD else usual)(comm))
            assert f"ranks unlike rank 0: [{ODD}]" in text
            assert len(set(everybody.allgather(text))) == 1
            check(comm, Case("Allreduce"))
        comm.Free()


def test_calls_in_two_forms_are_no_mistake(comm):
    for turn in range(4):
        y = zeros()
        if (RANK + turn) % 2:
            comm.Allreduce(np.ones(4), y)
        else:
            comm.Iallreduce(np.ones(4), y).Wait()
        assert (y == SIZE).all()


def test_many_in_flight(comm):
    results = [zeros(3000) for _ in range(15)]
    requests = [comm.Iallreduce(np.full(3000, k + 1.0), y, algorithm="ring/2") for k, y in enumerate(results)]
    Request.Waitall(requests[::-1])
    assert all((y == SIZE * (k + 1)).all() for k, y in enumerate(results))


class OperatorError(Exception):
    pass


def test_what_an_operator_raises_on_one_rank_all_hear_of():
    """Ranks that wait raise, whatever they wait for; the one whose operator it was then waits in plain MPI."""

    def fails_here(a, b):
        if RANK == ODD:
            raise OperatorError("no such sum")
        return a + b

    with mpicoll.override(errors="agree"):
        for form in ("Iallreduce", "Allreduce"):
            comm = mpicoll.Communicator(everybody.Dup())

            def call():
                request = getattr(comm, form)(  # noqa: B023
                    np.ones(4 * SIZE), zeros(4 * SIZE), mpicoll.Op(fails_here, commute=True), algorithm="ring/1"
                )
                if request is not None:
                    request.Wait()

            with pytest.raises(OperatorError if RANK == ODD else mpicoll.MismatchError) as caught:
                call()
            assert RANK == ODD or f"rank {ODD} raised OperatorError('no such sum')" in str(caught.value)
            everybody.Barrier()
            assert not turns.in_flight
            comm.Free()
