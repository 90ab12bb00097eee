"""The benchmark's table of times: which columns it has, how wide it is, and what is in a line."""

import numpy as np
import pytest

from mpicoll.bench.contestants.contestant import Way
from mpicoll.bench.output.columns import Column, Columns, line_width, micro
from mpicoll.bench.output.rows import MeasuredCall, Measurement
from mpicoll.bench.request.cases import CALLS, make_case
from mpicoll.bench.request.jobs import Job
from mpicoll.bench.request.options import parse
from mpicoll.bench.tables import breakdown, guidelines, overhead, overlap, regret
from mpicoll.bench.tables.call_columns import CallColumns
from mpicoll.bench.tables.times import figures


def job(name, dtype="float32", size=4, nbytes=4000, root=1, forms=(False, True)):
    return Job(make_case(CALLS[name], nbytes, dtype, size, "SUM", root), None, forms)


def measured(name, seconds=(2e-6, 4e-6, 4e-6)):
    return Measurement(MeasuredCall(job(name).case, Way("ring", 2, "host"), False), np.array(seconds), 0)


def words(jobs, arguments=""):
    """The names of the columns of calls, and what is said above them."""
    found = CallColumns(jobs, parse(arguments.split()), host=True)
    return [column.name for column in found.columns], found.said


def test_columns_in_which_all_jobs_are_alike_are_said_once():
    assert words([job("allreduce", nbytes=nbytes, forms=(True,)) for nbytes in (4000, 8)]) == (
        ["# op", "size", "algorithm"],
        ["4 ranks", "float32", "sum", "in place", "path host"],
    )


def test_columns_in_which_jobs_differ_are_there():
    jobs = [job("allreduce"), job("reduce", "int8"), job("reduce", size=3), job("bcast", root=0)]
    assert words(jobs) == (["# op", "ranks", "size", "type", "root", "form", "algorithm"], ["sum", "path host"])


def test_a_wide_table_has_all_columns():
    names, said = words([job("allreduce")], "--wide")
    assert names == ["# op", "ranks", "size", "type", "redop", "root", "form", "count", "algorithm"]
    assert said == []


def test_a_line_of_the_table():
    found = CallColumns([job("allreduce"), job("bcast")], parse([]), host=True)
    one = measured("allreduce")
    cells = (*found.cells(one.call), *(figure.cell(one) for figure in figures(parse([]), ())))
    assert cells[:3] == ("allreduce", "4000", "out")
    assert cells[3:] == ("ring/2", "4.00", "?", "1.000", "1.500", "0", "3", "0", "0")


def test_a_line_has_the_baselines_that_could_serve():
    one = measured("allreduce")
    one.baselines["nccl"] = np.array([3e-6, 2e-6, 2e-6])
    one.baselines["limit"] = np.array([1e-6, 1e-6, 1e-6])
    shown = figures(parse([]), ("nccl", "native", "limit"))
    found = {(figure.column.name, figure.column.unit): figure.cell(one) for figure in shown}
    assert [found[name, "(us)"] for name in ("nccl", "native", "limit")] == ["2.00", "n/a", "1.00"]
    assert (found["nccl", "ratio"], found["native", "ratio"], found["limit", "eff."]) == ("0.50", "n/a", "0.25")


def test_a_column_that_is_not_shown_is_named_apart_from_one_of_that_name():
    found = Columns(Column("nccl", "(us)", spare=1), Column("nccl", "ratio"), Column("±", "(%)", spare=2)).fitted(10)
    assert found.left_out == ["nccl (us)", "±"]


def test_statistics_are_those_asked_for():
    one = measured("bcast", np.arange(1.0, 12.0) * 1e-6)
    asked = parse(["--stat", "median,mean,min,max,p99,ci"])
    found = {figure.column.name: figure.cell(one) for figure in figures(asked, ())[:7]}
    assert found == {
        "median": "6.00",
        "mean": "6.00",
        "min": "1.00",
        "max": "11.00",
        "p99": "10.90",
        "ci low": "2.00",
        "ci high": "10.00",
    }
    assert "time" not in found


def test_times_have_four_digits():
    assert [micro(value * 1e-6) for value in (1.234, 99.994, 123.44, 9999.94, 12345.6)] == [
        "1.23",
        "99.99",
        "123.4",
        "9999.9",
        "12346",
    ]


def test_what_can_be_spared_is_left_out_of_a_table_that_is_too_wide():
    columns = Columns(Column("# a", "#", 4, "left"), Column("b", "", 4, spare=1), Column("c", "", 4, spare=2))
    assert columns.fitted(14).left_out == []
    assert columns.fitted(13).left_out == ["c"]
    assert columns.fitted(3).left_out == ["b", "c"]
    assert columns.fitted(13).line("x", "y", "z") == "x       y"


@pytest.mark.parametrize("width", [80, 100, 120])
@pytest.mark.parametrize("arguments", ["", "--op all", "--algorithm all --baseline limit,native --both"])
def test_tables_fit(width, arguments):
    asked = parse(arguments.split())
    calls = CallColumns([job(name) for name in asked.calls], asked, host=True).columns
    own = [figure.column for figure in figures(asked, asked.baselines)]
    for table in (own, overlap.COLUMNS, overhead.COLUMNS, breakdown.COLUMNS, guidelines.COLUMNS, regret.COLUMNS):
        head = Columns(*calls, *table).fitted(width).head()
        assert max(map(len, head)) <= width, head


def test_a_line_is_as_wide_as_the_terminal(monkeypatch):
    for given, width in (("100", 100), ("40", 80)):
        monkeypatch.setenv("COLUMNS", given)
        assert line_width() == width
