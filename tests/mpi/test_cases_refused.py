"""Cases of users: calls that look right and would give a wrong result without a word; they are refused."""

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpi.calling import Case, check

SIZE = MPI.COMM_WORLD.Get_size()


@pytest.mark.case("DTYPE-ENDIAN", "DTYPE-STRUCT")
@pytest.mark.parametrize("dtype", ["f8", ">f8", "i4", "datetime64[s]"])
def test_bytes_of_numbers_are_not_added(world, dtype):
    """MPI.BYTE is for what is moved; MPI has no SUM for it, either."""
    x, y = np.ones(3, dtype), np.zeros(3, dtype)
    with pytest.raises((TypeError, mpicoll.UnsupportedError), match=r"^allreduce: "):
        world.Allreduce([x, MPI.BYTE], [y, MPI.BYTE])


@pytest.mark.case("ROOT-DIFF")
def test_no_operator(world):
    """None is no operator, and the result would be what was there."""
    for method in ("Allreduce", "Reduce", "Scan"):
        with pytest.raises((TypeError, mpicoll.UnsupportedError), match=f"^{method.lower()}: op None "):
            getattr(world, method)(np.ones(3), np.zeros(3), None)


@pytest.mark.case("ZEROD")
@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("kind", [float, int, np.float64])
def test_a_number_cannot_be_broadcast_in_place(world, kind):
    """The root's number is returned, of its type, on every rank; no rank keeps its own."""
    found = mpicoll.bcast(kind(3 + world.rank), root=SIZE - 1, comm=world)
    assert (type(found), found) == (kind, 2 + SIZE)


@pytest.mark.case("COUNTS-FORM")
@pytest.mark.parametrize("how", ["count", "recvcounts"])
def test_counts_that_are_no_integers(world, how):
    """2.5 is no count, and 2.0 is no integer."""
    with pytest.raises(TypeError, match="integer"):
        if how == "count":
            world.Bcast([np.zeros(3), 2.5])
        else:
            world.Reduce_scatter(np.ones(SIZE), np.zeros(1), [1.5] * SIZE)


@pytest.mark.case("ZEROD", "COUNTS-FORM")
def test_the_communicator_is_as_it_was(world):
    """After all of these."""
    check(world, Case("Allreduce"))
