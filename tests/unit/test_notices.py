"""Notices of one communicator: which are news, and by which a rank waits in vain."""

import pytest

from mpicoll.runtime.progress.notices import GRACE, PATIENCE, Notice, Notices

CALLS = {6: "bcast", 7: "allreduce", 8: "barrier"}


@pytest.fixture
def made():
    """Those of rank 0."""
    return Notices()


def said(ordinal=1, number=7, **fields):
    return Notice(1, ordinal, number, "ValueError('x')", **fields)


def found(made, waited, number=7, left=()):
    return made.in_vain(number, waited, lambda one: CALLS.get(one, ""), lambda rank: rank in left)


def test_a_word_is_news_once_and_an_older_one_is_not(made):
    assert made.take(said(2, next="barrier"))
    assert not made.take(said(2, next="barrier"))
    assert not made.take(said(1))
    assert made.heard[1].next == "barrier"


def test_a_rank_that_may_repeat_the_call_is_waited_for(made):
    made.take(said())
    assert found(made, PATIENCE - 1) is None
    assert made.heard


def test_a_rank_that_makes_no_call_is_waited_for_no_longer_than_the_patience(made):
    made.take(said())
    assert found(made, PATIENCE + 1) == said()


@pytest.mark.parametrize("word", [said(next="allreduce"), said(number=5, next="scan")])
def test_a_rank_that_makes_the_call_is_forgotten_and_so_is_one_of_which_nothing_is_known(made, word):
    made.take(word)
    assert found(made, PATIENCE + 1) is None
    assert not made.heard


def test_a_rank_that_makes_another_call_is_waited_for_in_vain(made):
    made.take(said(next="barrier"))
    assert found(made, GRACE / 2) is None
    assert found(made, 2 * GRACE) == said(next="barrier")


def test_a_call_that_is_not_decided_waits_in_vain_for_a_rank_that_can_make_none(made):
    """It may wait for that rank before it is decided: for its memory, or its word."""
    made.take(said(next="barrier", broken=True))
    assert made.in_vain(7, 2 * GRACE, lambda one: None, lambda rank: False) is not None
    made.take(said(2, next="barrier"))
    assert made.in_vain(7, 2 * GRACE, lambda one: None, lambda rank: False) is None


def test_a_later_call_waits_in_vain_too(made):
    """A root went through the refused call, for it only sends."""
    made.take(said(next="barrier"))
    assert found(made, 2 * GRACE, number=8) is not None


def test_an_earlier_call_does_not(made):
    made.take(said(next="barrier"))
    assert found(made, PATIENCE + 1, number=6) is None
    assert made.heard


def test_a_rank_whose_program_is_at_its_end_is_waited_for_in_vain(made):
    made.take(said())
    assert found(made, 2 * GRACE) is None
    assert found(made, 2 * GRACE, left=(1,)) == said()


def test_who_got_through_the_call_waits_for_nothing(made):
    """Unless it hears that the other rank makes another call."""
    made.take(said())
    assert found(made, None, left=(1,)) is None
    made.take(said(2, next="barrier"))
    assert found(made, None) == said(2, next="barrier")


def test_a_broken_communicator_is_broken_for_all(made):
    """At once for who is in no call, even before that number; a call on its way may end."""
    made.take(said(broken=True))
    assert found(made, GRACE / 2) is None
    assert found(made, None, number=3) == said(broken=True)
    assert found(made, 2 * GRACE, number=9) == said(broken=True)


def test_one_that_is_broken_is_not_forgotten_for_its_next_call(made):
    made.take(said(next="allreduce", broken=True))
    assert found(made, 2 * GRACE) is not None


def test_who_passes_it_on_names_the_rank_that_has_raised():
    text = "allreduce #7: rank 1 raised ValueError('x') in call #7"
    assert str(Notice(2, 1, 7, "ValueError('x')", broken=True, by=1).raised("allreduce #7")) == text


def test_the_error_names_the_rank_its_error_and_its_next_call():
    text = "allreduce #7: rank 1 raised ValueError('x') in call #7"
    assert str(said().raised("allreduce #7")) == text
    assert str(said(next="barrier").raised("allreduce #7")) == f"{text}, and makes barrier instead"
