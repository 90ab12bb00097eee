"""Groups of messages: those between two ranks travel together, and none waits for another."""

from contextlib import nullcontext

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpicoll.runtime.groups import letters

pytestmark = pytest.mark.mpi(min_size=2)
SIZE = MPI.COMM_WORLD.Get_size()
RANK = MPI.COMM_WORLD.Get_rank()
RIGHT, LEFT = (RANK + 1) % SIZE, (RANK - 1) % SIZE


def test_messages_that_fail_are_not_used_again(comm):
    """One that is longer than its array; the next group of the same arrays has messages of its own."""
    x, y = np.arange(6.0), np.zeros(4)
    peer = 1 - RANK if RANK < 2 else MPI.PROC_NULL
    for count in (6, 4):
        with pytest.raises(MPI.Exception) if count == 6 and RANK == 1 else nullcontext(), mpicoll.group(comm):
            if RANK == 0:
                comm.Send(x[:count], peer)
            else:
                comm.Recv(y, peer)
        comm.Barrier()
    assert RANK != 1 or y.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("most", [0, 1 << 20])
def test_messages_do_not_wait_for_each_other(comm, monkeypatch, most):
    """All ranks send first, and receive in another order; those between two ranks travel as one, or not."""
    monkeypatch.setattr(letters, "MOST", most)
    for turn in range(3):
        sent = [np.arange(1.0 + k * 20_000) + RANK + turn for k in range(4)]
        got = [np.zeros(1 + k * 20_000) for k in range(4)]
        own = np.zeros(3)
        with mpicoll.group(comm):
            for k in (0, 1, 2, 3):
                comm.Send(sent[k], RIGHT, k % 3)
            comm.Send(np.full(3, 7.0), RANK, 5)
            comm.Recv(got[2], LEFT, 2)
            comm.Recv(got[1], LEFT, 1)
            comm.Recv(got[0], LEFT)
            comm.Recv(got[3], LEFT, 0)
            comm.Recv(own, RANK, 5)
            comm.Send(sent[0], MPI.PROC_NULL)
            comm.Recv(got[0], MPI.PROC_NULL)
        for k in range(4):
            assert (got[k] == np.arange(1.0 + k * 20_000) + LEFT + turn).all()
        assert (own == 7).all()


def test_a_halo_exchange_with_strided_edges(comm):
    """Columns go to both neighbours."""
    grid = np.zeros((10, 12))
    grid[:, 1:-1] = RANK + 1
    for _ in range(3):
        with mpicoll.group(comm):
            comm.Sendrecv(grid[:, 1], LEFT, 1, grid[:, -1], RIGHT, 1)
            comm.Sendrecv(grid[:, -2], RIGHT, 2, grid[:, 0], LEFT, 2)
        assert (grid[:, 0] == LEFT + 1).all()
        assert (grid[:, -1] == RIGHT + 1).all()


def test_messages_of_other_arrays_each_time_leave_nothing_behind(comm):
    """More groups than are remembered; the requests of those that go are freed."""
    for turn in range(200):
        x, y = np.full(5, RANK + 10.0 * turn), np.zeros(5)
        with mpicoll.group(comm):
            comm.Send(x, RIGHT)
            comm.Recv(y, LEFT)
        assert (y == LEFT + 10.0 * turn).all()
    assert len(comm._get_context().others["messages"]._entries) <= 64
