"""Algorithms: each on this number of ranks, with the same bits everywhere, chosen at exact bounds."""

import zlib

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpi.calling import check
from mpi.cases import REDUCING, ROOTED, VECTOR, Case, each_that_serves
from mpicoll.algorithms import registry

pytestmark = [pytest.mark.many_ranks, pytest.mark.usefixtures("on_path")]

SIZE = MPI.COMM_WORLD.Get_size()
RANK = MPI.COMM_WORLD.Get_rank()


@pytest.mark.case("ALGO-NPOF2")
@pytest.mark.parametrize("method", [m for row in registry.COLLECTIVES.values() for m in row.methods if m != "Barrier"])
def test_every_algorithm_on_this_number_of_ranks(world, memory, method):
    """Right, or refused by name; the first and the last rank as root."""
    for algorithm in next(iter(mpicoll.algorithms(method).values())):
        for root in sorted({0, SIZE - 1}) if method in ROOTED else (0,):
            check(world, Case(method, algorithm, 5, "uneven" if method in VECTOR else "", root=root), memory)


@pytest.mark.case("FP-CONSISTENT")
@pytest.mark.parametrize("dtype", ["f2", "f4"])
def test_bits_do_not_depend_on_the_rank(world, memory, dtype):
    """For every algorithm; and with reproducible="ranks" not on algorithm or length either."""
    data = np.random.default_rng(RANK).standard_normal(4000).astype(dtype)
    for count in (1, 16, 4000):
        y = memory.xp.zeros(count, dtype)
        world.Allreduce(memory.xp.asarray(data[:count]), y)
        assert len(set(MPI.COMM_WORLD.allgather(zlib.crc32(memory.to_host(y).tobytes())))) == 1
    found = set()
    with mpicoll.override(reproducible="ranks"):
        for count in (16, 100, 4000):
            y = memory.xp.zeros(count, dtype)
            world.Allreduce(memory.xp.asarray(data[:count]), y)
            found.add(memory.to_host(y)[:16].tobytes())

        def reduce(algorithm):
            y = memory.xp.zeros(50, dtype)
            world.Allreduce(memory.xp.asarray(data[:50]), y, algorithm=algorithm)
            found.add(memory.to_host(y)[:16].tobytes())

        ran = each_that_serves("allreduce", SIZE, reduce, left_fold=True)
    assert len(found) == 1
    assert ran


@pytest.mark.case("TUNE-SIZE")
def test_a_threshold_is_exact(comm):
    """One byte less, the same, one more; and which algorithm ran can be asked."""
    for count, name in ((99, "linear"), (100, "binomial"), (101, "binomial")):
        x = np.zeros(count, "u1")
        with mpicoll.override(algorithms="bcast:0-100:linear;bcast:100-inf:binomial"):
            plan = comm.Get_plan("Bcast", x)
            assert plan.algorithm == name
            assert "the setting `algorithms`" in str(plan)
            comm.Bcast(x)
    with (
        mpicoll.override(algorithms="bcast:100:linear:64"),
        pytest.raises(ValueError, match=r"^the setting `algorithms`: rule 'bcast:100:linear:64'"),
    ):
        comm.Bcast(x)


@pytest.mark.case("ALGO-NPOF2")
def test_reductions_at_every_root(world):
    """Whatever the distance to the root is."""
    for method in (m for m in REDUCING if m in ROOTED):
        for root in range(SIZE):
            check(world, Case(method, None, 3, root=root))
