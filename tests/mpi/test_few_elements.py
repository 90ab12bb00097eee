"""Arrays of few elements: of none, without dimensions, of fewer than there are ranks; and one rank alone."""

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpi.calling import check
from mpi.cases import VECTOR, Case, forms
from mpicoll.algorithms import registry

pytestmark = pytest.mark.usefixtures("on_path")

METHODS = [m for row in registry.COLLECTIVES.values() for m in row.methods if m != "Barrier"]
SIZE = MPI.COMM_WORLD.Get_size()


@pytest.mark.case("ZERO-ALL")
@pytest.mark.parametrize("method", METHODS)
def test_every_collective_of_nothing(world, memory, method):
    """Empty blocks everywhere; the ranks still match up."""
    check(world, Case(method, None, 0, pattern="zero" if method in VECTOR else ""), memory)
    check(world, Case(method, None, 2, root=1), memory)


@pytest.mark.case("ZERO-ALL")
def test_empty_views(world, memory):
    """Arrays of no elements in several shapes, as views and as arrays, in and out."""
    x = memory.xp.arange(10.0)
    for empty in (x[5:5], memory.xp.empty(0), memory.xp.zeros((1, 0, 2)), x.reshape(2, 5)[:, 3:3]):
        world.Allreduce(empty, memory.xp.empty_like(empty))
        world.Bcast(empty, root=SIZE - 1)
        world.Allgather(empty, memory.xp.zeros((SIZE, *empty.shape)))
        assert mpicoll.allreduce(empty, comm=world).shape == empty.shape
    assert memory.to_host(x).tolist() == list(range(10))


@pytest.mark.case("ZEROD")
def test_arrays_without_dimensions(world, memory):
    """0-d in, 0-d out, of the same kind; scalars of Python and NumPy can be given."""
    found = mpicoll.allreduce(memory.xp.asarray(1.0), comm=world)
    assert (type(found), found.shape, found.dtype) == (memory.xp.ndarray, (), np.dtype("f8"))
    assert float(found) == SIZE
    for scalar in (np.float64(2), np.float32(2), 2, 2.0, True):
        found = mpicoll.allreduce(scalar, MPI.MAX, comm=world)
        assert np.shape(found) == ()
        assert found.dtype == np.asarray(scalar).dtype
        assert found == scalar
    assert mpicoll.allgather(memory.xp.asarray(3), comm=world).shape == (SIZE,)


@pytest.mark.case("ZEROD")
@pytest.mark.parametrize("kind", [np.int64, np.int32, np.float64])
def test_scalars_that_are_sent_again_and_again(world, kind):
    """Each time they are copied into other memory, whatever an equal one was copied into before."""
    for value in (0, 1, 2) * 10:
        held = [np.zeros(1, kind) for _ in range(value)]
        y = np.zeros(1, kind)
        world.Allreduce(kind(value), y)
        assert y[0] == value * world.size
        del held


def test_a_scalar_cannot_receive(world):
    """What cannot be changed cannot be received into, rather than keep its old value silently."""
    for call in (
        lambda: world.Allreduce(np.ones(()), np.float64(0)),
        lambda: world.Allreduce(MPI.IN_PLACE, np.float64(1)),
    ):
        with pytest.raises((TypeError, ValueError), match=r"^allreduce: recvbuf "):
            call()
    check(world, Case("Allreduce"))


@pytest.mark.case("ALGO-SMALLCOUNT")
@pytest.mark.parametrize("algorithm", ["ring", "reduce_scatter_allgather", "two_shot"])
def test_fewer_elements_than_ranks(world, memory, algorithm):
    """Algorithms that scatter the vector, with less of it than there are ranks."""
    for count in sorted({0, 1, SIZE - 1, SIZE + 1}):
        check(world, Case("Allreduce", algorithm, count), memory)
        check(world, Case("Allreduce", f"{algorithm}/3", count, form="in place"), memory)


@pytest.mark.case("SIZE1")
@pytest.mark.ranks(1)
@pytest.mark.parametrize("method", METHODS)
def test_alone(world, memory, method):
    """One rank fills its results too, in every form."""
    for form in forms(method):
        check(world, Case(method, None, 4, form=form), memory)


@pytest.mark.case("SIZE1")
def test_alone_makes_the_same_mistakes(comms):
    """What is refused among several is refused alone."""
    alone = comms["self"]
    for error, call in (
        (TypeError, lambda: alone.Allreduce(np.ones(3), np.zeros(3, "f4"))),
        (TypeError, lambda: alone.Allreduce(np.ones(3, "c8"), np.zeros(3, "c8"), MPI.MAX)),
        (ValueError, lambda: alone.Allgather(np.ones(3), np.zeros(4))),
        (ValueError, lambda: alone.Bcast(np.ones(3), root=1)),
        (TypeError, lambda: alone.Bcast(np.array([None], object))),
        (mpicoll.UnsupportedError, lambda: alone.Allreduce(np.ones(3), np.zeros(3), MPI.REPLACE)),
    ):
        with pytest.raises(error):
            call()


@pytest.mark.case("ZEROD")
@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("kind", [float, int, np.float64])
def test_a_number_cannot_be_broadcast_in_place(world, kind):
    """The root's number is returned, of its type, on every rank; no rank keeps its own."""
    found = mpicoll.bcast(kind(3 + world.rank), root=SIZE - 1, comm=world)
    assert (type(found), found) == (kind, 2 + SIZE)
    check(world, Case("Allreduce"))
