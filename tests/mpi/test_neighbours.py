"""The neighbour collectives: on grids and graphs, in all forms, with calls in flight."""

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpi.calls_in_flight import InFlight
from mpi.neighbours import TOPOLOGIES, Call, Expected

SIZE = MPI.COMM_WORLD.Get_size()
RANK = MPI.COMM_WORLD.Get_rank()
METHODS = ["Neighbor_allgather", "Neighbor_allgatherv", "Neighbor_alltoall", "Neighbor_alltoallv"]
pytestmark = [pytest.mark.many_ranks, pytest.mark.usefixtures("on_path")]


@pytest.fixture(params=TOPOLOGIES)
def comm(request, world):
    made = TOPOLOGIES[request.param](world)
    yield made
    made.Free()


def in_form(comm, method, form, arguments):
    if form == "blocking":
        getattr(comm, method)(*arguments)
    elif form == "nonblocking":
        getattr(comm, f"I{method.lower()}")(*arguments).Wait(synchronize=True)
    else:
        request = getattr(comm, f"{method}_init")(*arguments)
        request.Start()
        request.Wait(synchronize=True)
        request.Free()


@pytest.mark.parametrize("form", ["blocking", "nonblocking", "persistent"])
@pytest.mark.parametrize("method", METHODS)
def test_each_block_comes_from_its_neighbour(comm, memory, method, form):
    for gap in (0, 2) if method.endswith("v") else (0,):
        call = Call(comm, method, memory.xp, gap)
        for _ in range(4):  # from the third one on it takes the shortcut
            in_form(comm, method, form, call.arguments)
            call.compare(memory.to_host)


@pytest.mark.parametrize("method", METHODS)
def test_strided_arrays(comm, memory, method):
    call = Call(comm, method, memory.xp)
    wide = memory.xp.full(2 * len(call.sent), -1.0)
    wide[::2] = call.sent
    first = call.arguments[0]
    strided = [wide[::2], *first[1:]] if isinstance(first, list) else wide[::2]
    for _ in range(2):
        getattr(comm, method)(strided, call.arguments[1])
        call.compare(memory.to_host)


def test_it_is_what_mpi_does(world):
    """On a grid of at least 3 ranks in each direction, where MPI libraries agree."""
    comm = world.Create_cart([SIZE], periods=[SIZE > 2])
    x, y, z = np.arange(4.0) + 10 * RANK, np.zeros(4), np.zeros(4)
    comm.Neighbor_alltoall(x, y)
    MPI.Cartcomm(comm).Neighbor_alltoall(x, z)
    assert y.tolist() == z.tolist()
    comm.Free()


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("method", METHODS)
def test_calls_in_flight_go_on(world, method):
    """A rank that is late for one call is a neighbour in another one: nobody waits for ever."""
    comm, other = TOPOLOGIES["ring"](world), mpicoll.Communicator(MPI.COMM_WORLD.Dup())
    other.Barrier()  # Open MPI duplicates communicators one after the other, in an order of its own
    flight = InFlight(other)
    call = Call(comm, method)
    if RANK == 0:
        flight.request.Wait()
    getattr(comm, method)(*call.arguments)
    call.compare()
    flight.finish()
    for one in (comm, other):
        one.Free()


def test_one_that_comes_again_is_only_run(world):
    """It is found by the identity of its arrays."""
    comm = TOPOLOGIES["ring"](world)
    call = Call(comm, "Neighbor_alltoall")
    for _ in range(4):
        comm.Neighbor_alltoall(*call.arguments)
        call.compare()
    assert comm._get_context().cache.identities
    comm.Free()


def test_several_are_in_flight_in_the_order_of_their_calls(comm):
    calls = [Call(comm, method) for method in METHODS]
    requests = [
        getattr(comm, f"I{method.lower()}")(*call.arguments) for method, call in zip(METHODS, calls, strict=True)
    ]
    x, y = np.full(100, RANK + 1.0), np.zeros(100)
    comm.Allreduce(x, y)
    assert (y == SIZE * (SIZE + 1) / 2).all()
    for request, call in reversed(list(zip(requests, calls, strict=True))):
        request.Wait()
        call.compare()


def test_plans_and_history(world):
    comm = TOPOLOGIES["ring"](world)
    x, y = np.zeros(4), np.zeros(4)
    plan = comm.Get_plan("Neighbor_alltoall", x, y)
    assert (plan.algorithm, plan.path, plan.candidates()) == ("linear", "host", [])
    assert plan.explanation().chosen.why in str(plan)
    assert str(plan).startswith(f"neighbor_alltoall of unknown size on {SIZE} ranks (host arrays, rank {RANK})")
    comm.Neighbor_alltoall(x, y)
    last = comm.history(1)[0]
    assert (last.name, last.data, last.plan) == ("Neighbor_alltoall", "4 float64", "linear@host")
    comm.Free()


@pytest.mark.ranks(2, 3)
@pytest.mark.parametrize("debug", [0, 1])
def test_mistakes_name_both_numbers(world, debug):
    comm = TOPOLOGIES["ring"](world)
    x, y = np.zeros(4), np.zeros(5)
    with mpicoll.override(debug=debug):
        with pytest.raises(ValueError, match=r"^neighbor_alltoall: recvbuf has 5 elements, not a multiple of 2 neigh"):
            comm.Neighbor_alltoall(x, y)
        with pytest.raises(ValueError, match=r"^neighbor_alltoallv: recvbuf has 3 counts and 3 .* for 2 neighbours$"):
            comm.Neighbor_alltoallv([x, [2, 2]], [y, [1, 1, 1]])
        with pytest.raises(TypeError, match=r"^neighbor_allgather: sendbuf is float64, recvbuf is float32$"):
            comm.Neighbor_allgather(x, np.zeros(8, "f4"))
        with pytest.raises(ValueError, match=r"^neighbor_allgather: recvbuf overlaps sendbuf; use separate arrays$"):
            comm.Neighbor_allgather(x[:2], x)
        with pytest.raises(ValueError, match=r"^neighbor_allgather: sendbuf cannot be MPI.IN_PLACE$"):
            comm.Neighbor_allgather(MPI.IN_PLACE, x)
    call = Call(comm, "Neighbor_alltoall")
    comm.Neighbor_alltoall(*call.arguments)
    call.compare()
    comm.Free()


def test_a_block_for_oneself_is_as_long_as_it_is_expected(world):
    me = [RANK]
    comm = world.Create_dist_graph_adjacent(me, me)
    text = r"^neighbor_alltoall: recvbuf's block 0 expects 3 elements from this rank itself, sendbuf has 4 for it$"
    with pytest.raises(ValueError, match=text):
        comm.Neighbor_alltoall(np.zeros(4), np.zeros(3))
    comm.Free()


@pytest.mark.parametrize("method", METHODS)
def test_given_types(world, method):
    """Bytes, and every second element of an array; a block for oneself has another type than what it comes as."""
    comm = TOPOLOGIES["doubled"](world)
    second = MPI.DOUBLE.Create_resized(0, 16).Commit()
    call = Call(comm, method)
    first, into = call.arguments
    counts = first[1] if isinstance(first, list) else [len(first) // (1 if "allgather" in method else 3)]
    number = sum(counts) if isinstance(first, list) or "allgather" in method else counts[0]
    wide = np.full(2 * len(call.sent), -1.0)
    wide[::2] = call.sent
    spec = [wide, counts, second] if isinstance(first, list) else [wide, number, second]
    getattr(comm, method)(spec, into)
    call.compare()
    if not isinstance(into, list):
        getattr(comm, method)(first, [into, MPI.BYTE])
        call.compare()
    second.Free()
    comm.Free()


def test_ranks_without_neighbours_may_give_nothing(world):
    comm = TOPOLOGIES["star"](world)
    x, y = (np.ones(3 * (SIZE - 1)), None) if RANK == 0 else (None, np.zeros(3))
    comm.Neighbor_alltoall(x, y)
    assert y is None or y.tolist() == [1.0] * 3
    comm.Free()


def test_in_a_group_they_are_refused(world):
    comm = TOPOLOGIES["ring"](world)
    with pytest.raises(mpicoll.UnsupportedError), mpicoll.group(comm):
        comm.Neighbor_allgather(np.zeros(1), np.zeros(2))
    comm.Free()


def test_grids_of_two_in_a_row_are_read_as_grids(world):
    """Where both neighbours are one rank, what is sent down comes from above."""
    comm = TOPOLOGIES["torus"](world)
    expected = Expected.of(comm)
    x, y = np.arange(4.0), np.zeros(4)
    comm.Neighbor_alltoall(x, y)
    assert y.tolist() == [block for _, block in expected.sources]
    comm.Free()
