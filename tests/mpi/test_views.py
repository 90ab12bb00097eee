"""Views of arrays: strided, transposed, starting elsewhere, reversed, overlapping."""

import numpy as np
import pytest
from mpi4py import MPI

from mpi.calling import check
from mpi.cases import Case

pytestmark = pytest.mark.usefixtures("on_path")

SIZE = MPI.COMM_WORLD.Get_size()


def total(values):
    return sum(values(r) for r in range(SIZE))


@pytest.mark.case("LAYOUT-STRIDED-SEND")
def test_slices_and_transposed_slices(world, memory):
    """Every second column is reduced, rows of a transposed matrix are sent."""
    xp, rank = memory.xp, world.rank
    x = xp.arange(24.0).reshape(4, 6) + rank
    y = xp.zeros((4, 3))
    world.Allreduce(x[:, ::2], y)
    host = np.arange(24.0).reshape(4, 6)
    assert (memory.to_host(y) == SIZE * host[:, ::2] + SIZE * (SIZE - 1) / 2).all()
    world.Bcast(x.T[1:3], root=SIZE - 1)
    sent = host + rank
    sent[:, 1:3] = host[:, 1:3] + SIZE - 1
    assert (memory.to_host(x) == sent).all()


@pytest.mark.case("LAYOUT-FC")
@pytest.mark.parametrize("orders", ["FC", "CF", "FF"])
def test_the_order_in_memory_changes_no_element(world, memory, orders):
    """One order where it is sent and another where it is received, in every kind of call."""
    xp, rank = memory.xp, world.rank
    matrix = np.arange(6.0).reshape(2, 3)
    mine = xp.asarray(matrix + 10 * rank, order=orders[0])
    out = xp.asarray(np.zeros((2, 3)), order=orders[1])
    world.Allreduce(mine, out)
    assert (memory.to_host(out) == total(lambda r: matrix + 10 * r)).all()
    both = mine if rank == 0 else out
    world.Bcast(both)
    assert (memory.to_host(both) == matrix).all()
    many = xp.asarray(np.zeros((SIZE * 2, 3)), order=orders[1])
    mine[...] = xp.asarray(matrix + 10 * rank)
    world.Gather(mine, many if rank == SIZE - 1 else None, root=SIZE - 1)
    if rank == SIZE - 1:
        assert (memory.to_host(many) == np.concatenate([matrix + 10 * r for r in range(SIZE)])).all()


@pytest.mark.case("LAYOUT-OFFSET")
def test_slices_that_start_elsewhere(world, memory):
    """A slice is sent from its own start, into another's own start."""
    xp, rank = memory.xp, world.rank
    x, y = xp.arange(20.0) + rank, xp.full(30, -1.0)
    world.Allreduce(x[7:19], y[11:23])
    host = np.full(30, -1.0)
    host[11:23] = total(lambda r: np.arange(7.0, 19.0) + r)
    assert (memory.to_host(y) == host).all()
    world.Allreduce(x[1:2], y[:1])
    assert float(y[0]) == total(lambda r: 1 + r)
    view = x[1:2]
    x += 5
    world.Allreduce(view, y[:1])
    assert float(y[0]) == total(lambda r: 6 + r)


@pytest.mark.case("VIEW-ODD")
def test_reversed_broadcast_and_overlapping_views(world, memory):
    """Whatever can be read can be sent; a view whose elements share memory cannot be received."""
    xp = memory.xp
    x, y = xp.arange(4.0), xp.zeros(4)
    world.Allreduce(x[::-1], y)
    assert memory.to_host(y).tolist() == [3.0 * SIZE, 2.0 * SIZE, 1.0 * SIZE, 0.0]
    world.Allreduce(x, y[::-1])
    assert memory.to_host(y).tolist() == [3.0 * SIZE, 2.0 * SIZE, 1.0 * SIZE, 0.0]
    z = xp.zeros((3, 4))
    world.Allreduce(xp.broadcast_to(x, (3, 4)), z)
    assert (memory.to_host(z) == SIZE * np.arange(4.0)).all()
    windows = xp.lib.stride_tricks.as_strided(x, (3, 2), (8, 8))
    w = xp.zeros((3, 2))
    world.Allreduce(windows, w)
    assert memory.to_host(w).tolist() == [[0, SIZE], [SIZE, 2 * SIZE], [2 * SIZE, 3 * SIZE]]


@pytest.mark.case("VIEW-ODD")
@pytest.mark.parametrize("strides", [(0, 8), (8, 0), *(pytest.param(s) for s in ((8, 8), (-8, 8), (16, 8)))])
def test_receiving_into_a_view_that_overlaps_itself(world, memory, strides):
    """Two elements at one address have no value of their own."""
    xp = memory.xp
    own = xp.zeros(8)
    view = xp.lib.stride_tricks.as_strided(own[2:], (2, 3), strides)
    with pytest.raises(ValueError, match=r"^allreduce: recvbuf (overlaps itself|is read-only)"):
        world.Allreduce(xp.ones((2, 3)), view)
    check(world, Case("Allreduce"), memory)


@pytest.mark.case("DDT-SLOW")
def test_sub_blocks_of_a_cube(world, memory):
    """Blocks inside a larger array travel packed, in one message each, not row by row."""
    xp, p = memory.xp, SIZE
    cube = xp.arange(float((p + 2) * 6 * 5)).reshape(p + 2, 6, 5) + 1000 * world.rank
    out = xp.full((p + 2, 6, 5), -1.0)
    world.Alltoall(cube[1 : p + 1, 1:5, 1:4], out[1 : p + 1, 1:5, 1:4])
    sent = np.arange(float((p + 2) * 6 * 5)).reshape(p + 2, 6, 5)
    found = memory.to_host(out)
    for r in range(p):
        assert (found[1 + r, 1:5, 1:4] == sent[1 + world.rank, 1:5, 1:4] + 1000 * r).all()
    found[1 : p + 1, 1:5, 1:4] = -1
    assert (found == -1).all()
