"""A race of calls: the slow ones leave, and it ends when the others are known well enough."""

import numpy as np
import pytest

from mpicoll.bench.measure import race as module
from mpicoll.bench.measure.affinity import Affinity
from mpicoll.bench.measure.race import BLOCK, LEAST_ROUNDS, MOST, MOST_ROUNDS, WARMUP, Goal, race
from mpicoll.bench.measure.statistics import FEWEST

#: timed calls of the first round
FIRST = 3


class Clock:
    """A clock on which each call takes a time of its own, or around it.

    Args:
        seconds: of each call.
        noise: largest part by which a call takes longer or less long.
        slowed: part by which all calls of a round take longer, in turn.
    """

    def __init__(self, seconds, noise=0.0, slowed=(0.0,)):
        self.seconds, self.noise, self.slowed = seconds, noise, slowed
        self.now, self.made, self.blocks = 0.0, 0, []
        self.random = np.random.default_rng(3)
        self.affinity = Affinity(0, 1, [0])

    def calls(self):
        return [lambda place=place: self.called(place) for place in range(len(self.seconds))]

    def called(self, place):
        rounds = sum(where == place for where, _ in self.blocks)
        part = (1 + self.noise * self.random.uniform(-1, 1)) * (1 + self.slowed[rounds % len(self.slowed)])
        self.place, self.last = place, self.seconds[place] * part
        self.now += self.last
        self.made += 1

    def take(self, call, calls):
        found = np.empty(calls)
        for number in range(calls):
            call()
            found[number] = self.last
        self.blocks.append((self.place, calls))
        return found

    def rounds(self, place):
        return [where for where, _ in self.blocks].count(place)


class Alone:
    """The only rank."""

    def bcast(self, value, root):
        return value


def raced(clock, half_width=0.02, seconds=1e9, reference=None, world=None):
    return race(clock.calls(), clock, world or Alone(), Goal(half_width, seconds, reference), lambda: clock.now)


def test_the_time_of_each_call_and_its_ratio_to_the_fastest_are_found():
    clock = Clock([1.2e-3, 1e-3, 1.1e-3])
    found = raced(clock)
    assert [one.seconds.median for one in found] == pytest.approx([1.2e-3, 1e-3, 1.1e-3])
    assert [one.ratio.median for one in found] == pytest.approx([1.2, 1, 1.1])
    assert (found[1].ratio.low, found[1].ratio.high) == (1, 1)


def test_what_slows_all_calls_of_a_round_does_not_change_their_ratios():
    clock = Clock([1e-3, 1.02e-3], slowed=(0.0, 0.0, 0.5, 2.0))
    found = raced(clock)
    assert found[1].ratio.median == pytest.approx(1.02)
    assert found[1].ratio.half_width < 1e-9
    assert found[1].seconds.half_width > 0.2


def test_ratios_are_to_the_call_that_is_given():
    found = raced(Clock([1e-3, 2e-3]), reference=1)
    assert [one.ratio.median for one in found] == pytest.approx([0.5, 1])


def test_a_hopeless_call_leaves_after_the_second_round_and_a_slow_one_later():
    clock = Clock([1e-3, 8.1e-3, 4.1e-3, 2.1e-3, 1.6e-3, 1.01e-3])
    raced(clock)
    assert [clock.rounds(place) for place in range(6)] == [LEAST_ROUNDS, 2, 3, 5, FEWEST, LEAST_ROUNDS]


@pytest.mark.parametrize("when", [1, 2])
def test_a_call_whose_first_or_second_block_was_a_hundred_times_too_long_stays(when):
    clock = Clock([1e-3, 1e-3])
    calls, take = clock.calls(), clock.take

    def disturbed(call, number):
        found = take(call, number)
        return 100 * found if clock.place == 1 and clock.rounds(1) == when else found

    clock.take = disturbed
    _, second = race(calls, clock, Alone(), Goal(0.02, 1e9), lambda: clock.now)
    assert second.ratio.number >= LEAST_ROUNDS


class Dealing:
    """Counts what a race does with the ranks' places."""

    def __init__(self):
        self.deals, self.free = 0, True

    def deal(self):
        self.deals, self.free = self.deals + 1, False

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.free = True


def test_ranks_are_dealt_for_each_round_and_free_at_the_end():
    clock = Clock([1e-3, 2e-3])
    clock.affinity = Dealing()
    fast, _ = raced(clock)
    assert (clock.affinity.deals, clock.affinity.free) == (fast.ratio.number, True)


def test_ranks_are_free_after_a_call_that_raised():
    clock = Clock([1e-3])
    clock.affinity = Dealing()
    with pytest.raises(ZeroDivisionError):
        race([lambda: 1 / 0], clock, Alone(), Goal(0.02, 1e9), lambda: clock.now)
    assert (clock.affinity.deals, clock.affinity.free) == (1, True)


def test_one_disturbed_block_lets_no_call_go():
    """The second call is as fast as the first one but for its third block, which takes ten times as long."""
    clock = Clock([1e-3, 1e-3])
    calls, take = clock.calls(), clock.take

    def disturbed(call, number):
        found = take(call, number)
        return 10 * found if clock.place == 1 and clock.rounds(1) == 3 else found

    clock.take = disturbed
    race(calls, clock, Alone(), Goal(0.02, 1e9), lambda: clock.now)
    assert clock.rounds(1) == clock.rounds(0)


def test_one_that_is_slower_for_sure_leaves_as_soon_as_there_are_intervals():
    clock = Clock([1e-3, 1.04e-3, 1.02e-3])
    raced(clock)
    assert [clock.rounds(place) for place in range(3)] == [LEAST_ROUNDS, 6, LEAST_ROUNDS]


def test_one_that_may_be_as_fast_stays():
    clock = Clock([1e-3, 1.02e-3], noise=0.1)
    raced(clock, half_width=0.01)
    assert clock.rounds(1) == clock.rounds(0) > LEAST_ROUNDS


def test_the_reference_stays_however_slow_it_is():
    clock = Clock([9e-3, 1e-3, 5e-3])
    found = raced(clock, reference=0)
    assert [clock.rounds(place) for place in range(3)] == [LEAST_ROUNDS, LEAST_ROUNDS, 3]
    assert found[1].ratio.median == pytest.approx(1 / 9)


def test_it_ends_when_the_ratios_of_those_that_are_left_are_known_well_enough():
    rounds = []
    for half_width in (0.05, 0.02):
        clock = Clock([1e-3, 1.01e-3], noise=0.2)
        found = raced(clock, half_width)
        assert found[1].ratio.half_width <= half_width
        rounds.append(clock.rounds(0))
    assert LEAST_ROUNDS <= rounds[0] < rounds[1] < MOST_ROUNDS


def test_it_ends_when_there_were_enough_rounds(monkeypatch):
    monkeypatch.setattr(module, "MOST_ROUNDS", 12)
    clock = Clock([1e-3, 1.001e-3], noise=0.9)
    raced(clock, half_width=0.0)
    assert clock.rounds(0) == 12


def test_it_ends_when_its_time_is_over_warm_up_and_first_round_aside():
    """A round of two calls of a second takes 4 s, since the first of a block is not timed."""
    for seconds, rounds in ((0, 1), (1, 2), (4, 2), (8, 3), (9, 4)):
        clock = Clock([1.0, 1.0])
        raced(clock, seconds=seconds)
        assert [clock.rounds(0), clock.rounds(1)] == [rounds] * 2
        assert clock.made == 2 * (WARMUP + FIRST + 2 * (rounds - 1))


def test_which_one_is_first_changes_from_round_to_round():
    clock = Clock([1e-2, 1.01e-2, 1.02e-2])
    raced(clock)
    assert [place for place, _ in clock.blocks][:9] == [0, 1, 2, 1, 2, 0, 2, 0, 1]


def test_a_block_takes_a_while_but_has_few_calls_at_most():
    for seconds, number in ((BLOCK / 3.5, 3), (2 * BLOCK, 1), (1e-9, MOST)):
        clock = Clock([seconds] * 2)
        raced(clock)
        assert [calls for _, calls in clock.blocks[:4]] == [FIRST, FIRST, number, number]


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
    first, other = Clock([1e-3, 1.01e-3, 5e-3]), Clock([1e-3, 9e-3, 1.01e-3])
    zero = Told()
    raced(first, world=zero)
    raced(other, seconds=0, world=Told(zero.noted))
    assert [place for place, _ in first.blocks] == [place for place, _ in other.blocks]
    assert first.rounds(1) == LEAST_ROUNDS
