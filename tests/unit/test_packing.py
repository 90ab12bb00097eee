"""Packing: every message of a packed schedule is contiguous, and what needs none is left alone."""

import pytest

from mpicoll import verify
from mpicoll.algorithms import get
from mpicoll.schedule.ir import block_ids
from mpicoll.schedule.pack import consecutive, pack
from serving import served
from unit.replay import cells, rooted

SIZES = [1, 2, 5, 8]


def messages(schedule):
    return [m for one in schedule.steps for m in one.messages]


def carried(schedule):
    """What messages carry and to whom, wherever it lies."""
    return [(type(m), block_ids(cells(m), schedule), m.peer) for m in messages(schedule)]


def test_packing_leaves_alone_what_needs_none(card):
    for size in served(card, SIZES):
        for schedule in rooted(card, size):
            assert pack(schedule, lambda ref: True) is schedule
            if all(consecutive(cells(m)) for m in messages(schedule)):
                assert pack(schedule, consecutive) is schedule


def test_packing_makes_every_message_contiguous(card):
    for size in served(card, SIZES):
        for schedule in rooted(card, size):
            packed = pack(schedule, consecutive)
            assert all(consecutive(cells(m)) for m in messages(packed))
            assert carried(packed) == carried(schedule)
            assert packed.scratch[: len(schedule.scratch)] == schedule.scratch
            assert packed.window == schedule.window
            assert pack(packed, consecutive) is packed


def test_the_binomial_gather_has_messages_to_pack():
    """At a root that is not the first rank, the blocks of a subtree wrap around."""
    schedules = get("gather", "binomial").schedules(6, 3)
    assert [pack(s, consecutive) is s for s in schedules] == [True, True, True, False, True, True]


@pytest.mark.slow
def test_ranks_need_not_agree_on_packing(card):
    """Where blocks lie in memory is a fact of one rank alone."""
    for size in served(card, (4, 5)):
        root = size // 2 if card.row.rooted else 0
        schedules = card.schedules(size, root)
        for turn in (0, 1):
            mixed = [pack(s, lambda ref: len(ref) == 1) if r % 2 == turn else s for r, s in enumerate(schedules)]
            verify(card.collective, mixed, root=root)
