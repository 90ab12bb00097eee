"""Counts, displacements and bytes that do not fit in 32 bits."""

import itertools
import os

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpi.cases import each_that_serves
from mpicoll.runtime.program.layout import Layout, Shape
from mpicoll.schedule.ir import Ref, Schedule

SIZE = MPI.COMM_WORLD.Get_size()
RANK = MPI.COMM_WORLD.Get_rank()


@pytest.mark.case("INT32-DISPL")
@pytest.mark.ranks(1)  # none sends
def test_addresses_of_large_arrays():
    """Counts fit in 32 bits, what they add up to does not."""
    counts = (1_200_000_000,) * 3
    displs = (0, 1_200_000_000, 2_400_000_000)
    shape = Shape(False, 0, ((counts[2],), (0,)), (counts, displs), 2, 3, False, 1)
    layout = Layout(shape, Schedule.of([], blocks=3), 2, 1, 1)
    bases = {"output": 1 << 40, "input": 0}
    assert layout.cell("output", 2, 0, bases) == ((1 << 40) + 2_400_000_000, 600_000_000)
    assert layout.cell("output", 2, 1, bases) == ((1 << 40) + 3_000_000_000, 600_000_000)
    assert layout.runs(Ref("output", (0, 1, 2)), 1, bases)[-1] == ((1 << 40) + 3_000_000_000, 600_000_000)


@pytest.mark.case("BIGCOUNT")
@pytest.mark.ranks(1)  # none sends
def test_addresses_of_a_large_vector():
    """More than 2**31 elements of 8 bytes, in segments and blocks, without a gap."""
    count = (1 << 33) + 5
    shape = Shape(True, count, ((), ()), ((), ()), 0, 4, False, 2)
    layout = Layout(shape, Schedule.of([], blocks=4), 64, 4, 8)
    runs = sorted(layout.cell("output", b, s, {"output": 0}) for s in range(64) for b in range(4))
    assert runs[0][0] == 0
    assert all(a + n == b for (a, n), (b, _) in itertools.pairwise(runs))
    assert sum(n for _, n in runs) == 8 * count
    assert max(n for _, n in runs) < 1 << 30


@pytest.mark.case("BIGCOUNT")
@pytest.mark.ranks(1)  # none sends
@pytest.mark.parametrize("name", ["Bcast", "Allreduce", "Allgather", "Alltoall", "Reduce_scatter_block", "Scan"])
def test_messages_of_large_arrays_are_cut(name):
    """No message has more than 2**30 bytes, whatever the algorithm."""
    for nbytes in ((1 << 31) + 8, 3 * (1 << 32) + 1):

        def cut(algorithm, nbytes=nbytes):
            plan = mpicoll.plan(name, size=4, nbytes=nbytes, algorithm=algorithm)
            assert plan.algorithm == algorithm
            assert -(-nbytes // plan.segments) <= 1 << 30

        assert each_that_serves(name, 4, cut)


big = pytest.mark.skipif("MPICOLL_TEST_BIG" not in os.environ, reason="takes gigabytes: set MPICOLL_TEST_BIG")


@pytest.mark.case("BIGCOUNT")
@big
@pytest.mark.slow
@pytest.mark.mpi(min_size=2)
def test_more_than_2_to_the_31_elements(world):
    """Int8 arrays a little longer than 2**31, broadcast and reduced."""
    count = (1 << 31) + 8
    x = np.full(count, RANK + 1, "i1") if RANK < 2 else np.zeros(count, "i1")
    world.Allreduce(MPI.IN_PLACE, x)
    assert x[0] == x[-1] == x[1 << 31] == x.max() == x.min() == 3
    x[-8:] = RANK
    x[:8] = RANK
    world.Bcast(x, root=1)
    assert x[-8:].tolist() == x[:8].tolist() == [1] * 8


@pytest.mark.case("INT32-DISPL")
@big
@pytest.mark.slow
@pytest.mark.mpi(min_size=2)
def test_displacements_above_2_to_the_31(world):
    """Blocks whose counts fit in 32 bits, and whose places do not."""
    each = 1_100_000_000 if SIZE == 2 else (1 << 31) // SIZE + 1000
    counts, displs = [each] * SIZE, [r * each for r in range(SIZE)]
    y = np.zeros(each * SIZE, "i1")
    y[displs[RANK] : displs[RANK] + each] = RANK + 1
    world.Allgatherv(MPI.IN_PLACE, [y, counts, displs])
    for r in range(SIZE):
        assert y[displs[r]] == y[displs[r] + each - 1] == r + 1


@pytest.mark.case("INT32-DISPL")
def test_gathered_counts_that_overflow_together(world):
    """The number of bytes is computed with Python's integers, whatever holds the counts."""
    from mpicoll.runtime.arguments.bufspec import read_spec

    spec = read_spec("allgatherv", "recvbuf", [np.zeros(1, "i1"), np.full(3, 1_200_000_000, "i4")])
    assert sum(spec.counts) == 3_600_000_000
    assert all(type(c) is int for c in spec.counts)
