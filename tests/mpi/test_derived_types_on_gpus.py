"""MPI's derived datatypes on device arrays: each call does to memory there what mpi4py's does on the host."""

import re

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpi.datatypes import TYPES, column

P = MPI.COMM_WORLD.Get_size()
RANK = MPI.COMM_WORLD.Get_rank()
PLAIN = MPI.Intracomm(MPI.COMM_WORLD)

pytestmark = pytest.mark.gpu


@pytest.fixture(params=TYPES)
def kind(request):
    made = TYPES[request.param]()
    yield made
    made.Free()


def ramp(count):
    return np.arange(float(count)) + 100 * RANK


def same(world, call, *buffers):
    """Compare what a call makes of copies of the buffers, on mpi4py's communicator and, on the device, on ours."""
    import cupy

    expected, found = [buffer.copy() for buffer in buffers], [cupy.asarray(buffer) for buffer in buffers]
    call(PLAIN, *expected)
    call(world, *found)
    assert [one.get().tobytes() for one in found] == [one.tobytes() for one in expected]


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


def test_blocks_of_many_types(world, kind):
    kinds = [kind if r % 2 else MPI.DOUBLE for r in range(P)]
    places = ([1] * P, [512 * r for r in range(P)])

    def call(c, a, b):
        c.Alltoallw([a, places, [kinds[RANK]] * P], [b, places, kinds])

    same(world, call, ramp(64 * P), ramp(64 * P))


def test_every_form(world, kind):
    import cupy

    expected = ramp(64)
    a, b = cupy.asarray(expected), cupy.asarray(expected)
    PLAIN.Bcast([expected, 2, kind], 0)
    world.Ibcast([a, 2, kind], 0).Wait()
    assert a.get().tobytes() == expected.tobytes()
    again = world.Bcast_init([b, 2, kind], 0)
    for turn in range(2):
        expected[:] = ramp(64) + turn
        b.set(expected)
        PLAIN.Bcast([expected, 2, kind], 0)
        again.Start()
        again.Wait()
        assert b.get().tobytes() == expected.tobytes()
    again.Free()


def test_a_type_that_one_rank_alone_has(world):
    """Columns of the root's matrix become rows of the others: they receive plain doubles."""
    import cupy

    matrix, row, kind = cupy.arange(3.0 * P).reshape(3, P), cupy.zeros(3), column(P)
    world.Scatter([matrix, 1, kind] if RANK == 0 else None, [row, 3, MPI.DOUBLE], 0)
    assert row.get().tolist() == [RANK, P + RANK, 2 * P + RANK]
    kind.Free()


def test_one_without_strides_is_refused(world):
    import cupy

    places = np.cumsum(np.arange(80)).tolist()
    kind = MPI.DOUBLE.Create_indexed([1] * len(places), places).Commit()
    with pytest.raises(mpicoll.UnsupportedError, match=re.escape("without strides, or of more than 64 parts")):
        world.Bcast([cupy.zeros(4000), 1, kind], 0)
    kind.Free()
