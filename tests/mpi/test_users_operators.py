"""Operators of users: functions of two arrays, their order, and what they raise."""

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll

pytestmark = pytest.mark.usefixtures("on_path")

SIZE = MPI.COMM_WORLD.Get_size()
RANK = MPI.COMM_WORLD.Get_rank()
several = pytest.mark.mpi(min_size=2)


@pytest.mark.case("UDOP-GPU")
def test_a_function_of_two_arrays_as_operator(world, memory):
    """It gets arrays, and they are on the device of the arguments."""
    seen = []

    def larger(a, b):
        seen.append((type(a), type(b)))
        return memory.xp.maximum(a, b)

    y = memory.xp.zeros(100)
    op = mpicoll.Op(larger, commute=True)
    world.Allreduce(memory.xp.arange(100.0) * (RANK + 1), y, op)
    assert memory.to_host(y).tolist() == [SIZE * v for v in range(100)]
    assert set(seen) <= {(memory.xp.ndarray,) * 2} or memory.path == "staged"
    request = world.Iallreduce(memory.xp.ones(100), y, op)
    request.Wait()
    assert memory.to_host(y).tolist() == [1] * 100


@pytest.mark.case("UDOP-GPU")
@several
def test_an_operator_that_raises(comm):
    """It is an ordinary exception of the call, and the program goes on."""

    def fail(a, b):
        raise ArithmeticError("no such sum")

    # Every rank combines something in this algorithm, so every rank's function raises.
    with pytest.raises(ArithmeticError, match="no such sum"):
        comm.Allreduce(np.ones(3), np.zeros(3), mpicoll.Op(fail, commute=True), algorithm="one_shot")
    assert MPI.COMM_WORLD.allreduce(1) == SIZE


@pytest.mark.case("ALGO-NONCOMM")
@pytest.mark.parametrize("method", ["Reduce", "Allreduce", "Scan"])
def test_the_order_of_ranks_is_kept(world, memory, method):
    """A product of matrices; the first and the last rank as root."""
    product = mpicoll.Op(lambda a, b: (a.reshape(-1, 2, 2) @ b.reshape(-1, 2, 2)).reshape(-1), width=4)
    matrices = [np.array([[1.0, r + 1], [1, 0]]) for r in range(SIZE)]
    wanted = np.linalg.multi_dot([np.eye(2), *(matrices[: RANK + 1] if method == "Scan" else matrices)])
    for root in sorted({0, SIZE - 1}):
        y = memory.xp.zeros(4)
        rest = (root,) if method == "Reduce" else ()
        getattr(world, method)(memory.xp.asarray(matrices[RANK].ravel()), y, product, *rest)
        if method != "Reduce" or root == RANK:
            assert memory.to_host(y).tolist() == wanted.ravel().tolist()
