"""The first call on a communicator: nothing that is legal with MPI's own collectives waits in it."""

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll

pytestmark = pytest.mark.many_ranks

WORLD = MPI.COMM_WORLD
SIZE, RANK = WORLD.Get_size(), WORLD.Get_rank()


@pytest.fixture
def unused():
    """A communicator on which no call was made."""
    made = mpicoll.Communicator(WORLD.Dup())
    yield made
    made.Free()


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("start", [lambda c: c.Ibarrier(), lambda c: c.Iallreduce(np.ones(3), np.zeros(3))])
def test_starting_waits_for_nobody(unused, start):
    """Rank 0 starts, and only then sends what another rank receives before it starts."""
    if RANK == 1:
        WORLD.recv(source=0)
    request = start(unused)
    if RANK == 0:
        WORLD.send("go", 1)
    request.Wait()


@pytest.mark.mpi(min_size=3)
def test_overlapping_communicators_in_another_order_on_every_rank():
    pairs = [(k, (k + 1) % SIZE) for k in range(SIZE)]
    comms = {pair: WORLD.Split(0 if RANK in pair else MPI.UNDEFINED, RANK) for pair in pairs}
    mine = {pair: mpicoll.Communicator(comm) for pair, comm in comms.items() if RANK in pair}
    found = {pair: np.zeros(4) for pair in mine}
    order = [(RANK, (RANK + 1) % SIZE), ((RANK - 1) % SIZE, RANK)]  # each waits for the next one's second call
    requests = [mine[pair].Iallreduce(np.full(4, 1.0 + RANK), found[pair]) for pair in order]
    for request in requests:
        request.Wait()
    assert all((found[pair] == sum(pair) + 2).all() for pair in mine), found
    for comm in mine.values():
        comm.Free()


@pytest.mark.mpi(min_size=2)
def test_a_sparse_exchange_ends_with_a_barrier_that_is_only_tested(unused):
    """Each rank sends to some it alone knows; who has sent all starts a barrier, and receives until that ends."""
    sent = [unused.issend(RANK, (RANK + k) % SIZE, 5) for k in range(1, SIZE, 2)]
    found, barrier = [], None
    while barrier is None or not barrier.Test():
        if unused.iprobe(tag=5):
            found.append(unused.recv(tag=5))
        if barrier is None and all([request.Test() for request in sent]):
            barrier = unused.Ibarrier()
    assert sorted(found) == sorted((RANK - k) % SIZE for k in range(1, SIZE, 2))


@pytest.mark.mpi(min_size=2)
def test_blocking_and_nonblocking_calls_match(unused):
    """The first one, and the next."""
    for _ in range(2):
        y = np.zeros(3)
        if RANK == 0:
            unused.Allreduce(np.ones(3), y)
        else:
            unused.Iallreduce(np.ones(3), y).Wait()
        assert (y == SIZE).all()
