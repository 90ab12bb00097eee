"""Gradients in buckets on a device that is made up: packing, reductions and unpacking in the order of the stream."""

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpi.made_up_device import install
from mpicoll.runtime.mpi.cuda_aware import Awareness
from mpicoll.runtime.paths import mirror

SIZE, RANK = MPI.COMM_WORLD.Get_size(), MPI.COMM_WORLD.Get_rank()
MEAN = (SIZE + 1) / 2

pytestmark = pytest.mark.ranks(1, 2, 3)


@pytest.fixture(params=[pytest.param("early", marks=pytest.mark.ranks(1)), "late", "random"])
def made_up(request, monkeypatch):
    monkeypatch.setattr(mirror, "can_be_mapped", lambda address: True)
    return install(monkeypatch, request.param)


@pytest.fixture
def comm(made_up):
    comm = mpicoll.Communicator(MPI.COMM_WORLD.Dup())
    comm._get_context().cuda_aware = Awareness(True, "made up")
    yield comm
    made_up.streams.finish()
    comm.Free()


@pytest.mark.parametrize("path", ["direct", "staged"])
def test_everything_is_in_the_order_of_the_stream(comm, made_up, path):
    """Arrays are computed late, are used after the step, and are elsewhere in each one."""
    cuda, seen, kept = made_up.module().cuda, [], []
    buckets = mpicoll.GradientBuckets(comm, bucket_bytes=200)

    def later(work):
        made_up.streams.enqueue(made_up.streams.current, lambda: work() or True)

    with mpicoll.override(path=path), cuda.Stream():
        for turn in range(4):
            some = [np.full(n, -1.0) for n in (3, 9, 20, 40, 5)]
            for k, array in enumerate(some):
                later(lambda array=array, k=k, turn=turn: array.fill(turn * 10 + k + RANK + 1))
                buckets.add(array)
            buckets.finish()
            later(lambda some=some: seen.append([one.copy() for one in some]))
            kept.append(some)
    made_up.streams.finish()
    for turn, results in enumerate(seen):
        for k, array in enumerate(results):
            np.testing.assert_array_equal(array, turn * 10 + k + MEAN)
    assert len(seen) == 4


def test_the_stream_may_be_another_one_in_each_step(comm, made_up):
    cuda, x, y = made_up.module().cuda, np.zeros(5), np.zeros(7)
    buckets = mpicoll.GradientBuckets(comm)
    for turn in range(3):
        with mpicoll.override(path="direct"), cuda.Stream():
            x.fill(RANK + 1 + turn)
            y.fill(RANK + 1)
            with buckets:
                buckets.add(x)
                buckets.add(y)
        made_up.streams.finish()
        assert (x == MEAN + turn).all()
        assert (y == MEAN).all()
