"""Ranks that outnumber their host's cores are dealt onto them anew, as many on each as on the others."""

import os
from collections import Counter

import pytest

from mpicoll.bench.measure.affinity import Affinity


@pytest.fixture
def given(monkeypatch):
    """The cores that were given to a rank, in order."""
    found = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda process, cores: found.append(set(cores)), raising=False)
    return found


def deals(number, cores, given, times=60):
    """Return for each deal the cores of all ranks."""
    ranks = [Affinity(rank, number, cores) for rank in range(number)]
    found = []
    for _ in range(times):
        for rank in ranks:
            rank.deal()
        found.append(tuple(core for cores in given for core in cores))
        given.clear()
    return found


@pytest.mark.parametrize(("number", "shares"), [(3, [1, 2]), (4, [2, 2]), (5, [2, 3]), (8, [4, 4])])
def test_each_deal_has_as_many_ranks_on_a_core_as_on_the_other(given, number, shares):
    for found in deals(number, [4, 7], given):
        assert sorted(Counter(found).values()) == shares
        assert set(found) == {4, 7}


def test_each_rank_shares_its_core_with_every_other_one_in_turn(given):
    pairs = {(found[0] == found[1], found[0] == found[2]) for found in deals(4, [0, 1], given)}
    assert pairs == {(True, False), (False, True), (False, False)}


@pytest.mark.parametrize(("number", "cores"), [(2, [0, 1]), (4, [0]), (4, [])], ids=["enough", "one", "bound"])
def test_ranks_are_left_alone_where_there_is_nothing_to_deal(given, number, cores):
    with Affinity(1, number, cores) as affinity:
        affinity.deal()
    assert given == []


def test_a_rank_may_run_on_all_cores_again_after_an_error(given):
    with pytest.raises(ZeroDivisionError), Affinity(0, 3, [2, 5]) as affinity:
        affinity.deal()
        raise ZeroDivisionError
    assert len(given) == 2
    assert given[1] == {2, 5}
