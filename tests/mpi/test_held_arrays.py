"""Arrays of nonblocking calls: held until the end, packed where they must be."""

import gc
import weakref

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpi.begun import COUNTS, begin, late, wait
from mpi.cases import Case
from mpicoll.runtime.progress import turns

SIZE = MPI.COMM_WORLD.Get_size()


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("count", COUNTS)
def test_arrays_are_held_until_the_end(world, memory, count):
    """The input is dropped and its memory used again before the last rank has even started."""
    xp, y, refs = memory.xp, memory.xp.zeros(count), []

    def start():
        x = xp.full(count, 1.0 + world.rank)
        refs.append(weakref.ref(x))
        return world.Iallreduce(x, y)

    def overwrite(_):
        gc.collect()
        assert refs[0]() is not None
        for _ in range(20):
            xp.full(count, -1.0)

    with mpicoll.override(path=memory.path):
        request = late(world, start, overwrite)
        wait(request)
    assert (memory.to_host(y) == SIZE * (SIZE + 1) / 2).all()
    gc.collect()
    assert refs[0]() is None


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("method", ["Bcast", "Allgather", "Alltoall", "Reduce_scatter_block", "Exscan"])
def test_the_output_is_held_too(world, memory, method):
    """Nobody but the request has the arrays."""
    held = []

    def start():
        call, request = begin(world, Case(method, None, 40_000), memory)
        held.append(call)
        part = call.target
        part.seen = part.whole[:]  # a view: it keeps the memory, the array itself is only the request's
        del part.__dict__["array"], part.whole
        call.sendbuf = call.recvbuf = None
        return request

    request = late(world, start, lambda _: gc.collect())
    wait(request)
    call = held[0]
    call.target.whole, call.target.array = call.target.seen, None
    call.compare()


@pytest.mark.mpi(min_size=2)
def test_a_dropped_request_warns_and_completes(comm):
    y = np.zeros(5)

    def drop(requests):
        with pytest.warns(ResourceWarning, match=r"^unfinished allreduce request was dropped$"):
            requests.clear()
            gc.collect()

    left = late(comm, lambda: [comm.Iallreduce(np.full(5, 2.0), y)], drop)
    if left:
        wait(left[0])
    for _ in range(6):  # they wait for other slots, and advance the call that nobody waits for
        wait(comm.Ibarrier())
    assert (y == 2.0 * SIZE).all()
    assert not turns.in_flight


def test_a_complete_request_is_dropped_in_silence(world, recwarn):
    request = world.Iallreduce(np.ones(3), np.zeros(3))
    wait(request)
    del request
    gc.collect()
    assert not [w for w in recwarn if issubclass(w.category, ResourceWarning)]


def test_arrays_that_are_packed(world, memory):
    """Packed at the start, unpacked at the end: strided, transposed, reversed."""
    xp, p, rank = memory.xp, world.size, world.rank
    base = xp.arange(60.0).reshape(5, 12) + rank
    views = {"strided": lambda a: a[:, ::3], "transposed": lambda a: a.T, "reversed": lambda a: a[::-1]}
    with mpicoll.override(path=memory.path):
        for view in views.values():
            x, whole = view(base.copy()), xp.full((5, 12), -1.0)
            y = view(whole)
            first, second = world.Iallreduce(x, y), world.Ibcast(z := view(base.copy()), p - 1)
            x[...] = x  # to be read is allowed
            wait(second)
            wait(first)
            before = memory.to_host(view(base)) - rank
            assert (memory.to_host(y) == p * before + p * (p - 1) / 2).all()
            assert (memory.to_host(z) == before + p - 1).all()
            y[...] = -1
            assert (memory.to_host(whole) == -1).all()
