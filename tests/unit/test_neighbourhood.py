"""Neighbourhoods: every block that is sent is received, where MPI says."""

import pytest

from mpicoll.schedule.ir import Recv, Send
from mpicoll.schedule.neighbourhood import NOBODY, Neighbourhood, neighbour_row
from mpicoll.schedule.neighbours import linear


def ring(rank, size):
    return Neighbourhood.of_grid([(rank - 1) % size, (rank + 1) % size])


def row(rank, size):
    return Neighbourhood.of_grid([rank - 1, rank + 1 if rank < size - 1 else -2])


def doubled(rank, size):
    right, left = (rank + 1) % size, (rank - 1) % size
    return Neighbourhood.of_graph([left, rank, left], [right, right, rank])


def received(make, size, shared):
    """Run all ranks' schedules: (source, its block) for each block of each rank's output."""
    hoods = [make(rank, size) for rank in range(size)]
    schedules = [linear(rank, hood, shared) for rank, hood in enumerate(hoods)]
    sent = {}
    for rank, schedule in enumerate(schedules):
        for message in (m for one in schedule.steps for m in one.messages if isinstance(m, Send)):
            sent.setdefault((rank, message.peer), []).append(message.source.cells[0])
    found = []
    for rank, schedule in enumerate(schedules):
        outputs = {}
        for one in schedule.steps:
            for message in (m for m in one.messages if isinstance(m, Recv)):
                outputs[message.target.cells[0]] = (message.peer, sent[message.peer, rank].pop(0))
            outputs |= {copy.target.cells[0]: (rank, copy.source.cells[0]) for copy in one.local}
        found.append(outputs)
    assert not any(sent.values())
    return found


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_what_is_sent_down_a_ring_comes_from_above(size):
    for rank, outputs in enumerate(received(ring, size, shared=False)):
        assert outputs == {0: ((rank - 1) % size, 1), 1: ((rank + 1) % size, 0)}


@pytest.mark.parametrize("size", [1, 2, 4])
def test_beyond_the_edge_is_nobody(size):
    for rank, outputs in enumerate(received(row, size, shared=False)):
        assert outputs == {k: (rank - 1 + 2 * k, 1 - k) for k in (0, 1) if 0 <= rank - 1 + 2 * k < size}
    assert row(0, 1).sources == (NOBODY, NOBODY)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_between_two_ranks_of_a_graph_blocks_keep_their_order(size):
    for rank, outputs in enumerate(received(doubled, size, shared=False)):
        left = (rank - 1) % size
        expected = {0: (left, 0), 1: (rank, 2), 2: (left, 1)} if size > 1 else {0: (0, 0), 1: (0, 1), 2: (0, 2)}
        assert outputs == expected


def test_all_get_the_one_block_of_an_allgather():
    for rank, outputs in enumerate(received(ring, 4, shared=True)):
        assert outputs == {0: ((rank - 1) % 4, 0), 1: ((rank + 1) % 4, 0)}


@pytest.mark.parametrize(("shared", "before"), [(True, [0]), (False, [1])])
def test_the_row_says_what_is_read_and_written(shared, before):
    found = neighbour_row(shared, row(0, 3))
    assert list(found.before(0, 3, 0, 2)) == before
    assert found.after(0, 3, 0, 2) == {1: (1,)}
    assert found.methods[1] == ("Neighbor_allgatherv" if shared else "Neighbor_alltoallv")
