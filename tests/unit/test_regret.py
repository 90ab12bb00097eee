"""Regret: how much slower the choice is than the fastest, from made-up times."""

import numpy as np
import pytest

from mpicoll.bench.contestants.contestant import Way
from mpicoll.bench.measure.race import Runner
from mpicoll.bench.measure.statistics import Statistics
from mpicoll.bench.measure.visits import Visits
from mpicoll.bench.output.rows import MeasuredCall
from mpicoll.bench.request.cases import CALLS, make_case
from mpicoll.bench.tables.regret import COLUMNS, GOALS, Regret, summed_up
from mpicoll.dispatch.rules import Choice

RING, LINEAR = Choice("ring", 2, "host"), Choice("linear", 1, "host")


def around(value, width, number=20):
    """Samples around a value; of 20 the median's interval has about such a half-width, in parts of the value."""
    return Statistics.of(value * np.linspace(1 - 2 * width, 1 + 2 * width, number))


def runner(ratio, width=0.01, **more):
    """What a race says of a call that takes so many times the 100 us of the reference."""
    return Runner(around(ratio * 100e-6, width, **more), around(ratio, width, **more), 100e-6)


def cell(linear=None, errors=(), nbytes=4000):
    """A bcast of 4000 B on 4 ranks, for which the ring was chosen: the reference."""
    case = make_case(CALLS["bcast"], nbytes, "float32", 4, "", 0)
    runners = {RING: Runner(around(100e-6, 0.01), around(1.0, 0.0), 100e-6)} | ({LINEAR: linear} if linear else {})
    call = MeasuredCall(case, Way("ring", 2, "host", "test"), False)
    return Regret(call, RING, Visits([runners]), dict(errors))


def test_regret_is_what_the_choice_takes_longer_than_the_fastest():
    one = cell(runner(0.8))
    assert one.percent == pytest.approx(25)
    assert one.fastest == LINEAR
    assert not one.tied


def test_a_choice_that_is_the_fastest_in_one_visit_only_is_no_better():
    """In the other visit it takes 2.5 times as long."""
    one = cell(runner(0.7))
    one.visits.found.append({RING: one.visits.found[0][RING], LINEAR: runner(2.5)})
    assert (one.percent, one.fastest) == (0.0, RING)


def test_the_fastest_choice_has_none():
    for one in (cell(runner(1.2)), cell(runner(1.0001)), cell()):
        assert (one.percent, one.fastest, one.tied, one.half_width) == (0.0, RING, True, 0.0)


def test_a_ratio_that_may_be_1_is_a_tie():
    near = cell(runner(0.98, 0.03))
    assert near.tied
    figures = near.record()["figures"]
    assert figures["regret"] == {"value": 2.04082, "unit": "%"}
    assert figures["regret, ties as 0"] == {"value": 0.0, "unit": "%"}
    apart = cell(runner(0.98, 0.002))
    assert not apart.tied
    assert apart.record()["figures"]["regret, ties as 0"] == {"value": 2.04082, "unit": "%"}


def test_a_ratio_that_is_known_badly_makes_a_cell_uncertain():
    for width, note in ((0.2, "tied uncertain"), (0.06, "uncertain"), (0.03, "")):
        (row,) = cell(runner(0.9, width)).cells()
        assert row[-1] == note
    assert cell(runner(0.9, 0.03)).half_width == pytest.approx(0.03, rel=0.1)


def test_a_row_has_both_choices_with_their_times():
    (row,) = cell(runner(0.98, 0.03)).cells()
    assert row[:4] == ("100.0", "linear/1@host", "98.00", "2.0")
    assert row[5] == "tied"
    assert len(row) == len(COLUMNS)
    (row,) = cell().cells()
    assert row[-3:] == ("0.0", "0.0", "")


def test_the_time_of_the_fastest_is_what_it_is_where_the_chosen_one_ran():
    """Its own blocks may have had a faster machine: it left the race early."""
    early = Runner(around(50e-6, 0.0), around(0.9, 0.0), 100e-6)
    (row,) = cell(early).cells()
    assert row[2] == "90.00"


def test_the_record_has_all_times_in_microseconds_and_the_models_errors_in_percent():
    record = cell(runner(0.8), {LINEAR: 0.25}).record()
    medians = {name: time["median"] for name, time in record["times"].items()}
    assert medians == {"ring/2@host": 100.0, "linear/1@host": 80.0}
    assert record["figures"]["error linear/1@host"] == {"value": 25.0, "unit": "%"}
    assert (record["op"], record["ranks"], record["algorithm"]) == ("bcast", 4, "ring")


def test_a_half_width_of_too_few_rounds_is_none_in_the_file():
    one = cell(runner(0.9, number=3))
    figures = one.record()["figures"]
    assert figures["half-width"] == {"value": None, "unit": "%"}
    assert summed_up([one.record()])[-1] == "#   bcast 4000 B on 4 ranks: ±? %"


def test_the_summary_has_mean_95_percent_and_worst_with_ties_and_without():
    rows = [cell(runner(100 / (100 + n), 0.001)) for n in range(1, 20)] + [cell()]
    rows += [cell(runner(100 / 140, 0.5), nbytes=64)]
    title, measured, ties, uncertain, which = summed_up(row.record() for row in rows)
    assert title == "# 21 cells; regret in %: mean, 95 % of the cells, worst (goals 3, 10, 25)"
    assert GOALS == (3.0, 10.0, 25.0)
    assert measured == f"#   as measured: {(sum(range(20)) + 40) / 21:.2f}, 19.00, 40.00"
    assert ties.split(": ")[1] == f"{sum(range(20)) / 21:.2f}, 18.00, 19.00"
    assert uncertain == "# 1 cells (4.8 %) are uncertain"
    assert which.startswith("#   bcast 64 B on 4 ranks: ±")


def test_the_summary_has_the_models_errors_where_there_are_some():
    rows = [cell(errors={RING: error}) for error in (0.0, 0.1, 0.4)]
    assert (
        summed_up(row.record() for row in rows)[-1]
        == "# 3 predicted times are off by 10.0 % (half of them), 37.0 % (95 %)"
    )
    assert "predicted" not in "\n".join(summed_up([cell().record()]))
    assert summed_up([]) == []
