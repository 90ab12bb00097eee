"""The desk of a rank names only calls that are made: its thread may look between any two lines."""

import sys
import time

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpicoll.recorder.history import CallRecord
from mpicoll.runtime.context.contexts import context_of
from mpicoll.runtime.progress.watch import call_made

#: calls after which each place among those made last has a remembered one
ROUND = 1024 + 8


@pytest.fixture
def comm():
    """A communicator whose first call has been made."""
    made = mpicoll.Communicator(MPI.COMM_SELF.Dup())
    made.Barrier()
    yield made
    made.Free()


def told(context):
    """Return what the desk would name as the latest call."""
    records = [CallRecord.from_row(row, 0.0) for row in context.recorder.told(time.monotonic())]
    return {call_made(records, context.calls, context.calls)} - {""}


def told_meanwhile(comm, call):
    """Return what the desk would name as made, asked between any two lines of a call."""
    context = context_of(comm, "")
    first, found = context.calls, set()

    def look(_frame, event, _value):
        if event == "line" and context.calls > first:
            sys.settrace(None)
            found.update(told(context))
            sys.settrace(look)
        return look

    sys.settrace(look)
    try:
        call()
    finally:
        sys.settrace(None)
    return found


def test_a_refused_call_is_not_taken_for_the_next_one(comm):
    """Rank 2 took another rank's refused reduce for its allreduce, and broke the communicator."""
    x, y = np.ones(3), np.zeros(3)
    with pytest.raises(ValueError, match="is not of the form"):
        comm.Reduce(x, y, algorithm="ring/x")
    assert told_meanwhile(comm, lambda: comm.Allreduce(x, y)) == {"allreduce"}


@pytest.mark.parametrize("before", [None, "Allreduce", "Iallreduce"], ids=["a new one", "made before", "begun before"])
@pytest.mark.parametrize("method", ["Allreduce", "Iallreduce", "Allreduce_init"])
def test_a_call_that_raises_while_it_is_bound_is_never_told(comm, monkeypatch, method, before):
    """The other ranks must not take it for made; an equal call may have been."""

    def bind(*_):
        raise MemoryError("no memory for scratch")

    x, y = np.ones(3), np.zeros(3)
    if before:
        made = getattr(comm, before)(x, y)
        assert made is None or made.Wait()
        context_of(comm, "").cache.drop_programs(lambda plan: True)
    monkeypatch.setattr("mpicoll.runtime.call.execute.bind", bind)
    monkeypatch.setattr("mpicoll.runtime.call.execute.bind_new", bind)

    def call():
        with pytest.raises(MemoryError):
            getattr(comm, method)(x, y)

    assert told_meanwhile(comm, call) == set()


@pytest.mark.parametrize("times", [1, 8], ids=["found by its key", "found by the shortcut"])
def test_a_call_is_not_taken_for_one_whose_place_it_takes(comm, times):
    """It was an allreduce, 1,024 calls ago."""
    x, y, z = np.ones(3), np.zeros(3), np.zeros(3)
    for _ in range(times):
        comm.Bcast(z)
        comm.Scan(x, z)
    for _ in range(ROUND):
        comm.Allreduce(x, y)
    assert told_meanwhile(comm, lambda: comm.Scan(x, z)) == {"scan"}


def test_a_nonblocking_call_is_not_taken_for_one_whose_place_it_takes(comm):
    """The same, where nothing blocks."""
    x, y, z = np.ones(3), np.zeros(3), np.zeros(3)
    for _ in range(3):
        comm.Iscan(x, z).Wait()
    for _ in range(ROUND):
        comm.Allreduce(x, y)
    assert told_meanwhile(comm, lambda: comm.Iscan(x, z).Wait()) == {"scan"}


def test_a_call_that_has_begun_and_cannot_be_bound_is_told(comm, monkeypatch):
    """It was made before, so that nothing was left to decide; the other ranks would wait for its messages for ever."""
    x, y, ready, told = np.ones(3), np.zeros(3), [], []
    comm.Iallreduce(x, y).Wait()
    context = context_of(comm, "")
    context.cache.drop_programs(lambda plan: True)

    def bind(*_):
        yield lambda: bool(ready)
        raise MemoryError("no memory for scratch")

    def lost(self, number, error):
        told.append((number - self.calls, str(error)))

    monkeypatch.setattr("mpicoll.runtime.call.flight.Flight.bind", bind)
    monkeypatch.setattr(type(context), "lost", lost)
    request = comm.Iallreduce(x, y)
    assert not told
    ready.append(True)
    with pytest.raises(MemoryError):
        request.Wait()
    assert told == [(0, "no memory for scratch")]
