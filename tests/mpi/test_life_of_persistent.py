"""Persistent requests: started out of turn, freed, dropped, many, made by mistake."""

import gc
import weakref

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpi.repeated import Repeated
from mpicoll.algorithms import registry
from mpicoll.request import PersistentRequest, Request
from mpicoll.runtime.progress import turns

SIZE = MPI.COMM_WORLD.Get_size()
METHODS = [m for row in registry.COLLECTIVES.values() for m in row.methods if m != "Barrier"]
#: starts of a request
TURNS = 4


@pytest.mark.mpi(min_size=2)
def test_start_of_an_active_one(world):
    """It raises, and the call goes on."""
    x, y = np.full(5, 1.0), np.zeros(5)
    request = world.Allreduce_init(x, y)
    last = world.rank == SIZE - 1
    if not last:
        request.Start()
        assert request
        assert not request.Test()
        with pytest.raises(RuntimeError, match=r"^allreduce: the persistent request is still active$"):
            request.Start()
    MPI.COMM_WORLD.Barrier()
    if last:
        request.Start()
    request.Wait()
    assert (y == SIZE).all()
    request.Free()


def test_start_of_one_that_is_complete_but_was_not_waited_for(comms):
    """MPI: a request is active until Wait or Test has told that it is complete."""
    request = comms["self"].Barrier_init()
    request.Start()
    with pytest.raises(RuntimeError, match=r"^barrier: the persistent request is still active$"):
        request.Start()


def test_start_after_free(world):
    request = world.Allreduce_init(np.ones(5), np.zeros(5))
    request.Free()
    with pytest.raises(RuntimeError, match=r"^allreduce: the persistent request was freed$"):
        request.Start()
    request.Free()
    assert request.Wait() is True


def test_free_of_an_active_one(world):
    """The call is completed first."""
    x, y = np.full(5, 1.0), np.zeros(5)
    request = world.Allreduce_init(x, y)
    request.Start()
    request.Free()
    assert (y == SIZE).all()
    assert not turns.in_flight


def test_many_are_made_and_freed(world):
    for turn in range(200):
        one = Repeated(world, METHODS[turn % len(METHODS)], 9, root=turn)
        one.turn(turn)
        one.request.Free()


def test_many_are_kept(world):
    made = [Repeated(world, METHODS[k % len(METHODS)], 9, root=k) for k in range(60)]
    for turn in range(2):
        for one in made:
            one.fill(turn)
        PersistentRequest.Startall([one.request for one in made])
        Request.Waitall([one.request for one in made])
        for one in made:
            one.compare()
    for one in made[::-1]:
        one.request.Free()


def test_arrays_are_held_until_it_is_freed(world, memory):
    """Input and output are only the request's, from before the first start; their memory is not used again."""
    xp, count = memory.xp, 1000
    x, y = xp.full(count, 1.0 + world.rank), xp.zeros(count)
    refs, seen = (weakref.ref(x), weakref.ref(y)), y[:]
    with mpicoll.override(path=memory.path):
        request = world.Allreduce_init(x, y)
    del x, y
    for _ in range(TURNS):
        gc.collect()
        assert all(ref() is not None for ref in refs)
        keep = [xp.full(count, -1.0) for _ in range(9)]
        seen[...] = 0
        request.Start()
        request.Wait()
        assert (memory.to_host(seen) == SIZE * (SIZE + 1) / 2).all()
        del keep
    request.Free()
    del seen
    gc.collect()
    assert [ref() for ref in refs] == [None, None]


def test_mistakes_are_raised_when_it_is_made(world):
    """On one rank alone, and no message is sent: the others' calls still meet."""
    x, y, p = np.zeros(6), np.zeros(6), world.size
    calls = [
        (ValueError, lambda: world.Allreduce_init(x, np.zeros(7))),
        (ValueError, lambda: world.Bcast_init(x, p)),
        (ValueError, lambda: world.Gather_init(x, None, world.rank)),
        (ValueError, lambda: world.Alltoallv_init([x, [7] * p], [y, [7] * p])),
        (TypeError, lambda: world.Reduce_init(x, y.astype("f4"), root=world.rank)),
        (mpicoll.UnsupportedError, lambda: world.Scan_init(x, y, MPI.REPLACE)),
        (ValueError, lambda: world.Exscan_init(x, y, algorithm="none")),
        (ValueError, lambda: world.Allreduce_init(x, y, stream=1)),
    ]
    one = Repeated(world, "Allreduce", 5)
    for number, (error, call) in enumerate(calls):
        if world.rank == number % p:
            with pytest.raises(error):
                call()
    two = Repeated(world, "Alltoall", 5)
    for turn in range(TURNS):
        two.turn(turn)
        one.turn(turn)
    one.request.Free()
    two.request.Free()


def test_info_is_where_mpi4py_has_it(world):
    x, y = np.ones(3), np.zeros(3)
    for request in (
        world.Barrier_init(MPI.INFO_NULL),
        world.Allreduce_init(x, y, MPI.SUM, MPI.INFO_NULL),
        world.Bcast_init(x, 0, info=MPI.INFO_NULL),
    ):
        request.Start()
        request.Wait()
        request.Free()
    assert (y == SIZE).all()


@pytest.mark.mpi(min_size=2)
def test_a_dropped_active_request_warns_and_completes(world):
    y = np.zeros(5)
    request, last = world.Allreduce_init(np.full(5, 1.0), y), world.rank == SIZE - 1
    if not last:
        request.Start()
        with pytest.warns(ResourceWarning, match=r"^unfinished allreduce request was dropped$"):
            request = None
            gc.collect()
    MPI.COMM_WORLD.Barrier()
    if last:
        request.Start()
        request.Wait()
    while turns.in_flight:  # any waiting call does this
        turns.advance_all()
    MPI.COMM_WORLD.Barrier()
    assert (y == SIZE).all()
