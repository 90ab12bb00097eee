"""A race of calls: the slow ones leave, and it ends when the others are known well enough."""

import numpy as np
import pytest

from mpicoll.bench.measure.race import BLOCK, ENOUGH, FIRST, MOST, Goal, race


class Clock:
    """A clock on which each call takes a time of its own, the same each time or around it.

    Args:
        seconds: of each call.
        noise: largest part by which a call takes longer or less long.
    """

    def __init__(self, seconds, noise=0.0):
        self.seconds, self.noise = seconds, noise
        self.now, self.turns = 0.0, []
        self.random = np.random.default_rng(3)

    def calls(self):
        return [lambda place=place: self.called(place) for place in range(len(self.seconds))]

    def called(self, place):
        self.place = place
        part = 1 + self.noise * self.random.uniform(-1, 1)
        self.last = self.seconds[place] * part
        self.now += self.last

    def take(self, call, calls):
        found = np.empty(calls)
        for number in range(calls):
            call()
            found[number] = self.last
        self.turns.append((self.place, calls))
        return found


class Alone:
    """The only rank."""

    def bcast(self, value, root):
        return value


def raced(clock, half_width=0.02, seconds=1e9, keep=(), world=None):
    goal = Goal(half_width, seconds, frozenset(keep))
    return race(clock.calls(), clock, world or Alone(), goal, lambda: clock.now)


def test_all_are_timed_and_the_median_is_that_of_the_call():
    clock = Clock([1e-3, 1.05e-3, 1.08e-3])
    found = raced(clock)
    assert [one.median for one in found] == pytest.approx([1e-3, 1.05e-3, 1.08e-3])
    assert [one.number for one in found] == [FIRST + BLOCK // 1e-3, FIRST + BLOCK // 1.05e-3, FIRST + BLOCK // 1.08e-3]


def test_one_that_is_hopeless_leaves_after_the_first_round():
    found = raced(Clock([1e-3, 1.9e-3, 2.1e-3]))
    assert [one.number == FIRST for one in found] == [False, False, True]


def test_one_that_is_slower_for_sure_leaves_later():
    clock = Clock([1e-3, 1.3e-3, 1.02e-3], noise=0.05)
    found = raced(clock, half_width=0.005)
    turns = [place for place, _ in clock.turns]
    assert turns.count(0) == turns.count(2) > 2 * turns.count(1)
    assert found[1].low > 1.1 * found[0].high
    assert found[2].low <= 1.1 * found[0].high


def test_what_is_kept_stays_however_slow_it_is():
    clock = Clock([9e-3, 1e-3, 5e-3], noise=0.1)
    found = raced(clock, half_width=0.03, keep=[0])
    assert found[0].half_width <= 0.03
    assert found[1].half_width <= 0.03
    assert found[2].number == FIRST


def test_it_ends_when_all_that_are_left_are_known_well_enough():
    wide, narrow = (raced(Clock([1e-3, 1.01e-3], noise=0.2), half_width) for half_width in (0.05, 0.02))
    assert all(one.half_width <= 0.05 for one in wide)
    assert all(one.half_width <= 0.02 for one in narrow)
    assert sum(one.number for one in narrow) > sum(one.number for one in wide)


def test_a_winner_that_is_alone_needs_no_narrow_interval():
    found = raced(Clock([1e-3, 9e-3], noise=0.5), half_width=1e-6)
    assert found[0].number < 2 * MOST


def test_it_ends_when_its_time_is_over_the_first_round_aside():
    """A round of two calls of a second takes 4 s, since the first of a block is not timed; the first round takes 8."""
    for seconds, rounds in ((0, 0), (1, 1), (4, 1), (8, 2), (9, 3)):
        found = raced(Clock([1.0, 1.0]), half_width=-1.0, seconds=seconds)
        assert [one.number for one in found] == [FIRST + rounds] * 2


def test_it_ends_when_there_are_enough_calls():
    found = raced(Clock([1e-6, 1.001e-6], noise=0.9), half_width=0.0)
    assert all(ENOUGH <= one.number < ENOUGH + 2 * MOST for one in found)


def test_which_one_is_first_changes_from_round_to_round():
    clock = Clock([1e-2, 1.01e-2, 1.02e-2], noise=0.1)
    raced(clock, half_width=0.02)
    places = [place for place, _ in clock.turns]
    assert places[:9] == [0, 1, 2, 1, 2, 0, 2, 0, 1]


def test_the_first_call_of_a_block_is_not_timed():
    """It finds the caches as another call has left them."""
    clock, made = Clock([1e-3, 1e-3]), []
    calls = [lambda call=call, place=place: (made.append(place), call()) for place, call in enumerate(clock.calls())]
    found = race(calls, clock, Alone(), Goal(0.02, 1e9), lambda: clock.now)
    blocks = len(clock.turns)
    assert len(made) == sum(one.number for one in found) + blocks
    assert made[: 2 * (FIRST + 1)] == [0] * (FIRST + 1) + [1] * (FIRST + 1)


def test_a_block_of_short_calls_is_bounded():
    clock = Clock([1e-7, 1.01e-7])
    raced(clock)
    assert [calls for _, calls in clock.turns] == [FIRST, FIRST, MOST, MOST]


class Told:
    """Rank 0, which notes what it decides; or another rank, which is told that.

    Args:
        decisions: of rank 0.
    """

    def __init__(self, decisions=None):
        self.noted, self.decisions = [], None if decisions is None else iter(decisions)

    def bcast(self, value, root):
        assert root == 0
        self.noted.append(value if self.decisions is None else next(self.decisions))
        return self.noted[-1]


def test_ranks_that_see_other_times_do_what_rank_0_does():
    """Clocks agree on the samples, but not on when the time is up, nor on the last digit of a sum."""
    first, other = Clock([1e-3, 1.01e-3, 5e-3], noise=0.2), Clock([1e-3, 9e-3, 1.01e-3], noise=0.2)
    zero = Told()
    raced(first, half_width=0.02, world=zero)
    raced(other, half_width=1e-9, seconds=0, world=Told(zero.noted))
    assert [place for place, _ in first.turns] == [place for place, _ in other.turns]


def test_a_race_of_one_ends_when_it_has_an_interval():
    (only,) = raced(Clock([0.5]), seconds=1e9)
    assert only.number == 6
