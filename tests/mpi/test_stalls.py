"""Ranks that do not come, or come late: those that wait say for what and for whom, in time."""

import time

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpi.calling import check
from mpi.cases import Case
from mpi.raising import raised, zeros
from mpicoll.runtime.mpi.waiter import cores

pytestmark = pytest.mark.mpi(min_size=2)

SIZE = MPI.COMM_WORLD.Get_size()
RANK = MPI.COMM_WORLD.Get_rank()
#: the rank that does something else
ODD = SIZE - 1
#: seconds without progress after which a call gives up, and what it may take beyond them
LIMIT, BEYOND = 0.5, 1.0 if cores() >= SIZE else 2.0
#: the limit where no call may give up
AMPLE = 5.0
everybody = MPI.COMM_WORLD


class Stall:
    """A job of its own for every call that some ranks do not make: errors, times, and what works afterwards."""

    def __init__(self, call, odd, limit=LIMIT):
        """All ranks make a call; rank ODD makes another."""
        with mpicoll.override(timeout=AMPLE):
            self.comm = mpicoll.Communicator(everybody.Dup())
            check(self.comm, Case("Allreduce"))
        with mpicoll.override(timeout=limit):
            everybody.Barrier()
            self.error, self.seconds = raised(lambda: (odd if RANK == ODD else call)(self.comm))
            self.errors = everybody.allgather(self.error and str(self.error))

    def used_again(self):
        """Return what the next call raises."""
        with mpicoll.override(timeout=LIMIT):
            error, _ = raised(lambda: self.comm.Bcast(zeros()))
        return error


def nothing(comm):
    return None


def work(form, algorithm="ring"):
    def call(comm):
        request = getattr(comm, form)(np.ones(40), zeros(40), algorithm=algorithm)
        if form.endswith("_init"):
            request.Start()
        if request is not None:
            request.Wait()

    return call


@pytest.mark.case("HANG-WHO")
@pytest.mark.parametrize("form", ["Allreduce", "Iallreduce", "Allreduce_init"])
@pytest.mark.parametrize("algorithm", ["ring", "recursive_doubling", "binomial"])
def test_a_call_that_one_rank_skips(form, algorithm):
    """Every rank that waits says what it waits for and who is missing, in time."""
    if form != "Allreduce" and algorithm != "ring":
        return
    name = algorithm if mpicoll.algorithms("allreduce")["allreduce"].count(algorithm) else "ring"
    stall = Stall(work(form, name), nothing)
    if RANK == ODD:
        assert stall.error is None
    else:
        assert isinstance(stall.error, mpicoll.StalledError), stall.errors
        text = str(stall.error).splitlines()[0]
        assert text.startswith(f"allreduce #2 '{name}': rank {RANK}, step "), text
        assert " waiting for block " in text or " waiting to send block " in text
        assert " rank " in text.split("waiting", 1)[1]
        assert text.endswith(f"; rank {ODD} on {MPI.Get_processor_name()} has not made the call"), text
        assert LIMIT <= stall.seconds <= LIMIT + BEYOND
        again = stall.used_again()
        assert isinstance(again, mpicoll.StalledError)
        assert str(again).startswith("this communicator cannot be used after: allreduce #2 ")
        _says_what_each_rank_did_last(stall.error, form)
    check(mpicoll.Communicator(everybody), Case("Allreduce"))
    stall.comm.Free()


def _says_what_each_rank_did_last(error, form):
    """The rank that has not made the call comes first; all are in the error, with times of this clock."""
    lines = str(error).splitlines()[1:]
    first = next(line for line in lines if line.startswith(f"  rank {ODD}: "))
    assert first == lines[0], lines
    assert first.startswith(f"  rank {ODD}: #1 Allreduce "), first
    mine = next(line for line in lines if line.startswith(f"  rank {RANK}: "))
    assert mine.startswith(f"  rank {RANK}: #2 "), mine
    assert " running for " in mine, mine
    assert error.history.keys() >= {RANK, ODD}
    assert [one.sequence for one in error.history[ODD]] == [1]
    assert error.history[ODD][0].begin < time.monotonic() - LIMIT
    names = {"Allreduce": "Allreduce", "Iallreduce": "Iallreduce", "Allreduce_init": "Allreduce.Start"}
    assert [(one.sequence, one.name, one.state) for one in error.history[RANK]][-1] == (2, names[form], "running")


def test_a_rank_that_comes_when_the_others_gave_up():
    """It is told, instead of taking the messages of their call for those of its own."""
    stall = Stall(work("Allreduce", "linear"), nothing)
    again = stall.used_again()
    everybody.Barrier()
    assert isinstance(again, mpicoll.StalledError), repr(again)
    stall.comm.Free()


@pytest.mark.mpi(min_size=3)
def test_another_collective_on_one_rank():
    """Ranks that wait give up in time; some may have been served by the wrong call."""
    stall = Stall(work("Allreduce"), lambda c: c.Barrier(algorithm="dissemination"))
    kinds = everybody.allgather((type(stall.error).__name__, stall.seconds))
    assert any(kind in ("StalledError", "MismatchError") for kind, _ in kinds), kinds
    assert all(seconds <= LIMIT + BEYOND for _, seconds in kinds), kinds
    check(mpicoll.Communicator(everybody), Case("Allreduce"))
    stall.comm.Free()


@pytest.mark.many_ranks
def test_ranks_that_come_late_know_who_came():
    """A rank that gives up first still counts as one that came, when the next one gives up."""
    if SIZE < 3:
        return
    late = LIMIT * 0.7

    def call(comm):
        time.sleep(late if RANK == 1 else 0)
        comm.Allreduce(np.ones(40), zeros(40), algorithm="ring")

    stall = Stall(call, nothing)
    if RANK != ODD:
        missing = f"; rank {ODD} on {MPI.Get_processor_name()} has not made the call"
        assert str(stall.error).splitlines()[0].endswith(missing), stall.errors
    stall.comm.Free()


def test_a_rank_that_is_only_slow_is_waited_for():
    """Nothing is raised, whatever the form."""

    def call(comm):
        for form in ("Allreduce", "Iallreduce"):
            time.sleep(0.3 if RANK == ODD else 0)
            work(form)(comm)

    stall = Stall(call, call, limit=AMPLE)
    assert stall.errors == [None] * SIZE
    stall.comm.Free()


def test_the_limit_is_that_of_the_call():
    """A communicator made with a limit is used without one: it waits for ever, and 0 is not at once."""
    with mpicoll.override(timeout=AMPLE):
        comm = mpicoll.Communicator(everybody.Dup())
        comm.Barrier()
    for form in ("Allreduce", "Iallreduce"):
        time.sleep(0.1 if RANK == ODD else 0)
        work(form)(comm)
    comm.Free()


@pytest.mark.parametrize("setting", [{"debug": 1}, {"errors": "agree"}])
def test_asking_has_the_limit_too(setting):
    """What compares calls does not wait for ever for a rank that makes none."""
    with mpicoll.override(**setting):
        stall = Stall(work("Allreduce"), nothing)
    if RANK != ODD:
        assert isinstance(stall.error, mpicoll.StalledError), stall.errors
        assert f"; rank {ODD} on {MPI.Get_processor_name()} has not made the call" in str(stall.error)
        assert stall.seconds <= LIMIT + BEYOND
    stall.comm.Free()


def test_finding_counts_has_the_limit_too():
    """Reduce_scatter without recvcounts asks for them first."""
    stall = Stall(lambda c: c.Reduce_scatter(np.ones(SIZE), zeros(1)), nothing)
    if RANK != ODD:
        assert isinstance(stall.error, mpicoll.StalledError), stall.errors
        assert stall.seconds <= LIMIT + BEYOND
    stall.comm.Free()


def test_functions_that_find_counts_have_the_limit_too():
    stall = Stall(lambda c: mpicoll.allgatherv(np.ones(RANK + 1), comm=c), nothing)
    if RANK != ODD:
        assert isinstance(stall.error, mpicoll.StalledError), stall.errors
        assert stall.seconds <= LIMIT + BEYOND
    stall.comm.Free()


@pytest.mark.parametrize("name", ["Waitall", "Waitany"])
def test_waiting_for_several_has_the_limit_too(name):
    def call(comm):
        requests = [comm.Iallreduce(np.ones(40), zeros(40), algorithm="ring") for _ in range(2)]
        getattr(requests[0], name)(requests)

    stall = Stall(call, nothing)
    if RANK != ODD:
        assert isinstance(stall.error, mpicoll.StalledError), stall.errors
        assert stall.seconds <= LIMIT + BEYOND
    stall.comm.Free()


LAST = SIZE - 1
several = pytest.mark.mpi(min_size=2)


@pytest.fixture
def limited():
    """A communicator with a time limit."""
    comm = mpicoll.Communicator(MPI.COMM_WORLD.Dup())
    with mpicoll.override(timeout=0.5):
        yield comm
    MPI.COMM_WORLD.Barrier()


@pytest.mark.case("HANG-WHO")
@several
@pytest.mark.parametrize("form", ["blocking", "nonblocking", "barrier"])
def test_a_rank_that_does_not_come(limited, form):
    """Those that wait say for what, since when, and who is missing."""
    comm, x, y = limited, np.zeros(1000), np.zeros(1000)
    comm.Allreduce(x, y, algorithm="ring")  # its second call is missing
    MPI.COMM_WORLD.Barrier()
    if comm.rank == LAST:
        MPI.COMM_WORLD.Barrier()  # wait for the others' errors
        return
    number = comm._get_context().calls + 1
    name = "barrier" if form == "barrier" else "allreduce"
    text = rf"^{name} #{number} .*: rank {comm.rank}, .* for 0.5 s; rank {LAST} on \S+ has not made the call\n"
    with pytest.raises(mpicoll.StalledError, match=text):
        if form == "blocking":
            comm.Allreduce(x, y, algorithm="one_shot")
        elif form == "nonblocking":
            comm.Iallreduce(x, y, algorithm="one_shot").Wait()
        else:
            comm.Barrier(algorithm="linear")
    with pytest.raises(mpicoll.StalledError, match="cannot be used after"):
        comm.Barrier()
    MPI.COMM_WORLD.Barrier()


@pytest.mark.case("HANG-WHO")
@several
def test_a_late_rank_is_no_missing_one(limited):
    """Within the limit nothing is raised."""
    if limited.rank == LAST:
        time.sleep(0.2)
    y = np.zeros(3)
    limited.Allreduce(np.ones(3), y)
    assert y.tolist() == [SIZE] * 3
    limited.Free()


@pytest.mark.case("HANG-WHO")
@several
def test_a_rank_that_does_not_come_to_the_comparison(limited):
    """The time limit holds for the question before the call, too."""
    comm, x = limited, np.zeros(3)
    with mpicoll.override(debug=1):
        comm.Allreduce(x, x.copy())
        MPI.COMM_WORLD.Barrier()
        if comm.rank != 0:
            with pytest.raises(
                mpicoll.StalledError, match=r"waiting for all ranks to make .*; rank 0 on \S+ has not made the call\n"
            ):
                comm.Allreduce(x, x.copy())
    MPI.COMM_WORLD.Barrier()
