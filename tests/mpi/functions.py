"""What the functions must return, from all ranks' inputs."""

import numpy as np
from mpi4py import MPI

SIZE = MPI.COMM_WORLD.Get_size()
RANK = MPI.COMM_WORLD.Get_rank()
SHAPE = (2 * SIZE, 3)
#: function -> what it gives for `mine(r)` on every rank, None for nothing
EXPECTED = {
    "allreduce": lambda: everyones().sum(0),
    "reduce": lambda: everyones().sum(0) if RANK == 0 else None,
    "scan": lambda: everyones()[: RANK + 1].sum(0),
    "exscan": lambda: everyones()[:RANK].sum(0),
    "reduce_scatter": lambda: everyones().sum(0)[2 * RANK : 2 * RANK + 2],
    "allgather": lambda: everyones(),
    "gather": lambda: everyones() if RANK == 0 else None,
    "scatter": lambda: mine(0)[2 * RANK : 2 * RANK + 2],
    "alltoall": lambda: np.concatenate([x[2 * RANK : 2 * RANK + 2] for x in everyones()]),
    "bcast": lambda: mine(0),
}


def mine(rank=RANK, dtype="f4"):
    return (np.arange(6 * SIZE).reshape(SHAPE) % 5 + 3 * rank % 7).astype(dtype)


def everyones(dtype="f4"):
    return np.stack([mine(r, dtype) for r in range(SIZE)])


def same(found, expected):
    if expected is None:
        assert found is None
        return
    assert type(found) is np.ndarray
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found, expected)
