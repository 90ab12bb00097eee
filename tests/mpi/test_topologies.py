"""Communicators with a topology, and between groups: whatever makes them, they are of mpicoll's types."""

import copy
import pickle

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpi.calling import check
from mpi.calls_in_flight import InFlight
from mpi.cases import Case
from mpi.topologies import MAKERS, ring_graph
from mpicoll import communicator as kinds
from mpicoll.derived import Intercommunicator

SIZE = MPI.COMM_WORLD.Get_size()
RANK = MPI.COMM_WORLD.Get_rank()
RULES = "allreduce:binomial"
TYPES = {
    "cart": (kinds.CartCommunicator, MPI.Cartcomm),
    "graph": (kinds.GraphCommunicator, MPI.Graphcomm),
    "dist_graph": (kinds.DistGraphCommunicator, MPI.Distgraphcomm),
    "dist_graph_adjacent": (kinds.DistGraphCommunicator, MPI.Distgraphcomm),
}
#: what gives the same topology again
COPIES = {
    "Dup": lambda comm: comm.Dup(),
    "Clone": lambda comm: comm.Clone(),
    "Dup_with_info": lambda comm: comm.Dup_with_info(MPI.INFO_NULL),
    "Idup": lambda comm: completed(comm.Idup()),
}
#: what gives another object of the same handle
WRAPPERS = {
    "copy": copy.copy,
    "f2py": lambda comm: mpicoll.Communicator.f2py(comm.py2f()),
    "fromhandle": lambda comm: mpicoll.Communicator.fromhandle(comm.handle),
    "Communicator": mpicoll.Communicator,
}


def completed(made):
    comm, request = made
    request.Wait()
    return comm


@pytest.fixture
def parent():
    comm = mpicoll.Communicator(MPI.COMM_WORLD.Dup(), algorithms=RULES)
    yield comm
    comm.Free()


def works(comm, rules=RULES):
    """A collective runs, by the rules that the communicator has."""
    check(comm, Case("Allreduce"))
    x, y = np.zeros(3), np.zeros(3)
    by_rule = comm.Get_plan("Allreduce", x, y).algorithm == "binomial"
    assert comm._rules == rules
    assert by_rule or not rules
    return True


@pytest.mark.parametrize("how", MAKERS)
def test_what_has_a_topology_has_its_methods_and_the_rules(parent, how):
    comm = MAKERS[how](parent)
    ours, theirs = TYPES[how]
    assert type(comm) is ours
    assert isinstance(comm, theirs)
    assert isinstance(comm, mpicoll.Communicator)
    plain = theirs(comm)
    assert comm.inoutedges == plain.inoutedges
    if how == "cart":
        assert (comm.dims, comm.coords, comm.Shift(0, 1)) == (plain.dims, plain.coords, plain.Shift(0, 1))
    elif how == "graph":
        assert comm.Get_neighbors(RANK) == plain.Get_neighbors(RANK)
    else:
        assert comm.Get_dist_neighbors() == plain.Get_dist_neighbors()
    assert works(comm)
    comm.Free()


@pytest.mark.parametrize("again", COPIES)
@pytest.mark.parametrize("how", MAKERS)
def test_what_is_made_from_it_is_what_mpi4py_makes(parent, how, again):
    comm = MAKERS[how](parent)
    same = COPIES[again](comm)
    assert type(same) is type(comm)
    assert same != comm
    assert same.inoutedges == comm.inoutedges
    assert works(same)
    same.Free()
    half = comm.Split(RANK % 2)
    assert type(half) is mpicoll.Communicator
    assert works(half)
    half.Free()
    comm.Free()


@pytest.mark.parametrize("wrap", WRAPPERS)
@pytest.mark.parametrize("how", [*MAKERS, "none"])
def test_another_object_of_it_is_of_its_type(parent, how, wrap):
    comm = MAKERS[how](parent) if how != "none" else parent.Dup()
    same = WRAPPERS[wrap](comm)
    assert type(same) is type(comm)
    assert same == comm
    rules = "" if wrap in ("f2py", "fromhandle") else RULES  # a handle has none
    assert works(mpicoll.Communicator(same, algorithms=RULES) if not rules else same)
    assert same._rules == rules
    comm.Free()


@pytest.mark.parametrize("again", [copy.deepcopy, lambda comm: pickle.loads(pickle.dumps(comm))])
def test_what_mpi4py_cannot_pickle_is_refused_as_there(parent, again):
    """It pickles the communicators that are always there, by their names."""
    for comm in (mpicoll.Communicator(MPI.COMM_WORLD, algorithms=RULES), mpicoll.Communicator(MPI.COMM_SELF)):
        same = again(comm)
        assert type(same) is mpicoll.Communicator
        assert (same == comm, same._rules) == (True, comm._rules)
    grid = MAKERS["cart"](parent)
    with pytest.raises(ValueError, match="cannot serialize"):
        again(grid)
    grid.Free()


def test_rows_and_columns_of_a_grid(parent):
    grid = parent.Create_cart(MPI.Compute_dims(SIZE, 2), periods=[True, False])
    row, column = grid.Sub([False, True]), grid.Sub([True, False])
    for part, dimension in ((row, 1), (column, 0)):
        assert type(part) is kinds.CartCommunicator
        assert part.dims == [grid.dims[dimension]]
        assert part.Get_coords(part.rank) == [grid.coords[dimension]]
        assert works(part)
        part.Free()
    grid.Free()


@pytest.mark.mpi(min_size=2)
def test_ranks_beyond_a_grid_get_the_null_communicator(parent):
    grid = parent.Create_cart([SIZE - 1])
    assert (grid == MPI.COMM_NULL) is (RANK == SIZE - 1)
    if grid != MPI.COMM_NULL:
        assert type(grid) is kinds.CartCommunicator
        grid.Free()


def test_a_subclass_stays_one_where_it_is_for_the_topology(world):
    class Mine(mpicoll.Communicator):
        pass

    class Grid(kinds.CartCommunicator):
        pass

    mine = Mine(world)
    made = {"own": (mine.Dup(), Mine), "grid": (mine.Create_cart([SIZE]), kinds.CartCommunicator)}
    grid = Grid(made["grid"][0])
    made |= {"part": (grid.Sub([True]), Grid), "half": (grid.Split(0), mpicoll.Communicator)}
    assert type(copy.copy(mine)) is Mine
    assert type(copy.copy(grid)) is Grid
    assert type(Mine(made["grid"][0])) is Mine
    for comm, kind in made.values():
        assert type(comm) is kind
        comm.Free()


@pytest.mark.parametrize("kind", [kinds.CartCommunicator, kinds.GraphCommunicator, kinds.DistGraphCommunicator])
def test_a_class_with_a_topology_refuses_others(kind):
    with pytest.raises(TypeError, match=r"^comm is a Intracomm without the topology of a (Cart|Graph|Distgraph)comm$"):
        kind(MPI.COMM_WORLD)


def test_a_handle_is_of_what_it_is(world):
    """Whatever class is asked, as in mpi4py."""
    assert mpicoll.Communicator.fromhandle(MPI.COMM_NULL.handle) == MPI.COMM_NULL
    assert type(kinds.CartCommunicator.fromhandle(world.handle)) is mpicoll.Communicator
    assert type(kinds.CartCommunicator.f2py(world.py2f())) is mpicoll.Communicator


def test_from_a_group(world):
    everybody = MPI.COMM_WORLD.Get_group()
    comm = mpicoll.Communicator.Create_from_group(everybody, "mpicoll.tests")
    assert type(comm) is mpicoll.Communicator
    assert works(comm, rules="")
    comm.Free()
    everybody.Free()


@pytest.mark.mpi(min_size=2)
def test_an_intercommunicator_merges_into_ours(parent):
    """Collectives on it are mpi4py's; what it makes is of mpicoll's types, with the rules."""
    half = parent.Split(min(RANK, 1), RANK)
    inter = half.Create_intercomm(0, parent, 1 if RANK == 0 else 0, 7)
    assert type(inter) is Intercommunicator
    assert inter.remote_size == SIZE - half.size
    assert inter.allreduce(1) == inter.remote_size
    with pytest.raises(TypeError, match=r"^comm is a Intercommunicator; collectives need an intracommunicator$"):
        mpicoll.Communicator(inter)
    again = inter.Dup()
    assert type(again) is type(copy.copy(inter)) is Intercommunicator
    assert type(mpicoll.Communicator.fromhandle(inter.handle)) is Intercommunicator
    for one in (inter, again):
        merged = one.Merge(high=RANK > 0)
        assert type(merged) is mpicoll.Communicator
        assert (merged.rank, merged.size) == (RANK, SIZE)
        assert works(merged)
        merged.Free()
        one.Free()
    half.Free()


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("how", MAKERS)
def test_calls_in_flight_end_before_ranks_wait_in_mpi(comm, how):
    """One rank comes late to the call, the others wait in what makes a communicator."""
    flight = InFlight(comm)
    made = MAKERS[how](comm)
    assert flight.request.Test()
    made.Free()
    flight.finish()


def test_all_is_refused_in_a_group(world):
    with pytest.raises(mpicoll.UnsupportedError), mpicoll.group(world):
        ring_graph(world)
