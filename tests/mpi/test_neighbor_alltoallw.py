"""Neighbor_alltoallw: a datatype for each neighbour, on grids and graphs, in three forms and beside calls in flight."""

import re

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpi.calls_in_flight import InFlight
from mpi.neighbours import TOPOLOGIES, Expected
from mpi.three_forms import forms_of

P = MPI.COMM_WORLD.Get_size()
RANK = MPI.COMM_WORLD.Get_rank()
pytestmark = pytest.mark.many_ranks


blocking, nonblocking, persistent = forms_of("Neighbor_alltoallw")


@pytest.fixture(params=TOPOLOGIES)
def comm(request, world):
    made = TOPOLOGIES[request.param](world)
    yield made
    made.Free()


@pytest.fixture
def ring(world):
    made = TOPOLOGIES["ring"](world)
    yield made
    made.Free()


def numbers(rank, block):
    """Return what a rank sends as one of its blocks."""
    return (100 * rank + 10 * block + np.arange(3)).tolist()


class Columns:
    """Each neighbour is sent every second number of a column, which becomes three numbers in a row of four.

    The types of the blocks differ: that for the first neighbour has its elements 8 B later, and begins as much earlier.
    """

    def __init__(self, comm):
        expected = Expected.of(comm)
        to, of = len(expected.targets), len(expected.sources)
        self.sent = np.full((6, 1 + to), -5)
        for block in range(to):
            self.sent[::2, 1 + block] = numbers(RANK, block)
        self.received = np.full((of, 4), -1)
        self.model = [[-1] * 4 if s is None else [*numbers(*s), -1] for s in expected.sources]
        column = MPI.INT64_T.Create_vector(3, 1, 2 * (1 + to)).Commit()
        later = column.Create_hindexed([1], [8]).Commit()
        three = MPI.INT64_T.Create_contiguous(3).Commit()
        self.kinds = column, later, three
        self.arguments = (
            [self.sent, ([1] * to, [8 * max(k, 1) for k in range(1, 1 + to)]), [column] * to],
            [self.received, [1] * of, [32 * k for k in range(of)], [three] * of],
        )
        if to:
            self.arguments[0][1][1][0], self.arguments[0][2][0] = 0, later

    def compare(self):
        assert self.received.tolist() == self.model
        self.received[:] = -1

    def free(self):
        for kind in self.kinds:
            kind.Free()


@pytest.mark.parametrize("form", [blocking, nonblocking, persistent], ids=lambda form: form.__name__)
def test_each_block_comes_from_its_neighbour(comm, form):
    call = Columns(comm)
    for _ in range(2):
        form(comm, *call.arguments)
        call.compare()
    call.free()


@pytest.mark.parametrize("form", [blocking, nonblocking], ids=lambda form: form.__name__)
@pytest.mark.parametrize("name", ["row", "graph", "doubled", "star"])
def test_it_is_what_mpi_does(world, name, form):
    """On grids and graphs where MPI libraries agree on the order of the blocks between two ranks."""
    comm = TOPOLOGIES[name](world)
    plain = next(kind for kind in (MPI.Cartcomm, MPI.Graphcomm, MPI.Distgraphcomm) if isinstance(comm, kind))(comm)
    results = []
    for one in (plain, comm):
        call = Columns(one)
        form(one, *call.arguments)
        results.append(call.received.tolist())
        call.free()
    assert results[1] == results[0]
    comm.Free()


def test_blocks_of_other_types_than_they_are_received_as(ring):
    """Doubles become bytes, at any byte."""
    x, y = np.arange(4.0) + 10 * RANK, np.full(2 * 16 + 1, 7, "u1")
    ring.Neighbor_alltoallw(
        [x, [2, 2], [0, 16], [MPI.DOUBLE, MPI.FLOAT.Create_contiguous(2).Commit()]],
        [y, ([16, 16], [1, 17]), [MPI.BYTE] * 2],
    )
    left, right = ((RANK - 1) % P, (RANK + 1) % P)
    assert y[1:].tobytes() == np.array([10 * left + 2, 10 * left + 3, 10 * right, 10 * right + 1.0]).tobytes()
    assert y[0] == 7


def test_addresses_from_the_bottom_of_memory(ring):
    x, y = np.array([10 * RANK, 10 * RANK + 1]), np.zeros(2, int)
    places = [[MPI.Get_address(a[k:]) for k in range(2)] for a in (x, y)]
    ring.Neighbor_alltoallw(*[[MPI.BOTTOM, [1, 1], at, [MPI.INT64_T] * 2] for at in places])
    assert y.tolist() == [10 * ((RANK - 1) % P) + 1, 10 * ((RANK + 1) % P)]


def test_nothing_is_read_of_a_block_for_nobody(world):
    """Beyond the edge of a grid: neither its address nor its type; its place in recvbuf is left alone."""
    row = TOPOLOGIES["row"](world)
    x, y = np.array([10 * RANK, 10 * RANK + 1]), np.full(2, -1)
    there = [rank != MPI.PROC_NULL for rank in row.inoutedges[0]]
    kinds = [MPI.INT64_T if some else MPI.DATATYPE_NULL for some in there]
    specs = []
    for array in (x, y):
        at = [MPI.Get_address(array[k:]) if some else 0 for k, some in enumerate(there)]
        specs.append([MPI.BOTTOM, [1, 1], at, kinds])
    row.Neighbor_alltoallw(*specs)
    assert y.tolist() == [10 * (RANK - 1) + 1 if RANK else -1, 10 * (RANK + 1) if RANK < P - 1 else -1]
    row.Free()


def test_ranks_without_neighbours_may_give_nothing(world):
    comm = TOPOLOGIES["star"](world)
    number, y = P - 1, np.zeros(1)
    sent = [np.ones(number), [1] * number, [8 * k for k in range(number)], [MPI.DOUBLE] * number]
    comm.Neighbor_alltoallw(None if RANK else sent, [y, [MPI.DOUBLE]] if RANK else None)
    assert y[0] == (1 if RANK else 0)
    comm.Free()


@pytest.mark.parametrize("in_flight", [False, True])
def test_calls_in_flight_go_on(world, ring, in_flight):
    other = mpicoll.Communicator(MPI.COMM_WORLD.Dup())
    other.Barrier()  # Open MPI duplicates communicators one after the other, in an order of its own
    flight = InFlight(other) if in_flight else None
    if flight and RANK == 0:  # which needs that the others go on with it
        flight.request.Wait()
    call = Columns(ring)
    for form in (blocking, nonblocking):
        form(ring, *call.arguments)
        call.compare()
    call.free()
    if flight:
        flight.finish()
    other.Free()


def test_plans_and_history(ring):
    x, y = np.arange(2), np.zeros(2, int)
    spec = [[1, 1], [0, 8], [MPI.INT64_T] * 2]
    plan = ring.Get_plan("Neighbor_alltoallw", [x, *spec], [y, *spec])
    assert (plan.algorithm, plan.path) == ("linear", "host")
    ring.Neighbor_alltoallw([x, *spec], [y, *spec])
    last = ring.history(1)[0]
    assert (last.name, last.data, last.plan) == ("Neighbor_alltoallw", "16 uint8", "linear@host")


@pytest.mark.parametrize("debug", [0, 1])
def test_mistakes_name_both_numbers(ring, debug):
    def raises(kind, text):
        return pytest.raises(kind, match=re.escape(text))

    x, y, good = np.zeros(2), np.zeros(2), [[1, 1], [0, 8], [MPI.DOUBLE] * 2]
    with mpicoll.override(debug=debug):
        text = "neighbor_alltoallw: sendbuf has 3 counts, 2 displacements and 2 types for 2 neighbours"
        with raises(ValueError, text):
            ring.Neighbor_alltoallw([x, [1, 1, 1], *good[1:]], [y, *good])
        with raises(ValueError, "recvbuf has 16 bytes, too few for 1 items from byte 16 on, block 1"):
            ring.Neighbor_alltoallw([x, *good], [y, [1, 1], [0, 16], good[2]])
        with raises(TypeError, "neighbor_alltoallw: sendbuf is not (array, (counts, displacements), types)"):
            ring.Neighbor_alltoallw(MPI.IN_PLACE, [y, *good])
        if P == 1:
            text = "neighbor_alltoallw: recvbuf's block 1 expects 8 bytes from this rank itself, sendbuf has 0 for it"
            with raises(ValueError, text):
                ring.Neighbor_alltoallw([x, [0, 1], *good[1:]], [y, *good])
    ring.Neighbor_alltoallw([x, *good], [y, *good])


@pytest.mark.gpu
def test_arrays_on_a_device_are_as_those_on_the_host(ring):
    import cupy

    column = MPI.DOUBLE.Create_vector(2, 1, 3).Commit()
    x, y = np.arange(12.0) + 100 * ring.rank, np.zeros(12)
    there, here = [[1, 2], [8, 0], [column, MPI.DOUBLE]], [[2, 1], [64, 0], [MPI.DOUBLE, column]]
    a, b = cupy.asarray(x), cupy.asarray(y)
    ring.Neighbor_alltoallw([x, *there], [y, *here])
    ring.Neighbor_alltoallw([a, *there], [b, *here])
    assert b.get().tolist() == y.tolist()
    column.Free()
