"""Nonblocking calls: held arrays, dropped requests, progress, and the order in which they end."""

import gc
import os
import time

import numpy as np
import pytest
from mpi4py import MPI

from mpi.calling import check
from mpi.cases import Case
from mpicoll.request import Request
from mpicoll.runtime.progress import turns

pytestmark = pytest.mark.usefixtures("on_path")

SIZE = MPI.COMM_WORLD.Get_size()
RANK = MPI.COMM_WORLD.Get_rank()
several = pytest.mark.mpi(min_size=2)


@pytest.mark.case("NBRED-GPU")
@pytest.mark.parametrize("method", ["Ireduce", "Iallreduce", "Ireduce_scatter_block", "Iscan", "Iexscan"])
def test_nonblocking_reductions(world, memory, method):
    """On the arrays' device, by our own messages."""
    xp, scattered = memory.xp, "scatter" in method
    x, y = xp.ones(4 * SIZE if scattered else 4), xp.zeros(4)
    request = getattr(world, method)(x, y)
    assert request.Wait() is True
    wanted = {"Iscan": RANK + 1, "Iexscan": RANK, "Ireduce": SIZE if RANK == 0 else 0}.get(method, SIZE)
    assert memory.to_host(y).tolist() == [wanted] * 4


@pytest.mark.case("NB-LIFETIME")
def test_arrays_that_only_the_request_holds(world, memory):
    """The input is a temporary, and its memory would be taken by the next array."""
    results, requests = [], []
    for turn in range(2):
        y = memory.xp.zeros(5000)
        requests.append(world.Iallreduce(memory.xp.full(5000, 1.0) + turn, y))
        results.append((y, memory.xp.full(5000, -99.0)))
    Request.Waitall(requests)
    for turn, (y, _) in enumerate(results):
        assert (memory.to_host(y) == SIZE * (1.0 + turn)).all()


@pytest.mark.case("NB-LIFETIME")
@several
def test_a_request_that_is_dropped(world, memory):
    """Dropping it warns, and the call is completed all the same."""
    y = memory.xp.zeros(5)
    world.Barrier()
    if RANK == 0:
        MPI.COMM_WORLD.Barrier()  # the others must drop theirs before it can be complete
        world.Iallreduce(memory.xp.ones(5), y).Wait()
    else:
        with pytest.warns(ResourceWarning, match="unfinished allreduce request was dropped"):
            world.Iallreduce(memory.xp.ones(5), y)
            gc.collect()
        MPI.COMM_WORLD.Barrier()
    world.Barrier()
    check(world, Case("Allreduce"))
    end = time.monotonic() + 20
    while turns.in_flight and time.monotonic() < end:
        turns.advance_all()
    assert memory.to_host(y).tolist() == [SIZE] * 5


@pytest.mark.case("NB-PROGRESS")
@several
def test_testing_makes_progress(world, memory):
    """All steps of a call can pass inside Test, while the program does other things."""
    x, y = memory.xp.ones(3000), memory.xp.zeros(3000)
    request = world.Iallreduce(x, y, algorithm="ring/2")
    end = time.monotonic() + 30
    while not request.Test():
        sum(range(100))
        os.sched_yield()
        assert time.monotonic() < end
    assert not request
    assert (memory.to_host(y) == SIZE).all()


@pytest.mark.case("NB-PROGRESS")
@several
def test_waiting_for_one_advances_the_others(world):
    """Ranks wait for their requests in different orders."""
    ys = [np.zeros(10) for _ in range(4)]
    requests = [world.Iallreduce(np.full(10, float(k)), y) for k, y in enumerate(ys)]
    for request in requests if RANK % 2 else reversed(requests):
        request.Wait()
    assert [y[0] for y in ys] == [k * SIZE for k in range(4)]


@pytest.mark.case("NB-ORDER")
def test_several_in_flight_complete_in_any_order(world, memory):
    """Started in the same order everywhere, each result is its own call's."""
    total, most = memory.xp.zeros(6), memory.xp.zeros(6)
    x = memory.xp.full(6, RANK + 1.0)
    first = world.Iallreduce(x, total, MPI.SUM)
    second = world.Iallreduce(x, most, MPI.MAX)
    for request in (second, first) if RANK % 2 else (first, second):
        request.Wait()
    assert memory.to_host(total).tolist() == [SIZE * (SIZE + 1) / 2] * 6
    assert memory.to_host(most).tolist() == [SIZE] * 6
