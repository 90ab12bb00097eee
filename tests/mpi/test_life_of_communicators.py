"""Communicators: made, split, wrapped and freed, with bounded tags."""

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpi.calling import check
from mpi.cases import Case
from mpicoll.runtime.context import context
from mpicoll.schedule.program import TAGS

SIZE = MPI.COMM_WORLD.Get_size()
RANK = MPI.COMM_WORLD.Get_rank()
several = pytest.mark.mpi(min_size=2)


@pytest.mark.case("COMM-LEAK")
def test_split_use_and_free_many_times(world):
    """No communicator stays behind, nor does a wrapper make one."""
    before = len(context.live)
    for turn in range(10):
        comm = world.Split(RANK % 2, RANK)
        y = np.zeros(2)
        comm.Allreduce(np.full(2, float(turn)), y)
        comm.Iallreduce(np.full(2, float(turn)), y).Wait()
        assert y[0] == turn * comm.size
        comm.Free()
    for _ in range(500):
        mpicoll.Communicator(world)
    assert len(context.live) == before


@pytest.mark.case("COMM-NULL")
def test_ranks_are_those_of_the_communicator(comms):
    """Reversed, split and Cartesian communicators; ranks that are left out get the null one."""
    world = comms["world"]
    backwards = world.Split(0, -RANK)
    x = np.full(2, float(RANK))
    backwards.Bcast(x, root=0)
    assert x.tolist() == [SIZE - 1] * 2
    backwards.Free()
    grid = mpicoll.Communicator(MPI.COMM_WORLD.Create_cart([1, SIZE], periods=[False, True]))
    assert mpicoll.allgather(np.array(grid.rank), comm=grid).tolist() == list(range(SIZE))
    grid.Free()
    left_out = world.Split(MPI.UNDEFINED if RANK == 0 else 1)
    assert (left_out == MPI.COMM_NULL) == (RANK == 0)
    if RANK == 0:
        with pytest.raises(ValueError, match=r"^comm is the null communicator$"):
            mpicoll.Communicator(left_out)
    else:
        check(left_out, Case("Allgather"))
        left_out.Free()


@pytest.mark.case("TAG-UB")
def test_tags_stay_below_their_bound(comm):
    """Counters that were running for long make no tag too large, on split communicators too."""
    half = comm.Split(RANK % 2)
    for each in (comm, half):
        context = each._get_context()
        bound = MPI.COMM_WORLD.Get_attr(MPI.TAG_UB)
        assert context.most_slots * TAGS - 1 <= bound
        context.persistent = context.most_slots * 1000 - 10
        for turn in range(20):
            y = np.zeros(3)
            each.Iallreduce(np.full(3, float(turn)), y).Wait()
            assert y[0] == turn * each.size
            request = each.Allreduce_init(np.full(3, float(turn)), y)
            request.Start()
            request.Wait()
            request.Free()
            assert y[0] == turn * each.size
        assert max(slot.lane for slot in context.slots.values()) * TAGS <= bound
    half.Free()


@pytest.mark.case("TAG-UB")
@pytest.mark.ranks(2)  # slow with more
def test_many_segments_need_no_more_tags(world):
    """More messages than a slot has tags."""
    x = np.arange(16.0 * TAGS) + RANK
    world.Bcast(x, algorithm=f"linear/{TAGS + 5}")
    assert (x == np.arange(16.0 * TAGS)).all()


@pytest.mark.case("COMM-LAZYDUP")
@several
def test_wrapping_on_some_ranks_only(world):
    """A wrapper alone makes no collective call."""
    if RANK == 0:
        for _ in range(3):
            mpicoll.Communicator(MPI.COMM_WORLD)
    parent = MPI.COMM_WORLD.Dup()
    if RANK == 1:
        mpicoll.Communicator(parent)
    comm = mpicoll.Communicator(parent)
    check(comm, Case("Allreduce"))
    comm.Free()


@several
def test_a_communicator_is_freed_before_its_last_message_has_gone():
    """MPI frees it within a call that tests the message, where mpicoll must have nothing left to free."""
    comm = mpicoll.Communicator(MPI.COMM_WORLD.Dup())
    comm.Allreduce(np.ones(3), np.zeros(3))
    rank, y = comm.Get_rank(), np.zeros(100_000)
    request = comm.Isend(np.arange(100_000.0), 1) if rank == 0 else comm.Irecv(y, 0) if rank == 1 else None
    comm.Free()
    if request is not None:
        while not MPI.Request.Test(request):
            pass
    assert rank != 1 or (y == np.arange(100_000.0)).all()
