"""Ranks that disagree: told on every rank, by the same text, and nothing is lost."""

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpi.calling import check
from mpi.cases import Case
from mpi.raising import raised, zeros

pytestmark = pytest.mark.mpi(min_size=2)

SIZE = MPI.COMM_WORLD.Get_size()
RANK = MPI.COMM_WORLD.Get_rank()
#: the rank that does something else
ODD = SIZE - 1
everybody = MPI.COMM_WORLD


def on_all(error):
    """Return every rank's error as (type, text)."""
    return everybody.allgather((type(error).__name__, str(error)))


def plain(comm):
    return comm.Allreduce(np.ones(4), zeros(), algorithm="ring/1")


#: what differs -> what all ranks call but the last; what that one calls; what the text must have
DIFFERENT = {
    "count": (plain, lambda c: c.Allreduce(np.ones(5), zeros(5), algorithm="ring/1"), "count 4 and 5"),
    "dtype": (
        plain,
        lambda c: c.Allreduce(np.ones(4, "f4"), zeros(4, "f4"), algorithm="ring/1"),
        "dtype float64 and float32",
    ),
    "op": (plain, lambda c: c.Allreduce(np.ones(4), zeros(), MPI.MAX, algorithm="ring/1"), "op SUM and MAX"),
    "root": (lambda c: c.Bcast(zeros(), 0), lambda c: c.Bcast(zeros(), 1), "root 0 and 1"),
    "collective": (
        lambda c: c.Scan(np.ones(4), zeros()),
        lambda c: c.Exscan(np.ones(4), zeros()),
        "collective scan and exscan",
    ),
    "algorithm": (
        plain,
        lambda c: c.Allreduce(np.ones(4), zeros(), algorithm="binomial/1"),
        "algorithm ring/1@host and binomial/1@host",
    ),
    "segments": (
        plain,
        lambda c: c.Allreduce(np.ones(4), zeros(), algorithm="ring/2"),
        "algorithm ring/1@host and ring/2@host",
    ),
    "persistent": (
        lambda c: c.Bcast_init(zeros(), 0).Free(),
        lambda c: c.Ibcast(zeros(), 0).Wait(),
        "form persistent and call",
    ),
}


@pytest.mark.many_ranks
@pytest.mark.case("ROOT-DIFF", "MISMATCH-COUNT", "MISMATCH-DTYPE")
@pytest.mark.parametrize("field", DIFFERENT)
def test_calls_that_differ(comm, field):
    """The same MismatchError everywhere; then the communicator works."""
    usual, odd, text = DIFFERENT[field]
    with mpicoll.override(debug=1):
        for turn in range(2):
            error, _ = raised(lambda: (odd if RANK == ODD else usual)(comm))
            told = on_all(error)
            assert len(set(told)) == 1, told
            assert told[0][0] == "MismatchError"
            assert text in str(error)
            assert f"ranks unlike rank 0: [{ODD}]" in str(error)
            assert f"#{2 * turn + 1}" in str(error)
            check(comm, Case("Allreduce"))
    check(comm, Case("Allgather"))


@pytest.mark.many_ranks
def test_all_ranks_that_differ_are_named(comm):
    with mpicoll.override(debug=1):
        error, _ = raised(lambda: comm.Bcast(zeros(4 if RANK == 0 else 7)))
    assert f"ranks unlike rank 0: {list(range(1, SIZE))}" in str(error)
    assert len(set(on_all(error))) == 1


@pytest.mark.parametrize("form", ["Allreduce", "Iallreduce", "Allreduce_init"])
def test_equal_calls_pass(comm, form):
    with mpicoll.override(debug=1):
        for _ in range(3):
            y = zeros()
            request = getattr(comm, form)(np.ones(4), y)
            if request is not None:
                request.Start() if form.endswith("_init") else None
                request.Wait()
            assert (y == SIZE).all()


def test_calls_whose_arguments_may_differ_pass(comm):
    """Counts of v-variants, buffers that MPI ignores, and spellings."""
    counts = [r + 1 for r in range(SIZE)]
    with mpicoll.override(debug=1):
        check(comm, Case("Gatherv", pattern="uneven"))
        check(comm, Case("Alltoallv", pattern="uneven"))
        comm.Gather(zeros(), zeros(4 * SIZE) if RANK == 0 else None)
        comm.Allgatherv(np.full(RANK + 1, RANK), [zeros(sum(counts), "i8"), counts])
        x = zeros()
        comm.Allreduce(MPI.IN_PLACE if RANK else x, x)
        comm.Bcast([zeros(9), 4] if RANK else zeros())


def ended(request):
    """Wait for a nonblocking call, whose start tells nothing of the other ranks."""
    if isinstance(request, mpicoll.request.Request) and request:
        request.Wait()


@pytest.mark.many_ranks
@pytest.mark.case("HANG-EXC")
@pytest.mark.parametrize("name", ["debug", "errors"])
@pytest.mark.parametrize("form", ["blocking", "nonblocking", "persistent"])
def test_what_one_rank_raises_all_raise(comm, name, form):
    """The other ranks' error names the rank and quotes its error."""
    method = {"blocking": "Allreduce", "nonblocking": "Iallreduce", "persistent": "Allreduce_init"}[form]
    value = {"debug": 1, "errors": "agree"}[name]
    with mpicoll.override(**{name: value}):
        error, _ = raised(lambda: ended(getattr(comm, method)(np.ones(4), zeros(5 if RANK == ODD else 4))))
        own = "allreduce: recvbuf has 5 elements, sendbuf has 4"
        if RANK == ODD:
            assert type(error) is ValueError
            assert str(error) == own
        else:
            assert isinstance(error, mpicoll.MismatchError)
            assert f"rank {ODD} raised" in str(error)
            assert own in str(error)
        check(comm, Case("Allreduce"))


@pytest.mark.parametrize(
    "mistake",
    [
        lambda c: c.Bcast(zeros(), SIZE),
        lambda c: c.Bcast(np.array([object()])),
        lambda c: c.Bcast("text"),
        lambda c: c.Bcast(zeros(), algorithm="nothing"),
        lambda c: c.Bcast([zeros(), 5]),
        lambda c: c.Allreduce(zeros(), zeros(), "sum"),
        lambda c: c.Allreduce(zeros(), zeros(4, "f4")),
    ],
)
def test_any_mistake_is_everybodys(comm, mistake):
    """With errors="agree"; each mistake on one rank, and on all but one."""
    with mpicoll.override(errors="agree"):
        for wrong in (RANK == ODD, RANK != ODD):
            error, _ = raised(lambda: mistake(comm) if wrong else comm.Bcast(zeros()))  # noqa: B023
            assert error is not None
            assert isinstance(error, mpicoll.MismatchError) is not wrong
            check(comm, Case("Allreduce"))


@pytest.mark.parametrize("setting", [{"errors": "agree"}, {"debug": 1}])
def test_a_call_that_finds_counts_is_compared_too(comm, setting):
    """Reduce_scatter without recvcounts, and with something wrong, on one rank; the others call Bcast."""
    with mpicoll.override(**setting):
        error, _ = raised(lambda: comm.Reduce_scatter(zeros(SIZE), "text") if RANK == ODD else comm.Bcast(zeros()))
        told = on_all(error)
        assert all(kind != "NoneType" for kind, _ in told), told
        check(comm, Case("Allreduce"))


#: setting -> a value that is not the default
SETTINGS = {
    "algorithms": "allreduce:ring",
    "tuning": "no-such-file",
    "segment_bytes": 4096,
    "scratch_limit": 1 << 20,
    "cuda_aware": True,
    "path": "staged",
    "reproducible": "runs",
    "errors": "agree",
    "debug": 1,
    "timeout": 30.0,
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_that_differ(comm, name):
    """Found at the first call on every rank, by the same text; the next call may be the first."""
    default = getattr(mpicoll.settings, name)
    other = SETTINGS[name]
    with mpicoll.override(**{name: other if RANK == ODD else default}):
        error, _ = raised(lambda: comm.Bcast(zeros()))
    told = on_all(error)
    assert len(set(told)) == 1, told
    assert told[0] == ("MismatchError", f"setting {name!r} is {default!r} on rank 0, {other!r} on rank {ODD}")
    check(comm, Case("Allreduce"))


def test_rules_that_differ():
    made = mpicoll.Communicator(everybody.Dup(), algorithms="allreduce:ring" if RANK == ODD else None)
    error, _ = raised(made.Barrier)
    assert isinstance(error, mpicoll.MismatchError)
    assert len(set(on_all(error))) == 1
    made.Free()
