"""The communicator: what it is, what it makes, and that it keeps to itself."""

import time

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpi.calling import check
from mpi.cases import Case
from mpicoll.runtime.context import context

METHODS = [m for row in mpicoll.algorithms() for m in mpicoll.schedule.collectives.collective(row).methods]


def made(comm, how):
    group = comm.Get_group()
    ways = {
        "Split": lambda: comm.Split(comm.rank % 2, -comm.rank),
        "Dup": comm.Dup,
        "Clone": comm.Clone,
        "Split_type": lambda: comm.Split_type(MPI.COMM_TYPE_SHARED),
        "Create": lambda: comm.Create(group),
        "Create_group": lambda: comm.Create_group(group, 5),
    }
    try:
        return ways[how]()
    finally:
        group.Free()


MAKERS = ["Split", "Dup", "Clone", "Split_type", "Create", "Create_group"]


def test_it_is_an_intracommunicator(world):
    assert isinstance(world, MPI.Intracomm)
    assert world == MPI.COMM_WORLD
    assert (world.Get_rank(), world.Get_size()) == (MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size)
    assert mpicoll.Communicator() == MPI.COMM_WORLD


@pytest.mark.parametrize("how", MAKERS)
def test_what_it_makes_is_of_its_type(world, how):
    comm = made(world, how)
    assert type(comm) is type(world)
    check(comm, Case("Allreduce"))
    check(comm, Case("Bcast", root=-1))
    comm.Free()


@pytest.mark.parametrize("how", MAKERS)
def test_what_it_makes_has_its_rules(how):
    parent = mpicoll.Communicator(MPI.COMM_WORLD.Dup(), algorithms="allreduce:binomial")
    comm = made(parent, how)
    x, y = np.zeros(3), np.zeros(3)
    assert comm.Get_plan("Allreduce", x, y).algorithm == "binomial"
    comm.Free()
    parent.Free()


def test_a_subclass_stays_one(world):
    class Mine(mpicoll.Communicator):
        pass

    comm = Mine(world).Dup()
    assert type(comm) is Mine
    comm.Free()


@pytest.mark.mpi(min_size=2)
def test_ranks_that_are_left_out_get_the_null_communicator(world):
    inside = world.rank > 0
    comm = world.Split(0 if inside else MPI.UNDEFINED)
    assert (comm != MPI.COMM_NULL) is inside
    if inside:
        check(comm, Case("Allreduce"))
        comm.Free()
    everybody = world.Get_group()
    few = everybody.Incl([0])
    comm = world.Create(few)
    assert (comm != MPI.COMM_NULL) is (world.rank == 0)
    if comm != MPI.COMM_NULL:
        check(comm, Case("Allreduce"))
        comm.Free()
    few.Free()
    everybody.Free()


@pytest.mark.case("COMM-NULL")
def test_the_null_communicator_is_refused():
    """The error names the null communicator."""
    with pytest.raises(ValueError, match=r"^comm is the null communicator$"):
        mpicoll.Communicator(MPI.COMM_NULL)


@pytest.mark.parametrize("what", [None, 3, "world"])
def test_what_is_no_communicator_is_refused(what):
    with pytest.raises(TypeError, match=r"^comm is a .*, not a communicator$"):
        mpicoll.Communicator(what)


@pytest.mark.case("COMM-NULL")
@pytest.mark.mpi(min_size=2)
def test_an_intercommunicator_is_refused(world):
    """The error says which kind of communicator is needed."""
    local = MPI.COMM_WORLD.Split(min(world.rank, 1), world.rank)
    inter = local.Create_intercomm(0, MPI.COMM_WORLD, 1 if world.rank == 0 else 0, 7)
    with pytest.raises(TypeError, match=r"^comm is a Intercomm; collectives need an intracommunicator$"):
        mpicoll.Communicator(inter)
    inter.Free()
    local.Free()


@pytest.mark.case("COMM-NULL")
def test_cartesian_ranks_are_its_own(world):
    """A Cartesian communicator that was reordered is served."""
    cart = MPI.COMM_WORLD.Create_cart([world.size], periods=[True], reorder=True)
    comm = mpicoll.Communicator(cart)
    check(comm, Case("Allgather"))
    check(comm, Case("Scatter", root=-1))
    comm.Free()


def test_lower_case_methods_are_mpi4pys(world):
    assert world.allreduce(1) == world.size
    assert world.bcast({"rank": world.rank}) == {"rank": 0}


def test_messages_of_the_user_are_not_touched(world):
    """A receive for anything from anybody is outstanding while every collective runs."""
    rank, size = world.rank, world.size
    right, left = (rank + 1) % size, (rank - 1) % size
    got = np.zeros(2)
    request = world.Irecv(got, MPI.ANY_SOURCE, MPI.ANY_TAG)
    world.Barrier()
    for method in METHODS:
        if method != "Barrier":
            check(world, Case(method, root=1))
    world.Barrier()
    assert not request.Test()
    world.Barrier()
    sent = world.Isend(np.full(2, rank, "f8"), right, 11)
    check(world, Case("Allreduce"))
    request.Wait()
    sent.Wait()
    assert got.tolist() == [left, left]


def test_collectives_of_mpi_may_come_between(world):
    y = np.zeros(2)
    for turn in range(3):
        world.Allreduce(np.full(2, turn, "f8"), y)
        MPI.Intracomm(world).Allreduce(np.ones(1), z := np.zeros(1))
        assert (y[0], z[0]) == (turn * world.size, world.size)


def test_communicators_are_independent(comms):
    """The halves do different things at the same time."""
    half, world = comms["halves"], comms["world"]
    if world.rank * 2 // world.size:
        for root in range(half.size):
            check(half, Case("Bcast", root=root))
    else:
        check(half, Case("Alltoall"))
        check(half, Case("Scan"))
    check(world, Case("Allgather"))


def test_nothing_is_left_of_a_freed_communicator(world):
    before = len(context.live)
    for turn in range(20):
        comm = world.Split(0, world.rank)
        y = np.zeros(3)
        comm.Allreduce(np.full(3, turn, "f8"), y)
        assert y.tolist() == [turn * world.size] * 3
        comm.Free()
    assert len(context.live) == before


@pytest.mark.case("COMM-LEAK")
@pytest.mark.ranks(2)  # each is alone on them
def test_communicators_do_not_run_out():
    """MPICH has 2048 of them: more would fail if one stayed behind each time."""
    alone, y = mpicoll.Communicator(MPI.COMM_SELF), np.zeros(1)
    for turn in range(2100):
        comm = alone.Split(0)
        comm.Allreduce(np.full(1, turn, "f8"), y)
        assert y[0] == turn
        comm.Free()


@pytest.mark.case("COMM-LEAK")
def test_wrapping_again_makes_no_further_duplicate(world):
    """All wrappers of a communicator share what is private to it."""
    before = len(context.live)
    for _ in range(100):
        mpicoll.Communicator(MPI.COMM_WORLD).Barrier()
    assert len(context.live) == before
    assert mpicoll.Communicator(MPI.COMM_WORLD)._get_context() is world._get_context()


@pytest.mark.parametrize("algorithm", [a + s for a in mpicoll.algorithms("barrier")["barrier"] for s in ("", "/3")])
def test_barrier(comms, algorithm):
    """Nobody leaves before the last one has come: clocks of one machine tell."""
    for name in ("world", "reversed", "halves"):
        comm = comms[name]
        for late in {0, comm.size - 1, comm.size // 2}:
            if comm.rank == late:
                time.sleep(0.02)
            came = time.monotonic()
            comm.Barrier(algorithm=algorithm)
            times = MPI.Intracomm(comm).allgather((came, time.monotonic()))
            assert max(came for came, _ in times) <= min(left for _, left in times)
