"""How often the benchmark times a call, and how it shares its time."""

import numpy as np
import pytest

from mpicoll.bench.errors import RefusedError
from mpicoll.bench.measure.affinity import Affinity
from mpicoll.bench.measure.budget import ENOUGH, FIRST, GRACE, MOST, RESERVE, Budget, certain, measure


class Alone:
    """The only rank."""

    def bcast(self, value, root):
        return value


class Clock:
    """Calls take a second each, all about them two; or so many times less."""

    def __init__(self, scale=1.0):
        self.now, self.taken, self.scale = 0.0, [], scale
        self.affinity = Affinity(0, 1, [0])

    def take(self, call, calls):
        for _ in range(calls):
            call()
        self.now += 2.0 * calls * self.scale
        self.taken.append(calls)
        return np.ones(calls)


def timed(seconds, measurements, **how):
    clock, calls = Clock(), []
    budget = Budget(Alone(), seconds, measurements, lambda: clock.now)
    numbers = []
    for _ in range(measurements):
        budget.begin()
        how = {"iterations": None, "warmup": 0} | how
        numbers.append(measure([lambda: calls.append(1)], clock, budget, **how)[0].size)
    return numbers, len(calls), clock.now


def test_the_budget_is_shared_by_what_is_left():
    """A part of it is kept for what takes longer than its share."""
    numbers, _, now = timed(100 / (1 - RESERVE), 5)
    assert numbers == [10] * 5
    assert now == 100


def test_a_spent_budget_still_gives_a_call():
    numbers, calls, _ = timed(0, 4, warmup=2)
    assert numbers == [1] * 4
    assert calls == 4


def test_a_spent_budget_gives_many_calls_if_they_are_short():
    """What was slow was the preparation, and a cold call is no measurement."""
    clock, calls = Clock(1e-5), []
    budget = Budget(Alone(), 0, 1, lambda: clock.now)
    budget.begin()
    (found,) = measure([lambda: calls.append(1)], clock, budget, iterations=None, warmup=5)
    assert found.size == MOST
    assert (clock.taken[:4], sum(clock.taken)) == ([1, FIRST, FIRST, 2 * FIRST], 1 + MOST)
    assert len(calls) == 1 + 5 + MOST
    assert clock.now < 2 * GRACE


def test_a_small_budget_gives_a_few_calls():
    assert timed(1, 1)[0] == [FIRST]


def test_an_ample_budget_does_not_give_more_than_enough():
    assert timed(1e9, 2)[0] == [MOST] * 2


def test_a_given_number_of_calls_is_kept():
    numbers, calls, _ = timed(0, 3, iterations=7, warmup=2)
    assert numbers == [7] * 3
    assert calls == 3 * 9


def test_calls_are_timed_in_turn():
    clock, made = Clock(), []
    budget = Budget(Alone(), 0, 1, lambda: clock.now)
    budget.begin()
    calls = [lambda: made.append("a"), lambda: made.append("b")]
    first, second = measure(calls, clock, budget, iterations=11, warmup=1)
    assert (first.size, second.size) == (11, 11)
    assert clock.taken == [3, 3, 2, 2, 2, 2, 2, 2, 2, 2]
    assert made[:2] == ["a", "b"]
    assert "".join(made[2:]) == "aaaabbbb" + "aaabbb" * 4  # one call of each block is not timed


def test_the_budget_is_shared_by_calls_in_turn():
    clock = Clock()
    budget = Budget(Alone(), 100 / (1 - RESERVE), 1, lambda: clock.now)
    budget.begin()
    times = measure([lambda: None] * 2, clock, budget, iterations=None, warmup=0)
    assert [found.size for found in times] == [25, 25]


def test_a_measurement_ends_when_its_medians_are_certain():
    """The calls of the clock here all take the same time."""
    clock = Clock()
    budget = Budget(Alone(), 1e6, 1, lambda: clock.now)
    budget.begin()
    (found,) = measure([lambda: None], clock, budget, iterations=None, warmup=0, width=0.05)
    assert found.size == ENOUGH


def test_a_median_is_certain_if_its_interval_is_narrow_and_of_enough_samples():
    wide = np.tile([1.0, 2.0], ENOUGH)
    assert certain([np.ones(ENOUGH)], 0.05)
    assert not certain([np.ones(ENOUGH - 1)], 0.05)
    assert not certain([np.ones(2 * ENOUGH), wide], 0.05)
    assert not certain([np.full(ENOUGH, np.inf)], 0.05)


def test_samples_that_are_all_invalid_are_no_measurement():
    class Late(Clock):
        def take(self, call, calls):
            return np.full(calls, np.inf)

    with pytest.raises(RefusedError, match="a rank came late to every start; take --sync barrier"):
        measure([lambda: None], Late(), Budget(Alone(), 1, 1), iterations=7, warmup=0)


def test_rank_0_decides():
    class Second(Alone):
        def bcast(self, value, root):
            return 5

    budget = Budget(Second(), 1000, 1, lambda: 0.0)
    budget.begin()
    assert (budget.calls(1.0, 9), budget.number(1.0, 7, 9)) == (5, 7)


def test_a_run_ends_when_its_budget_is_spent():
    clock = Clock()
    budget = Budget(Alone(), 2, 5, lambda: clock.now)
    clock.now = 1.9
    assert not budget.spent()
    clock.now = 2.0
    assert budget.spent()
