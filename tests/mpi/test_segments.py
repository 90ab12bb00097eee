"""Many segments of unequal lengths, more than are in flight: scratch is used again and again."""

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpicoll.dispatch.limits import LANES
from mpicoll.schedule.program import TAGS

SIZE = MPI.COMM_WORLD.Get_size()
MANY = 4 * LANES


@pytest.fixture(scope="module")
def comm():
    return mpicoll.Communicator(MPI.COMM_WORLD.Dup())


@pytest.mark.parametrize("name", mpicoll.algorithms("reduce_scatter")["reduce_scatter"])
def test_uneven_blocks_in_many_segments(comm, name):
    counts = [33333 * (1 + r % 2) + r for r in range(SIZE)]
    start = sum(counts[: comm.rank])
    x = np.arange(sum(counts), dtype="f4") % 1000 + comm.rank
    wanted = (np.arange(sum(counts)) % 1000 * SIZE + SIZE * (SIZE - 1) // 2)[start : start + counts[comm.rank]]
    for _ in range(5):
        y = np.full(counts[comm.rank], np.nan, "f4")
        comm.Reduce_scatter(x, y, counts, algorithm=f"{name}/{MANY}")
        assert (y == wanted).all()


@pytest.mark.parametrize("name", mpicoll.algorithms("exscan")["exscan"])
def test_a_length_that_no_number_of_segments_divides(comm, name):
    x = np.arange(100_003, dtype="f4") % 1000
    for _ in range(5):
        y = np.full_like(x, -1)
        comm.Exscan(x, y, algorithm=f"{name}/{MANY}")
        assert (y == (x * comm.rank if comm.rank else -1)).all()


@pytest.mark.ranks(3)  # slow with more
def test_more_segments_than_tags_give_right_results(comm):
    """Lanes reach different messages at the same time on two ranks, whose tags must not be mixed up."""
    segments = TAGS + 1
    x = np.random.default_rng(1).integers(0, 1 << 40, size=(SIZE, 4 * segments))
    y = np.zeros(4 * segments, "i8")
    comm.Allreduce(x[comm.rank].copy(), y, algorithm=f"ring/{segments}")
    assert (y == x.sum(axis=0)).all()


@pytest.mark.ranks(2)  # slow with more
def test_small_segments_of_a_long_vector_give_right_results(comm):
    """The number of segments follows from their size; unequal ones do not cut each other off."""
    count = 4 * SIZE * (TAGS + 2)
    x = np.random.default_rng(1).integers(0, 1 << 40, size=(SIZE, count))
    y = np.zeros(count, "i8")
    with mpicoll.override(segment_bytes=32):
        comm.Allreduce(x[comm.rank].copy(), y, algorithm="ring")
        assert comm.Get_plan("Allreduce", x[0], y, algorithm="ring").segments > TAGS
    assert (y == x.sum(axis=0)).all()
