"""Several visits to a call count alike, whatever the machine's state was in each."""

import math

import numpy as np
import pytest

from mpicoll.bench.measure.race import Runner
from mpicoll.bench.measure.statistics import Statistics
from mpicoll.bench.measure.visits import AGAIN, Visits


def sure(value, number=9):
    return Statistics.of(np.full(number, value))


def runner(ratio, reference=1e-3, number=9):
    return Runner(sure(ratio * reference, number), sure(ratio, number), reference)


def test_one_visit_is_what_it_is():
    one = Statistics.of(np.array([1.0, 2.0, 4.0]))
    assert Statistics.of_visits([one]) is one


def test_the_median_of_visits_is_the_geometric_mean_of_theirs_however_long_each_was():
    found = Statistics.of_visits([sure(1.0, 400), sure(4.0, 8)])
    assert (found.median, found.least, found.most, found.number) == (pytest.approx(2.0), 1.0, 4.0, 408)


def test_more_visits_make_a_time_more_certain():
    one = Statistics.of(np.linspace(0.9, 1.1, 21))
    several = Statistics.of_visits([one] * 4)
    assert several.half_width == pytest.approx(one.half_width / 2, rel=0.05)
    assert several.low < several.median < several.high


def test_the_estimate_of_visits_is_in_seconds_of_the_references_of_all():
    both = Runner.of_visits([runner(0.5, 1e-3), runner(2.0, 4e-3)])
    assert both.ratio.median == pytest.approx(1.0)
    assert both.estimate == pytest.approx(math.sqrt(0.5e-3 * 8e-3))


def test_a_choice_that_is_fast_in_one_state_and_slow_in_another_is_not_the_fastest():
    """As the ring and the linear one: 1.4 times as fast in one state, 2.5 times as slow in the other."""
    visits = Visits([{"linear": runner(1.0), "ring": runner(0.7)}, {"linear": runner(1.0), "ring": runner(2.5)}])
    found = visits.runners()
    assert min(found, key=lambda choice: found[choice].estimate) == "linear"


def test_a_choice_that_missed_a_disturbed_visit_is_not_the_faster_for_it():
    """Everything took a hundred times as long in the second visit, in which the tree was not raced."""
    first = {"ring": runner(1.0), "linear": runner(1.2), "tree": runner(2.3)}
    found = Visits([first, {"ring": runner(1.0, 0.1), "linear": runner(1.2, 0.1)}]).runners()
    assert found["tree"].estimate == pytest.approx(2.3 * found["ring"].estimate)
    assert found["linear"].estimate == pytest.approx(1.2 * found["ring"].estimate)


def test_one_disturbed_visit_of_three_does_not_change_the_times():
    found = Visits([{"ring": runner(1.0)}, {"ring": runner(1.0, 0.1)}, {"ring": runner(1.0)}]).runners()
    assert found["ring"].estimate == pytest.approx(1e-3)


def test_what_is_far_slower_has_no_further_visit():
    visits = Visits([{"fast": runner(1.0), "slow": runner(0.9 * AGAIN), "slower": runner(1.1 * AGAIN)}])
    assert visits.left(["fast", "slow", "slower", "new"]) == ["fast", "slow", "new"]


def test_before_the_first_visit_all_are_left():
    assert Visits().left(["fast", "slow"]) == ["fast", "slow"]
    assert Visits().runners() == {}
