"""A program that type checkers must take as it is: `make type` checks it, and nothing runs it."""

from __future__ import annotations

import array
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray
from typing_extensions import assert_type

import mpicoll


class Mine(mpicoll.Communicator):
    """A class of the user's."""


class CuPyLike:
    """What type checkers know of a CuPy array, wherever CuPy is installed with types."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {}

    def get(self, stream: Any = None) -> NDArray[Any]:
        return np.zeros(0)


class TensorLike:
    """The same of a PyTorch tensor."""

    def __dlpack__(self, *, stream: int | None = -1, copy: bool | None = None) -> object:
        return None

    def __dlpack_device__(self) -> tuple[int, int]:
        return 0, 0

    def new_empty(self, *size: int) -> TensorLike:
        return self


def methods(comm: mpicoll.Communicator, x: NDArray[np.float32], y: NDArray[np.float32]) -> None:
    assert_type(comm.Allreduce(x, y), None)
    comm.Allreduce(MPI.IN_PLACE, y, op=mpicoll.AVG, algorithm="ring/8")
    comm.Allreduce(x, y, mpicoll.Op(lambda a, b: a + b, commute=True))
    comm.Allreduce(MPI.IN_PLACE, [x, y])
    comm.Bcast(TensorLike(), 1)
    comm.Bcast(CuPyLike(), stream=None)
    comm.Bcast([y, 3, 2], root=0)
    comm.Bcast(MPI.buffer.allocate(8))
    comm.Bcast([bytearray(8), MPI.DOUBLE])
    comm.Bcast(memoryview(bytearray(8)))
    comm.Gather(x, None)
    comm.Scatterv([x, [1, 2]], MPI.IN_PLACE)
    comm.Reduce_scatter(x, y, [1, 2])
    assert_type(comm.Iallreduce(x, y), mpicoll.request.Request)
    assert_type(comm.Bcast_init(y, info=MPI.INFO_NULL), mpicoll.request.PersistentRequest)
    mpicoll.request.Request.Waitall([comm.Ibarrier(), comm.Isend(x, 1)])


def communicators(comm: mpicoll.Communicator, mine: Mine) -> None:
    assert_type(comm.Dup(), mpicoll.Communicator)
    assert_type(comm.Split(1, 2), mpicoll.Communicator)
    assert_type(mine.Split(color=1, key=2), Mine)
    assert_type(mine.Create(mine.Get_group()), Mine)
    assert_type(mine.Idup()[0], Mine)


def functions(x: NDArray[np.float32], matrix: np.ndarray[tuple[int, int], np.dtype[np.int64]]) -> None:
    assert_type(mpicoll.allreduce(x), NDArray[np.float32])
    assert_type(mpicoll.allreduce(matrix, MPI.MAX, algorithm="ring"), NDArray[np.int64])
    assert_type(mpicoll.reduce(x, root=1), NDArray[np.float32] | None)
    assert_type(mpicoll.allgatherv(x), tuple[NDArray[np.float32], list[int]])
    assert_type(mpicoll.allgather(CuPyLike()), CuPyLike)
    assert_type(mpicoll.reduce_scatter(TensorLike(), mpicoll.AVG), TensorLike)
    assert_type(mpicoll.gather(TensorLike()), TensorLike | None)
    assert_type(mpicoll.bcast(x), NDArray[np.float32])
    assert_type(mpicoll.bcast(3), int)
    assert_type(mpicoll.bcast(TensorLike()), TensorLike)
    assert_type(mpicoll.scatter(x, out=x), NDArray[np.float32])
    mpicoll.scatter(None)
    mpicoll.allreduce(3.0)
    mpicoll.allreduce(array.array("d", [1.0]))
    mpicoll.barrier()


def others(comm: mpicoll.Communicator, x: NDArray[np.float32]) -> None:
    with mpicoll.group(comm), mpicoll.override(timeout=60, algorithms="allreduce:ring"):
        comm.Bcast(x)
    mpicoll.settings.debug = "plan"
    buckets = mpicoll.GradientBuckets(comm)
    buckets.add(x)
    try:
        buckets.finish()
    except mpicoll.Error as error:
        print(error, mpicoll.__version__, mpicoll.algorithms("bcast"))
