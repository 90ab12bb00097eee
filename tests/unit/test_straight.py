"""Programs without a routine around them: that of a blocking call with a time limit, and of a remembered request."""

import gc
import warnings
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpicoll.runtime.program.bound import LAUNCH, START, WAIT, Bound
from mpicoll.runtime.progress import running, turns
from mpicoll.runtime.progress.operations import Operation
from mpicoll.runtime.progress.running import run
from mpicoll.runtime.progress.straight import Straight, goes_straight


@pytest.fixture
def comm():
    made = mpicoll.Communicator(MPI.COMM_SELF.Dup())
    made.Barrier()
    yield made
    turns.in_flight.clear()
    made._context.broken = ""
    made.Free()


class Program:
    """A program of a start, a wait that ends when it is told to, and a launch; says what it has done."""

    def __init__(self, limited=False):
        self.ready, self.done, self.looks = True, [], 0
        self.bound = Bound(name="bcast #{} 'ring'", limited=limited)
        self.bound.add(START, lambda: self.done.append("start"))
        self.bound.last_start = 0
        self.bound.waits[1] = ()
        self.bound.add(WAIT, lambda: self.done.append("wait"), poll=self.look)
        self.bound.add(LAUNCH, lambda: self.done.append("launch"))

    def look(self):
        self.looks += 1
        return self.ready() if callable(self.ready) else self.ready


@pytest.fixture
def made(monkeypatch):
    """The operations that are made."""
    found, start = [], Operation.__init__

    def counted(self, *given, **named):
        found.append(self)
        start(self, *given, **named)

    monkeypatch.setattr(Operation, "__init__", counted)
    return found


def test_a_call_with_a_time_limit_needs_no_operation_where_nobody_is_late(comm, made):
    program, context = Program(limited=True), comm._get_context()
    moved = context.moved
    run(program.bound, context)
    assert (program.done, made, context.busy) == (["start", "wait", "launch"], [], False)
    assert (context.moved > moved, context.ended > 0, program.bound.running) == (True, True, False)


def test_a_call_that_waits_for_long_is_watched_from_there_on(comm, made, monkeypatch):
    """Nothing is done twice, and it ends in the operation."""
    monkeypatch.setattr(running, "PROMPT", 0.001)
    program = Program(limited=True)
    program.ready = lambda: bool(made) and program.looks > 3
    run(program.bound, comm._get_context())
    assert program.done == ["start", "wait", "launch"]
    (operation,) = made
    assert operation.done
    assert operation.position == 2


def test_a_late_call_stalls_where_it_waits(comm, made, monkeypatch):
    monkeypatch.setattr(running, "PROMPT", 0.001)
    program, context = Program(limited=True), comm._get_context()
    program.ready = False
    with mpicoll.override(timeout=0.05), pytest.raises(mpicoll.StalledError, match=r"bcast #1 'ring': rank 0, waiting"):
        run(program.bound, context)
    assert program.done == ["start"]
    assert len(made) == 1
    assert context.broken


def test_what_raises_before_it_waits_for_long_spoils_its_communicator(comm, made):
    program, context, seen = Program(limited=True), comm._get_context(), []

    def fail():
        seen.append(context.busy)
        raise RuntimeError("in an operator")

    program.bound.actions[2] = fail
    program.bound.requests = [SimpleNamespace(Get_status=lambda: False, Free=lambda: None)]
    program.bound.last_start = 2  # what raises is not behind the last message
    with pytest.raises(RuntimeError, match="in an operator"):
        run(program.bound, context)
    assert "in an operator" in context.broken
    assert (seen, context.busy, made) == ([True], False, [])  # who is in an operator may take its time


def test_errors_that_ranks_share_are_heeded_from_the_start(comm, made):
    program = Program(limited=True)
    with mpicoll.override(errors="agree"):
        run(program.bound, comm._get_context())
    assert len(made) == 1


def test_a_program_that_was_forgotten_meanwhile_is_freed_at_its_end(comm):
    for limited in (True, False):
        program = Program(limited)
        program.bound.add(LAUNCH, program.bound.retire)
        run(program.bound, comm._get_context())
        assert program.bound.actions == []
    program = Program()
    program.bound.add(LAUNCH, program.bound.retire)
    Straight(comm._get_context(), program.bound, None).wait()
    assert program.bound.actions == []


def test_a_straight_operation_goes_as_far_as_it_can(comm):
    program, context = Program(), comm._get_context()
    program.ready = False
    slot = SimpleNamespace(taken=True)
    straight = Straight(context, program.bound, None, slot=slot)
    assert (program.done, straight.started, straight.done) == (["start"], True, False)
    assert turns.in_flight == [straight]
    assert program.bound.running
    assert slot.taken
    program.ready = True
    straight.wait()
    assert program.done == ["start", "wait", "launch"]
    assert (turns.in_flight, context.last, slot.taken, program.bound.running) == ([], {}, False, False)


def test_straight_operations_begin_in_the_order_of_their_calls(comm):
    """The second starts no message before the first has started all of its own."""
    first, second, context = Program(), Program(), comm._get_context()
    first.bound.last_start, second.ready, first.ready = 2, True, False
    one, other = (Straight(context, program.bound, None) for program in (first, second))
    assert (first.done, second.done) == (["start"], [])
    first.ready = True
    other.wait()
    assert (one.done, other.done) == (True, True)


def test_a_program_without_messages_keeps_nobody_waiting(comm):
    first, second = Program(), Program()
    first.bound.last_start, first.ready = -1, False
    Straight(comm._get_context(), first.bound, None)
    assert Straight(comm._get_context(), second.bound, None).done
    first.ready = True
    turns.advance_all()


def test_an_error_is_kept_for_the_one_who_waits(comm):
    program, context = Program(), comm._get_context()
    program.ready = lambda: 1 / 0
    straight = Straight(context, program.bound, None)
    assert straight.done
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            straight.wait()


def test_an_interrupt_while_it_waits_loses_nothing(comm):
    """As a signal's handler raises it; one in the middle of an action ends the call."""
    program, context = Program(), comm._get_context()
    program.ready = False
    straight = Straight(context, program.bound, None)

    def interrupted():
        raise KeyboardInterrupt

    program.ready = interrupted
    with pytest.raises(KeyboardInterrupt):
        straight.wait()
    assert not straight.done
    program.ready = True
    program.bound.actions[2] = interrupted
    with pytest.raises(KeyboardInterrupt):
        straight.wait()
    assert straight.done
    with pytest.raises(RuntimeError, match=r"KeyboardInterrupt.* came in the middle of a step"):
        straight.wait()


def test_a_straight_operation_has_a_time_limit(comm):
    program, context = Program(), comm._get_context()
    program.ready = False
    with mpicoll.override(timeout=0.05):
        straight = Straight(context, program.bound, None)
        assert context.waiting
        with pytest.raises(mpicoll.StalledError, match=r"bcast #1 'ring'"):
            straight.wait()
    assert not context.waiting


def test_what_may_go_straight():
    assert goes_straight(-1)
    assert not goes_straight(0)
    with mpicoll.override(errors="agree"):
        assert not goes_straight(-1)


@pytest.mark.parametrize("timeout", [0, 60])
def test_remembered_requests_go_straight(comm, made, timeout):
    """The first one of each slot is bound in an operation of the other kind."""
    x, y = np.arange(3.0), np.zeros(3)
    with mpicoll.override(timeout=timeout):
        for number in range(4):
            y[:] = 0
            comm.Iallreduce(x, y).Wait()
            assert y.tolist() == [0, 1, 2], number
        assert len(made) == 1
        request = comm.Allreduce_init(x, y)
        before = len(made)
        for _ in range(3):
            y[:] = 0
            request.Start()
            request.Wait()
            assert y.tolist() == [0, 1, 2]
        request.Free()
        assert len(made) == before


def test_packed_arrays_do_not_go_straight(comm, made):
    x, y = np.arange(6.0)[::2], np.zeros(6)[::2]
    request = comm.Allreduce_init(x, y)
    before = len(made)
    request.Start()
    request.Wait()
    assert y.tolist() == [0, 2, 4]
    assert len(made) > before
    request.Free()


def test_a_straight_request_holds_its_arrays_and_no_longer(comm):
    x, y = np.arange(3.0), np.zeros(3)
    comm.Iallreduce(x, y).Wait()
    request = comm.Iallreduce(x, y)
    gone = weakref.ref(x)
    request.Wait()
    del x, request
    gc.collect()
    assert gone() is None


def test_a_straight_request_that_is_dropped_unfinished_warns(comm):
    program, context = Program(), comm._get_context()
    program.ready = False
    call = SimpleNamespace(method="Bcast")
    request = mpicoll.request.PlainRequest(call, Straight(context, program.bound, None))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        del request
    assert [one.category for one in seen] == [ResourceWarning]
    program.ready = True
    turns.advance_all()
    assert program.done[-1] == "launch"
