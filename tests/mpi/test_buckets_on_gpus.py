"""Gradient buckets of arrays on GPUs: averages, in stream order, step after step."""

import pytest
from mpi4py import MPI

import mpicoll
from mpi.busy import spin

pytestmark = [pytest.mark.gpu, pytest.mark.mpi(min_size=2)]

SIZE = MPI.COMM_WORLD.Get_size()
RANK = MPI.COMM_WORLD.Get_rank()
SIZES = (3, 100_000, 17, 1, 0, 5000, 700_000, 64)


@pytest.mark.parametrize("path", ["mapped", "direct", "staged"])
@pytest.mark.parametrize("renewed", [False, True], ids=["the same arrays", "other arrays each step"])
def test_gradients_are_averages_on_every_path(path, renewed):
    """What is added was written on the stream just before; what comes after the step sees the averages."""
    import cupy as xp

    with mpicoll.override(path=path, mapped_shared=True):
        comm = mpicoll.Communicator(MPI.COMM_WORLD.Dup())
        buckets = mpicoll.GradientBuckets(comm, bucket_bytes=200_000)
        arrays = [xp.zeros(n, "f4") for n in SIZES]
        for step in range(5):
            if renewed:
                arrays = [xp.zeros(n, "f4") for n in SIZES]
            with buckets:
                for k, array in enumerate(arrays):
                    spin(200_000)
                    array[:] = RANK + 10 * k + step
                    buckets.add(array)
            for k, array in enumerate(arrays):
                assert (array == (SIZE - 1) / 2 + 10 * k + step).all(), (step, k)
        comm.Free()
