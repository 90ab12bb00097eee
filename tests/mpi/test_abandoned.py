"""Calls that break their communicator: messages may still come, and must not hit memory that is used again."""

import gc
import weakref
from contextlib import suppress
from inspect import GEN_SUSPENDED, getgeneratorstate

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpicoll.request import Request
from mpicoll.runtime.progress import faults

SIZE = MPI.COMM_WORLD.Get_size()
RANK = MPI.COMM_WORLD.Get_rank()
COUNT = 200
everybody = MPI.COMM_WORLD

pytestmark = pytest.mark.mpi(min_size=2)


def watched():
    made = np.zeros(COUNT)
    return made, weakref.ref(made)


@pytest.fixture
def comm():
    """A communicator that has made its first call, with time limits."""
    with mpicoll.override(timeout=5.0):
        made = mpicoll.Communicator(everybody.Dup())
        made.Barrier()
    yield made
    everybody.Barrier()
    made.Free()


FORMS = {
    "blocking": lambda comm, x: comm.Bcast(x, SIZE - 1),
    "nonblocking": lambda comm, x: comm.Ibcast(x, SIZE - 1).Wait(),
    "several": lambda comm, x: Request.Waitall([comm.Ibarrier(), comm.Ibcast(x, SIZE - 1)]),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_message_of_a_rank_that_comes_too_late_hits_nothing(comm, form):
    """The others have given up, and their arrays are gone for the program; what it makes next stays as it is."""
    if RANK < SIZE - 1:
        x, gone = watched()
        with mpicoll.override(timeout=0.3), pytest.raises(mpicoll.StalledError):
            FORMS[form](comm, x)
        del x
        gc.collect()
        assert gone() is not None
        others = [np.zeros(COUNT) for _ in range(50)]
        everybody.Barrier()
        everybody.Barrier()
        assert not any(other.any() for other in others)
    else:
        everybody.Barrier()
        with mpicoll.override(timeout=0.3):
            late = [comm.Ibarrier()] if form == "several" else []
            late.append(comm.Ibcast(np.full(COUNT, 7.0), SIZE - 1, algorithm="linear"))
            for request in late:
                with suppress(mpicoll.StalledError):
                    request.Wait()
        everybody.Barrier()


def test_memory_of_a_call_that_ends_well_is_given_back(comm):
    x, gone = watched()
    comm.Ibcast(x, SIZE - 1).Wait()
    comm.Bcast(x, SIZE - 1)
    del x
    gc.collect()
    assert gone() is None


class OperatorError(Exception):
    pass


@pytest.mark.parametrize("form", ["Allreduce", "Iallreduce"])
def test_memory_of_a_call_whose_operator_raised_in_its_middle(form):
    """Its messages are on their way in both directions; it may hear first that the operator has raised elsewhere."""

    def failing(a, b):
        raise OperatorError

    comm = mpicoll.Communicator(everybody.Dup())
    comm.Barrier()
    x, gone = watched()
    with pytest.raises((OperatorError, mpicoll.MismatchError)):
        request = getattr(comm, form)(np.ones(COUNT), x, mpicoll.Op(failing, commute=True), algorithm="ring/4")
        request.Wait()
    request = None
    del x
    gc.collect()
    assert (gone() is not None) is bool(comm._context.broken)
    everybody.Barrier()
    comm.Free()


def test_the_words_of_ranks_that_still_speak_when_one_has_refused():
    """The exchange goes on inside MPI: its memory is kept, though the call has raised."""
    with mpicoll.override(errors="agree"):
        comm = mpicoll.Communicator(everybody.Dup())
        comm.Barrier()
        before = len(faults.abandoned)
        if RANK == SIZE - 1:
            comm._context.refusals.post(2, ValueError("lost"), final=True)
        else:
            with pytest.raises(mpicoll.MismatchError, match="ValueError"):
                comm.Iallreduce(np.ones(COUNT), np.zeros(COUNT)).Wait()
            kept = [routine for context, *_, routine, _ in faults.abandoned[before:] if context is comm._context]
            assert [getgeneratorstate(routine) for routine in kept] == [GEN_SUSPENDED]
        everybody.Barrier()
