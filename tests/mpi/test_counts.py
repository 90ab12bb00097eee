"""Counts: of any kind, found where ranks bring different amounts, refused where they are no integers."""

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpi.calling import check
from mpi.cases import Case

pytestmark = pytest.mark.usefixtures("on_path")

SIZE = MPI.COMM_WORLD.Get_size()


@pytest.mark.case("UNEVEN-GATHER")
@pytest.mark.mpi(min_size=2)
def test_ranks_bring_different_amounts(world, memory):
    """Counts are found, and the pieces are joined in the order of the ranks."""
    rank, last = world.rank, SIZE - 1
    mine = memory.xp.full((rank + 1, 3), float(rank))
    joined = np.repeat(np.arange(float(SIZE)), np.arange(1, SIZE + 1))
    everything, counts = mpicoll.allgatherv(mine, comm=world)
    assert counts == list(range(1, SIZE + 1))
    assert (memory.to_host(everything) == joined[:, None]).all()
    assert everything.shape == (SIZE * (SIZE + 1) // 2, 3)
    everything, counts = mpicoll.gatherv(mine, root=last, comm=world)
    assert counts == list(range(1, SIZE + 1))
    assert everything is None if rank < last else (memory.to_host(everything) == joined[:, None]).all()
    empty = memory.xp.zeros((0 if rank == 0 else 2, 2))
    assert mpicoll.allgatherv(empty, comm=world)[1] == [0] + [2] * last


@pytest.mark.case("UNEVEN-GATHER")
@pytest.mark.mpi(min_size=2)
def test_equal_blocks_that_are_not_equal(world):
    """The call for equal blocks refuses others, on every rank when calls are compared."""
    rank = world.rank
    with mpicoll.override(debug=1):
        with pytest.raises(mpicoll.MismatchError, match=r"^allgather #\d+: "):
            mpicoll.allgather(np.zeros((rank + 1, 3)), comm=world)
        with pytest.raises(mpicoll.MismatchError, match=r"^gather #\d+: "):
            world.Gather(np.zeros(rank + 1), np.zeros(SIZE) if rank == 0 else None)
    odd = np.zeros((2, 3 if rank else 4))
    with pytest.raises(ValueError, match=r"^allgatherv: x is .* on rank 0, .* on rank 1$"):
        mpicoll.allgatherv(odd, comm=world)
    check(world, Case("Allgather"))


@pytest.mark.case("COUNTS-FORM")
@pytest.mark.parametrize("kind", ["list", "tuple", "int32", "int64", "numbers"])
def test_counts_of_any_kind(world, memory, kind):
    """Lists, tuples, arrays, NumPy numbers; in elements, displacements left out or not."""
    rank, counts = world.rank, [2 * (r + 1) for r in range(SIZE)]
    if kind == "tuple" and SIZE == 2:
        pytest.skip("a tuple of two is counts and displacements, as in mpi4py")
    make = {
        "list": list,
        "tuple": tuple,
        "int32": lambda n: np.array(n, "i4"),
        "int64": lambda n: np.array(n, "i8"),
        "numbers": lambda n: [np.int64(v) for v in n],
    }[kind]
    starts = [sum(counts[:r]) for r in range(SIZE)]
    whole = np.repeat(np.arange(float(SIZE)), counts)
    for spec in ([make(counts)], [make(counts), make(starts)], [(make(counts), make(starts))]):
        gathered = memory.xp.zeros((sum(counts) // 2, 2))
        world.Gatherv(memory.xp.full(counts[rank], float(rank)), [gathered, *spec] if rank == 0 else None)
        mine = memory.xp.zeros((rank + 1, 2))
        world.Scatterv([gathered, *spec] if rank == 0 else None, mine)
        assert (memory.to_host(mine) == rank).all()
        if rank == 0:
            assert (memory.to_host(gathered).ravel() == whole).all()


@pytest.mark.case("COUNTS-FORM")
@pytest.mark.parametrize("how", ["count", "recvcounts"])
def test_counts_that_are_no_integers(world, how):
    """2.5 is no count, and 2.0 is no integer."""
    with pytest.raises(TypeError, match="integer"):
        if how == "count":
            world.Bcast([np.zeros(3), 2.5])
        else:
            world.Reduce_scatter(np.ones(SIZE), np.zeros(1), [1.5] * SIZE)
    check(world, Case("Allreduce"))
