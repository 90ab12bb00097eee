"""Regret: how much slower the choice is than the fastest, from made-up times."""

import numpy as np
import pytest

from mpicoll.bench.contestants.contestant import Way
from mpicoll.bench.measure.statistics import Statistics
from mpicoll.bench.output.rows import MeasuredCall
from mpicoll.bench.request.cases import CALLS, make_case
from mpicoll.bench.tables.regret import COLUMNS, GOALS, Regret, summed_up
from mpicoll.dispatch.rules import Choice

RING, LINEAR, TREE = Choice("ring", 2, "host"), Choice("linear", 1, "host"), Choice("binomial", 1, "host")


def around(micro, width=0.01, number=20):
    """Samples of which half the interval of the median is so wide."""
    return Statistics.of(micro * 1e-6 * np.linspace(1 - 2 * width, 1 + 2 * width, number))


def cell(ring, linear=None, errors=(), nbytes=4000):
    """A bcast of 4000 B on 4 ranks for which the ring was chosen."""
    case = make_case(CALLS["bcast"], nbytes, "float32", 4, "", 0)
    times = {RING: ring} | ({LINEAR: linear} if linear else {})
    return Regret(MeasuredCall(case, Way("ring", 2, "host", "test"), False), RING, times, dict(errors))


def test_regret_is_what_the_choice_takes_longer_than_the_fastest():
    one = cell(around(120), around(100))
    assert one.percent == pytest.approx(20)
    assert one.fastest == LINEAR
    assert not one.tied


def test_the_fastest_choice_has_none():
    for one in (cell(around(100), around(120)), cell(around(100))):
        assert (one.percent, one.fastest, one.tied) == (0.0, RING, True)


def test_overlapping_intervals_are_a_tie():
    near = cell(around(102, 0.02), around(100, 0.02))
    assert near.tied
    assert near.percent == pytest.approx(2)
    figures = near.record()["figures"]
    assert figures["regret"] == {"value": 2.0, "unit": "%"}
    assert figures["regret, ties as 0"] == {"value": 0.0, "unit": "%"}
    apart = cell(around(102, 0.002), around(100, 0.002))
    assert not apart.tied
    assert apart.record()["figures"]["regret, ties as 0"] == {"value": 2.0, "unit": "%"}


def test_the_wider_of_the_two_intervals_makes_a_cell_uncertain():
    for ring, linear in ((0.01, 0.2), (0.2, 0.01)):
        (row,) = cell(around(150, ring), around(100, linear)).cells()
        assert row[-1].endswith(" uncertain")
    assert cell(around(150, 0.01), around(100, 0.02)).half_width == pytest.approx(0.02, rel=0.1)


def test_a_row_has_both_choices_with_their_times():
    (row,) = cell(around(102, 0.02), around(100, 0.02)).cells()
    assert row[:3] == ("bcast", "4000", "4")
    assert row[3:] == (" ring/2@host", "102.00", " linear/1@host", "100.00", "2.0", " tied")
    assert len(row) == len(COLUMNS.columns)
    (row,) = cell(around(100)).cells()
    assert row[-2:] == ("0.0", "")


def test_the_record_has_all_times_in_microseconds_and_the_models_errors_in_percent():
    record = cell(around(120), around(100), {LINEAR: 0.25}).record()
    assert {name: time["median"] for name, time in record["times"].items()} == {
        "ring/2@host": 120.0,
        "linear/1@host": 100.0,
    }
    assert record["figures"]["error linear/1@host"] == {"value": 25.0, "unit": "%"}
    assert (record["op"], record["ranks"], record["algorithm"]) == ("bcast", 4, "ring")


def test_a_half_width_of_too_few_samples_is_none_in_the_file():
    figures = cell(around(120, number=3), around(100)).record()["figures"]
    assert figures["half-width"] == {"value": None, "unit": "%"}


def test_the_summary_has_mean_95_percent_and_worst_with_ties_and_without():
    rows = [cell(around(100 + n, 0.001), around(100, 0.001)) for n in range(20)]
    rows += [cell(around(140, 0.3), around(100, 0.3), nbytes=64)]
    title, measured, ties, uncertain, which = summed_up(rows)
    assert title == "# 21 cells; regret in %: mean, 95 % of the cells, worst (goals 3, 10, 25)"
    assert GOALS == (3.0, 10.0, 25.0)
    assert measured == f"#   as measured: {(sum(range(20)) + 40) / 21:.2f}, 19.00, 40.00"
    assert ties == f"#   overlapping intervals as 0: {sum(range(20)) / 21:.2f}, 18.00, 19.00"
    assert uncertain == "# 1 cells (4.8 %) are uncertain"
    assert which.startswith("#   bcast 64 B on 4 ranks: ±")


def test_the_summary_has_the_models_errors_where_there_are_some():
    rows = [cell(around(100), errors={RING: error}) for error in (0.0, 0.1, 0.4)]
    assert summed_up(rows)[-1] == "# 3 predicted times are off by 10.0 % (half of them), 37.0 % (95 %)"
    assert "predicted" not in "\n".join(summed_up([cell(around(100))]))
    assert summed_up([]) == []
