"""Memory given by its address alone, as libraries of tensors give it: MPI takes it as far as the counts say."""

import re

import numpy as np
import pytest
from mpi4py import MPI

P = MPI.COMM_WORLD.Get_size()
RANK = MPI.COMM_WORLD.Get_rank()
PLAIN = MPI.Intracomm(MPI.COMM_WORLD)


class Tensor:
    """A stand-in for a tensor: memory whose axes may be exchanged, and which MPI is given by its address."""

    def __init__(self, array):
        self.array = array

    def memory(self, readonly=False):
        return MPI.memory.fromaddress(self.array.ctypes.data, 0, readonly)

    def rows(self):
        """Return the type of one row of a matrix, whatever its strides; the next item is the next row."""
        down, across = self.array.strides
        width = self.array.shape[1]
        return MPI.DOUBLE.Create_resized(0, across).Create_contiguous(width).Create_resized(0, down).Commit()


def same(world, call, *arrays):
    """Compare what a call makes of copies of arrays, on mpi4py's communicator and on ours."""
    results = []
    for comm in (PLAIN, world):
        mine = [Tensor(array.copy(order="K")) for array in arrays]
        call(comm, *mine)
        results.append([tensor.array.tobytes() for tensor in mine])
    assert results[1] == results[0]


def ramp(*shape):
    return np.arange(float(np.prod(shape))).reshape(shape) + 1000 * RANK


D = MPI.DOUBLE
DISPLS = [3 * r + 1 for r in range(P)]
CALLS = {
    "Allreduce": lambda c, x, y: c.Allreduce([x.memory(), 4, D], (y.memory(), 4, D)),
    "Allreduce in place": lambda c, x, y: c.Allreduce(MPI.IN_PLACE, [y.memory(), 4, D], MPI.MAX),
    "Iallreduce": lambda c, x, y: c.Iallreduce([x.memory(), 4, D], [y.memory(), 4, D]).Wait(),
    "Reduce": lambda c, x, y: c.Reduce([x.memory(), 4, D], [y.memory(), 4, D], MPI.SUM, P - 1),
    "Exscan": lambda c, x, y: c.Exscan([x.memory(), 4, D], [y.memory(), 4, D]),
    "Bcast": lambda c, x, y: c.Bcast([y.memory(), 5, D], P - 1),
    "Bcast of a part": lambda c, x, y: c.Bcast([MPI.memory.fromaddress(y.array.ctypes.data + 8, 0), 5, MPI.FLOAT], 0),
    "Bcast of nothing": lambda c, x, y: c.Bcast([y.memory(), 0, D], 0),
    "Allgather": lambda c, x, y: c.Allgather([x.memory(), 2, D], [y.memory(), 2, D]),
    "Allgatherv": lambda c, x, y: c.Allgatherv([x.memory(), 2, D], [y.memory(), ([2] * P, DISPLS), D]),
    "Gather": lambda c, x, y: c.Gather([x.memory(), 2, D], [y.memory(), 2, D], 0),
    "Gatherv": lambda c, x, y: c.Gatherv([x.memory(), 2, D], [y.memory(), ([2] * P, DISPLS), D], 0),
    "Scatter": lambda c, x, y: c.Scatter([y.memory(), 2, D], [x.memory(), 2, D], 0),
    "Alltoall": lambda c, x, y: c.Alltoall([y.memory(), 1, D], [x.memory(), 1, D]),
    "Alltoallv": lambda c, x, y: c.Alltoallv([y.memory(), ([1] * P, DISPLS), D], [x.memory(), [1] * P, D]),
    "Reduce_scatter_block": lambda c, x, y: c.Reduce_scatter_block([y.memory(), 2, D], [x.memory(), 2, D]),
    "bytes": lambda c, x, y: c.Bcast([y.memory(), 24], 0),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_the_counts_say_how_far_memory_goes(world, call):
    same(world, call, ramp(4 + P), ramp(3 * P + 5))


def turned(c, x, y):
    """Gather the columns of matrices, which become rows: each side has another type for one row."""
    sent, received = x.rows(), y.rows()
    c.Allgather([x.memory(), 3, sent], [y.memory(), 3, received])
    sent.Free()
    received.Free()


def test_tensors_whose_axes_were_exchanged(world):
    same(world, turned, ramp(3, 4), ramp(4, 3 * P).T)
    same(world, turned, ramp(4, 3).T, ramp(3 * P, 4))


def test_blocks_of_tensors_whose_axes_were_exchanged(world):
    def call(c, x, y):
        row = y.rows()
        c.Allgatherv([x.memory(), 8, D], [y.memory(), ([2] * P, [3 * r for r in range(P)]), row])
        row.Free()

    same(world, call, ramp(2, 4), ramp(4, 3 * P).T)


def test_a_type_for_each_block(world):
    def call(c, x, y):
        column = D.Create_vector(3, 1, P).Commit()
        c.Alltoallw(
            [x.memory(), ([1] * P, [8 * r for r in range(P)]), [column] * P],
            [y.memory(), ([3] * P, [24 * r for r in range(P)]), [D] * P],
        )
        column.Free()

    same(world, call, ramp(3, P), ramp(P, 3))


def test_addresses_inside_of_a_type(world):
    """MPI.BOTTOM is all memory: the type itself says where its elements are."""

    def call(c, x, y):
        kinds = [D.Create_hindexed([2, 1], [MPI.Get_address(t.array[k:]) for k in (3, 0)]).Commit() for t in (x, y)]
        c.Allgather([MPI.BOTTOM, 1, kinds[0]], [y.array[4:], 3, D])
        c.Bcast([MPI.BOTTOM, 1, kinds[1]], 0)
        for kind in kinds:
            kind.Free()

    same(world, call, ramp(5), ramp(4 + 3 * P))


def test_persistent_calls_read_it_at_each_start(world):
    x, y = np.zeros(4), np.zeros(4)
    request = world.Allreduce_init([Tensor(x).memory(), 4, D], [Tensor(y).memory(), 4, D])
    for turn in range(3):
        x[:] = turn
        request.Start()
        request.Wait()
        assert y.tolist() == [turn * P] * 4
    request.Free()


def test_one_that_comes_again_is_only_run(world):
    """It is found by the address, whatever object has it; other memory is not taken for it."""
    x, y = np.zeros(20), np.zeros(20)
    for turn in range(6):
        x[:] = turn
        world.Allreduce([Tensor(x).memory(), 4, D], [Tensor(y).memory(), 4, D])
        assert y[:5].tolist() == [turn * P] * 4 + [0]
    assert world._get_context().cache.identities
    world.Allreduce([Tensor(x[2:]).memory(), 4, D], [Tensor(y[10:]).memory(), 4, D])
    assert y[10:15].tolist() == [5 * P] * 4 + [0]
    with pytest.raises(ValueError, match="overlaps"):
        world.Allreduce([Tensor(x).memory(), 4, D], [Tensor(x[1:]).memory(), 4, D])


def test_what_cannot_be_is_refused(world):
    def raises(text):
        return pytest.raises(ValueError, match=re.escape(text))

    x, row = Tensor(np.zeros(8)), D.Create_contiguous(2).Commit()
    with raises("allreduce: recvbuf overlaps sendbuf"):
        world.Allreduce([x.memory(), 4, D], [MPI.memory.fromaddress(x.array.ctypes.data + 8, 0), 4, D])
    for kind in (D, row):
        with raises("allgather: recvbuf is read-only"):
            world.Allgather(x.array[:2], [x.memory(readonly=True), 2 if kind is D else 1, kind])
    with raises("bcast: buf has 0 elements, count is 4"):  # of a bytearray it is known how long it is
        world.Bcast([bytearray(), 4, D], 0)
    with raises("bcast: buf has 0 elements, count is 4"):
        world.Bcast([MPI.memory(bytearray()), 4, D], 0)
    with raises("bcast: buf has 0 elements, count is 4"):
        world.Bcast([MPI.BOTTOM, 4, D], 0)
    row.Free()
