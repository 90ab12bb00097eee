"""Nonblocking calls and the streams of devices."""

import numpy as np
import pytest

import mpicoll
from mpi.begun import wait
from mpi.busy import spin


def streams(memory):
    cuda = memory.xp.cuda
    return [cuda.Stream.null, cuda.Stream(), cuda.Stream(non_blocking=True)]


def busy():
    """Keep the current stream busy for about 10 ms."""
    spin(20_000_000)


def on_device(function):
    """Mark a test that is only for device arrays, on all paths."""
    both = pytest.mark.parametrize("memory", ["cupy-direct", "cupy-staged", "cupy-mapped"], indirect=True)
    return pytest.mark.gpu(both(function))


@on_device
@pytest.mark.parametrize("method", ["Allreduce", "Bcast", "Allgather", "Alltoall", "Reduce_scatter_block", "Scan"])
def test_ordered_with_the_stream(world, memory, method):
    """What the stream did before the call is awaited; what it does after Wait sees the result."""
    xp, p, count = memory.xp, world.size, 30_000
    x = xp.zeros(count * (p if method in ("Alltoall", "Reduce_scatter_block") else 1))
    y = x if method == "Bcast" else xp.zeros(count * (p if method in ("Allgather", "Alltoall") else 1))
    factor = {"Allreduce": p, "Reduce_scatter_block": p, "Scan": world.rank + 1}.get(method, 1)
    totals = []
    xp.cuda.Device().synchronize()
    with mpicoll.override(path=memory.path):
        for turn, stream in enumerate(streams(memory), 1):
            with stream:
                busy()
                x.fill(turn)
                request = getattr(world, f"I{method.lower()}")(*((x,) if y is x else (x, y)))
                wait(request)
                totals.append((y * 2).sum())
                y.fill(0)
                x.fill(-1)
            stream.synchronize()
    assert [float(t) for t in totals] == [2.0 * turn * factor * y.size for turn in range(1, 4)]


@on_device
def test_the_call_does_not_wait_for_the_stream(world, memory):
    """It returns while the kernel before it still runs."""
    xp = memory.xp
    x, y = xp.zeros(1000), xp.zeros(1000)
    stream = xp.cuda.Stream(non_blocking=True)
    with mpicoll.override(path=memory.path), stream:
        wait(world.Iallreduce(x, y))  # all is made and loaded
        stream.synchronize()
        for _ in range(20):
            busy()
        x.fill(1)
        request = world.Iallreduce(x, y)
        assert not stream.done
        assert not request.Test()
        wait(request)
        assert float(y.sum()) == 1000.0 * world.size


@on_device
def test_streams_in_flight_at_the_same_time(world, memory):
    xp, p = memory.xp, world.size
    arrays = [(xp.zeros(30_000), xp.zeros(30_000)) for _ in range(9)]
    xp.cuda.Device().synchronize()
    requests, used = [], streams(memory)
    with mpicoll.override(path=memory.path):
        for turn, (x, y) in enumerate(arrays):
            with used[turn % 3]:
                busy()
                x.fill(turn + world.rank)
                requests.append(world.Iallreduce(x, y))
        for turn in np.random.default_rng(world.rank).permutation(9):
            wait(requests[turn])
            with used[turn % 3]:
                arrays[turn][1].__isub__(turn * p)
    xp.cuda.Device().synchronize()
    assert all((y.get() == p * (p - 1) / 2).all() for _, y in arrays)
