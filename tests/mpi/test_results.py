"""What comes back: its shape, its dtype and its kind, and never a pickle."""

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll

pytestmark = pytest.mark.usefixtures("on_path")

SIZE = MPI.COMM_WORLD.Get_size()


@pytest.mark.case("SHAPE-KEEP")
def test_shape_dtype_and_kind_are_kept(world, memory):
    """Of a new result; and a given one is the one that is returned."""
    x = memory.xp.ones((3, 4), "f4")
    for function in (mpicoll.allreduce, mpicoll.scan, mpicoll.exscan):
        found = function(x, comm=world)
        assert (type(found), found.shape, found.dtype) == (type(x), x.shape, x.dtype)
        out = memory.xp.zeros((3, 4), "f4")
        assert function(x, comm=world, out=out) is out
        assert (
            float(out.sum())
            == 12 * {"allreduce": SIZE, "scan": world.rank + 1, "exscan": world.rank}[function.__name__]
        )
    assert mpicoll.bcast(x, comm=world) is x
    assert mpicoll.allgather(x, comm=world).shape == (SIZE, 3, 4)
    found = mpicoll.allreduce(memory.xp.ones((3, 4), "f4"), MPI.MIN, comm=world)
    assert found.shape == (3, 4)


@pytest.mark.case("PICKLE-PATH")
def test_arrays_are_never_pickled(world, memory):
    """No array is given to a method for objects, and shapes are as they were."""

    def fail(self, *arguments, **named):
        raise AssertionError("an array is sent as an object")

    names = ("bcast", "allreduce", "reduce", "gather", "allgather", "scatter", "alltoall", "send", "recv")
    comm = type("Buffers", (mpicoll.Communicator,), dict.fromkeys(names, fail))(world)
    x = memory.xp.ones((2, 1))
    assert mpicoll.allreduce(x, comm=comm).shape == (2, 1)
    assert mpicoll.bcast(x, comm=comm) is x
    assert mpicoll.allgather(x, comm=comm).shape == (SIZE, 2, 1)
    comm.Alltoall(memory.xp.ones(SIZE), memory.xp.zeros(SIZE))


@pytest.mark.case("PICKLE-PATH")
@pytest.mark.mpi(min_size=2)
def test_shapes_do_not_broadcast(world):
    """(3,) and (2, 1) are no call together, and do not become (2, 3)."""
    x = np.ones(3) if world.rank == 0 else np.ones((2, 1))
    with mpicoll.override(debug=1), pytest.raises(mpicoll.MismatchError, match="differ in count 3 and 2"):
        mpicoll.allreduce(x, comm=world)
