"""Refusals of one communicator: which are news, which call they are of, and when ranks have met again."""

import pytest

from mpicoll.runtime.progress import refusals as module
from mpicoll.runtime.progress.refusals import MOST, Refusal, Refusals


@pytest.fixture
def made():
    """Those of rank 0 of three."""
    found = Refusals(0, 3)
    found.possible = True
    return found


def said(rank, number, text="ValueError('x')"):
    return Refusal(rank, number, text)


def test_a_word_is_news_once(made):
    assert made.take(said(1, 7))
    assert not made.take(said(1, 7))
    assert made.take(said(2, 7))
    assert (made.pending, made.out) == (said(1, 7), {1, 2})


def test_nothing_is_heard_where_not_all_ranks_can_be_told(made):
    made.possible = False
    assert not made.take(said(1, 7))
    assert made.pending is None


def test_the_earliest_call_counts(made):
    """A rank that raises later does so because of the one before; one that raises earlier is the cause."""
    made.take(said(1, 7))
    assert not made.take(said(2, 8))
    assert made.pending == said(1, 7)
    assert made.take(said(2, 6))
    assert (made.pending, made.out) == (said(2, 6), {2})


def test_all_are_out_once_each_has_said_so(made):
    for rank in (1, 0, 2):
        assert not made.all_out
        made.take(said(rank, 7))
    assert made.all_out
    assert made.own == said(0, 7)


def test_a_word_that_comes_after_the_reunion_is_stale(made):
    made.take(said(1, 7))
    made.meet(7)
    assert (made.pending, made.out, made.own) == (None, set(), None)
    assert not made.take(said(2, 7))
    assert made.take(said(2, 8))


def test_calls_before_it_are_not_due_nor_any_within_the_grace(made, monkeypatch):
    made.take(said(1, 7))
    assert not made.is_due(7)
    monkeypatch.setattr(module, "GRACE", 0.0)
    made.since -= 1
    assert [made.is_due(number) for number in (6, 7, 8)] == [False, True, True]


def test_only_the_latest_are_kept(made):
    for number in range(MOST + 5):
        made.note(said(1, number))
    assert len(made.past) == MOST
    assert min(made.past) == 5


def test_the_error_names_the_rank_and_its_error():
    assert str(said(1, 7).error("allreduce #7")) == "allreduce #7: rank 1 raised ValueError('x')"


def test_a_rank_whose_program_ends_is_gone_and_has_refused_nothing(made):
    assert not made.take(said(1, module.LEFT))
    assert (made.gone, made.pending) == ({1}, None)
