"""MPI's derived datatypes: each call does to memory what mpi4py's does, and other ranks need not have the type."""

import re

import numpy as np
import pytest
from mpi4py import MPI

from mpi.datatypes import TYPES, column

P = MPI.COMM_WORLD.Get_size()
RANK = MPI.COMM_WORLD.Get_rank()
PLAIN = MPI.Intracomm(MPI.COMM_WORLD)


def raised(kind, text):
    return pytest.raises(kind, match=re.escape(text))


def ramp(count):
    return np.arange(float(count)) + 100 * RANK


def same(world, call, *buffers):
    """Compare what a call makes of copies of the buffers, on mpi4py's communicator and on ours."""
    results = []
    for comm in (PLAIN, world):
        mine = [buffer.copy() for buffer in buffers]
        call(comm, *mine)
        results.append([buffer.tobytes() for buffer in mine])
    assert results[1] == results[0]


@pytest.fixture(params=TYPES)
def kind(request):
    made = TYPES[request.param]()
    yield made
    made.Free()


def test_from_the_root(world, kind):
    same(world, lambda c, a: c.Bcast([a, 2, kind], P - 1), ramp(64))


def test_all_blocks(world, kind):
    same(world, lambda c, a, b: c.Allgather([a, 1, kind], [b, 1, kind]), ramp(64), ramp(64 * P))
    same(world, lambda c, a, b: c.Alltoall([a, 1, kind], [b, 1, kind]), ramp(64 * P), ramp(64 * P))


def test_blocks_of_many_sizes_in_any_place(world, kind):
    counts, places = [1 + r % 2 for r in range(P)], [3 * r for r in range(P)]

    def call(c, a, b):
        c.Allgatherv([a, counts[RANK], kind], [b, (counts, places), kind])

    same(world, call, ramp(64), ramp(256 * P))


def test_every_form(world, kind):
    """The type may be freed once a call has begun, and a persistent call packs at each start."""
    a, b = ramp(64), ramp(64)
    expected = a.copy()
    PLAIN.Bcast([expected, 2, kind], 0)
    own = kind.Dup()
    request = world.Ibcast([a, 2, own], 0)
    own.Free()
    request.Wait()
    assert a.tobytes() == expected.tobytes()
    again = world.Bcast_init([b, 2, kind], 0)
    for turn in range(2):
        b[:] = ramp(64) + turn
        expected[:] = b
        PLAIN.Bcast([expected, 2, kind], 0)
        again.Start()
        again.Wait()
        assert b.tobytes() == expected.tobytes()
    again.Free()


def test_a_type_that_one_rank_alone_has(world):
    """Columns of the root's matrix become rows of the others: they receive plain doubles."""
    matrix, row, kind = np.arange(3.0 * P).reshape(3, P), np.zeros(3), column(P)
    world.Scatter([matrix, 1, kind] if RANK == 0 else None, [row, 3, MPI.DOUBLE], 0)
    assert row.tolist() == [RANK, P + RANK, 2 * P + RANK]
    back = np.zeros((3, P))
    world.Gather([row, 3, MPI.DOUBLE], [back, 1, kind] if RANK == 0 else None, 0)
    assert (back == matrix).all() or RANK > 0
    kind.Free()


def test_without_a_count_as_many_items_as_the_memory_has(world):
    kind = MPI.DOUBLE.Create_contiguous(2).Commit()
    a = ramp(7)
    world.Bcast([a, kind], 0)
    assert a.tolist() == [*range(6), 6.0 + 100 * RANK]
    kind.Free()


NOTHING = {
    "contiguous": lambda: MPI.DOUBLE.Create_contiguous(0).Commit(),
    "apart": lambda: MPI.DOUBLE.Create_vector(0, 1, 3).Create_resized(0, 8).Commit(),
}


@pytest.mark.parametrize("make", NOTHING.values(), ids=NOTHING)
def test_types_without_elements(world, make):
    """Of which any number is in any memory, and in none."""
    kind = make()

    def call(c, a, b):
        c.Bcast([a, 3, kind], 0)
        c.Allgather([a, 2, kind], [b, 2, kind])
        c.Allgatherv([a, 2, kind], [b, [2] * P, kind])
        c.Alltoallw([a, ([1] * P, [64] * P), [kind] * P], [b, ([1] * P, [64] * P), [kind] * P])

    same(world, call, ramp(2), ramp(2))
    same(world, call, ramp(0), ramp(0))
    kind.Free()


def test_too_little_memory_is_refused_before_anything_is_sent(world):
    kind = column(8)
    with raised(ValueError, "bcast: buf has 128 bytes, too few for 2 items"):
        world.Bcast([np.zeros(16), 2, kind], 0)
    kind.Free()


def test_no_operator_is_defined_for_derived_types(world):
    kind = column(8)
    with raised(TypeError, "allreduce: op SUM is not defined for derived datatypes"):
        world.Allreduce([np.zeros(64), 1, kind], np.zeros(3))
    kind.Free()
