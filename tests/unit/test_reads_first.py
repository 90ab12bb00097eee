"""Lowered programs in place: what is read before it is overwritten needs no copy."""

import pytest

from mpicoll.algorithms import registry
from mpicoll.runtime.paths.mapped.lowering import Load, Lowered, Store, lower, reads_first


def at(*runs):
    """Return where cells are, from (buffer, number, start, bytes) of each."""
    places = {(buffer, number): (start, nbytes) for buffer, number, start, nbytes in runs}
    return places.__getitem__


SWAP = (Load(0, ("input", 0)), Load(1, ("input", 1)), Store(("output", 0), 1), Store(("output", 1), 0))


def in_place(*instructions):
    return Lowered(instructions, (), 2, 0)


def test_what_is_read_first_can_be_overwritten():
    both = at(("input", 0, 0, 8), ("input", 1, 8, 8), ("output", 0, 0, 8), ("output", 1, 8, 8))
    assert reads_first(in_place(*SWAP), both)
    assert not reads_first(in_place(SWAP[0], SWAP[3], SWAP[1], SWAP[2]), both)  # input 1 is gone by then
    assert reads_first(in_place(SWAP[0], SWAP[2], SWAP[1], SWAP[3]), both)


def test_another_thread_may_write_what_does_not_start_together():
    """A block of 12 bytes over two of 8: its last elements are in the second, whose threads are others."""
    longer = at(("input", 0, 0, 8), ("input", 1, 8, 8), ("output", 0, 0, 12))
    assert not reads_first(in_place(*SWAP[:3]), longer)
    shorter = at(("input", 0, 0, 8), ("input", 1, 8, 8), ("output", 0, 0, 4))
    assert reads_first(in_place(*SWAP[:3]), shorter)
    beside = at(("input", 0, 0, 8), ("input", 1, 8, 8), ("output", 0, 16, 12))
    assert reads_first(in_place(*SWAP[:3]), beside)


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("size", [2, 3, 4, 8])
@pytest.mark.parametrize("collective", ["alltoall", "reduce_scatter"])
def test_every_algorithm_reads_first(collective, size, early):
    """So that calls in place need no copy: block k of the output is at block k of the input, or at the front."""
    for card, rank in ((card, rank) for card in registry.known(collective) for rank in range(size)):
        if card.refuses(size):
            continue

        def run(cell, rank=rank):
            buffer, number = cell
            if collective == "alltoall":  # numbered by source and target
                number = number % size if buffer == "input" else number // size
            elif buffer == "output":
                number = 0
            return 8 * number, 8

        assert reads_first(lower(card.schedule(rank, size, 0), False, early=early), run), (card.name, rank)
