"""Ranks that make different calls, which nothing but debug=1 finds: the same MismatchError on all of them."""

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpi.calling import check
from mpi.cases import Case

WORLD = MPI.COMM_WORLD
SIZE, RANK = WORLD.Get_size(), WORLD.Get_rank()
#: does something else
ODD = RANK == SIZE - 1

pytestmark = [pytest.mark.many_ranks, pytest.mark.mpi(min_size=2)]


def shifted(counts):
    """Return counts of the same sum, other ones on the last rank."""
    return counts[::-1] if ODD else counts


def records():
    fields = [("a", "i4"), ("b", "f4")]
    return np.zeros(3, fields[::-1] if ODD else fields)


def one_short(count):
    """Return so many elements, one less on the last rank."""
    return np.ones(count - ODD)


COUNTS = list(range(1, SIZE + 1))
TWO = [2] * SIZE


def to_rank_0(count):
    """Return counts of 2 for each rank, another one for rank 0."""
    return [count, *TWO[1:]]


product, total = (lambda a, b: a * b), (lambda a, b: a + b)

#: what differs -> the call, and what its error says
CALLS = {
    "byte order": (lambda c: c.Bcast(np.zeros(3, ">i4" if ODD else "<i4")), "other byte order"),
    "fields of records": (lambda c: c.Bcast(records()), "record of 8 B (a int32 at 0, b float32 at 4)"),
    "counts of equal sum, gathered": (
        lambda c: c.Allgatherv(np.ones(shifted(COUNTS)[RANK]), [np.zeros(sum(COUNTS)), shifted(COUNTS)]),
        f"counts {COUNTS}",
    ),
    "counts of equal sum, scattered": (
        lambda c: c.Reduce_scatter(np.ones(sum(COUNTS)), np.zeros(shifted(COUNTS)[RANK]), shifted(COUNTS)),
        f"counts {COUNTS}",
    ),
    "a sender's count": (
        lambda c: c.Gatherv(one_short(2), [np.zeros(2 * SIZE), TWO] if RANK == 0 else None),
        f"rank {SIZE - 1} sends 1 elements to rank 0, which expects 2",
    ),
    "a receiver's count": (
        lambda c: c.Scatterv([np.zeros(2 * SIZE), TWO] if RANK == 0 else None, one_short(2)),
        f"rank 0 sends 2 elements to rank {SIZE - 1}, which expects 1",
    ),
    "one pair's count": (
        lambda c: c.Alltoallv([np.zeros(2 * SIZE), to_rank_0(1 if ODD else 2)], [np.zeros(2 * SIZE), TWO]),
        f"rank {SIZE - 1} sends 1 elements to rank 0, which expects 2",
    ),
    "a user's operator": (
        lambda c: c.Allreduce(np.ones(3), np.zeros(3), mpicoll.Op(product if ODD else total)),
        "function",
    ),
    "whether an operator commutes": (
        lambda c: c.Allreduce(np.ones(3), np.zeros(3), mpicoll.Op(lambda a, b: a + b, commute=ODD)),
        "(in rank order)",
    ),
}


@pytest.mark.parametrize("what", CALLS)
def test_calls_that_differ_only_in(comm, what):
    """Told before a message is sent, so that the communicator works on."""
    call, text = CALLS[what]
    with mpicoll.override(debug=1):
        with pytest.raises(mpicoll.MismatchError) as raised:
            call(comm)
        told = WORLD.allgather(str(raised.value))
        assert len(set(told)) == 1, told
        assert text in told[0]
        check(comm, Case("Allreduce"))


def test_equal_calls_pass(comm):
    """Each rank has a function of its own, written as all others' are."""
    with mpicoll.override(debug=1):
        for dtype in (">i4", [("a", "i4"), ("b", "f4")]):
            comm.Bcast(np.zeros(3, dtype))
        y = np.zeros(3)
        comm.Allreduce(np.ones(3), y, mpicoll.Op(total))
        assert (y == SIZE).all()
