"""The table of the fastest algorithms: which one it names, and what it says of auto."""

import numpy as np
import pytest

from mpicoll.algorithms import catalogue
from mpicoll.bench.contestants.contestant import Way
from mpicoll.bench.output.rows import MeasuredCall, Measurement
from mpicoll.bench.request.cases import CALLS, make_case
from mpicoll.bench.tables.winners import MANY, lines

WIDTH = 100


def measured(asked, microseconds, nbytes=8, op="allreduce", in_place=False, samples=9, noise=0.0, **case):
    case = {"dtype": "float32", "size": 4, "redop": "SUM", "root": 0} | case
    call = MeasuredCall(make_case(CALLS[op], nbytes, **case), Way("ring", 2, "host"), in_place, asked)
    times = microseconds + np.linspace(-noise, noise, samples)
    return {"mode": "times", **Measurement(call, times * 1e-6, 0).record()}


def said(rows):
    """The words of the lines below the head."""
    return [line.split() for line in list(lines(rows))[3:]]


def test_sizes_with_one_winner_are_one_line():
    rows = [measured("ring", time, n) for n, time in ((8, 1), (64, 1), (4096, 3), (32768, 3))]
    rows += [measured("linear", 2, n) for n in (8, 64, 4096, 32768)]
    assert said(rows) == [["#", "allreduce", "8-64", "ring"], ["#", "4K-32K", "linear"]]


def test_auto_is_compared_with_the_fastest_of_the_others():
    rows = [measured(name, time) for name, time in (("auto", 2.5), ("ring", 3), ("linear", 2))]
    assert said(rows) == [["#", "allreduce", "8", "linear", "+25"]]
    rows[0] = measured("auto", 1.5)
    assert said(rows) == [["#", "allreduce", "8", "linear", "="]]


def test_auto_within_the_noise_is_said_to_be_as_fast():
    rows = [measured("auto", 2.1), measured("ring", 3), measured("linear", 2, noise=0.2)]
    assert said(rows) == [["#", "allreduce", "8", "linear", "="]]


def test_auto_is_not_compared_by_a_few_calls():
    rows = [measured(name, time, samples=5) for name, time in (("auto", 9), ("ring", 3), ("linear", 2))]
    assert said(rows) == [["#", "allreduce", "8", "linear", "?"]]


def test_a_run_without_a_choice_has_no_such_table():
    assert list(lines([measured("auto", 1), measured("ring", 1)])) == []


def test_calls_are_told_apart_by_what_the_run_has_several_of():
    kinds = [{"size": 2}, {"size": 4}, {"size": 4, "op": "scan"}]
    rows = [measured(name, time, **kind) for kind in kinds for name, time in (("ring", 1), ("linear", 2))]
    names = [line[2:33].strip() for line in list(lines(rows))[3:]]
    assert names == ["allreduce, 2 ranks", "allreduce, 4 ranks", "scan, 4 ranks"]


@pytest.mark.parametrize("number", [MANY, MANY + 1, 2 * MANY])
def test_the_table_fits_into_100_columns(number):
    """With the longest names, and as many sizes as a line can have."""
    longest = max((name for names in catalogue().values() for name in names), key=len)
    rows = []
    for nbytes in (8 * 8**place for place in range(number)):
        for asked, time in (("auto", 2), (longest, 1), ("linear", 3)):
            rows.append(measured(asked, time, nbytes, op="reduce_scatter_block", size=8))
    rows += [{**row, "ranks": 16} for row in rows]
    found = list(lines(rows))
    assert len(found) == 3 + 2 * -(-number // MANY)
    assert max(map(len, found)) <= WIDTH
