"""Cases of users: calls that look right and would give a wrong result without a word; they are refused."""

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpi.calling import Case, check

SIZE = MPI.COMM_WORLD.Get_size()


@pytest.mark.parametrize("dtype", ["f8", ">f8", "i4", "datetime64[s]"])
def test_bytes_of_numbers_are_not_added(world, dtype):
    """DTYPE-ENDIAN, DTYPE-STRUCT: MPI.BYTE is for what is moved; MPI has no SUM for it, either."""
    x, y = np.ones(3, dtype), np.zeros(3, dtype)
    with pytest.raises((TypeError, mpicoll.UnsupportedError), match=r"^allreduce: "):
        world.Allreduce([x, MPI.BYTE], [y, MPI.BYTE])


def test_no_operator(world):
    """ROOT-DIFF: None is no operator, and the result would be what was there."""
    for method in ("Allreduce", "Reduce", "Scan"):
        with pytest.raises((TypeError, mpicoll.UnsupportedError), match=f"^{method.lower()}: op None "):
            getattr(world, method)(np.ones(3), np.zeros(3), None)


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("kind", [float, int, np.float64])
def test_a_number_cannot_be_broadcast_in_place(world, kind):
    """ZEROD: the root's number is returned, of its type, on every rank; no rank keeps its own."""
    found = mpicoll.bcast(kind(3 + world.rank), root=SIZE - 1, comm=world)
    assert (type(found), found) == (kind, 2 + SIZE)


@pytest.mark.parametrize("how", ["count", "recvcounts"])
def test_counts_that_are_no_integers(world, how):
    """COUNTS-FORM: 2.5 is no count, and 2.0 is no integer."""
    with pytest.raises(TypeError, match="integer"):
        if how == "count":
            world.Bcast([np.zeros(3), 2.5])
        else:
            world.Reduce_scatter(np.ones(SIZE), np.zeros(1), [1.5] * SIZE)


def test_the_communicator_is_as_it_was(world):
    """ZEROD, COUNTS-FORM: after all of these."""
    check(world, Case("Allreduce"))
