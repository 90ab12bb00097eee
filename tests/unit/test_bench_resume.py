"""What an interrupted run of the benchmark has left, and its rows as a table."""

import csv
import json

import pytest

from mpicoll.bench.errors import RequestError
from mpicoll.bench.output.earlier import MACHINE, Earlier, earlier, named
from mpicoll.bench.output.flat import flat, write_csv
from mpicoll.bench.output.results import Results, read
from mpicoll.bench.request.cases import CALLS, make_case
from mpicoll.bench.request.jobs import Job

FACTS = {name: f"a {name}" for name in MACHINE}
OPTIONS = {"calls": ("bcast",), "budget": 9.0, "json": "a", "seed": 1}


def job(nbytes, algorithm=None, forms=(False, True)):
    return Job(make_case(CALLS["allreduce"], nbytes, "float32", 4, "SUM", 0), algorithm, forms)


def row(of, in_place):
    names = ("op", "bytes", "count", "dtype", "redop", "root", "ranks", "asked", "in_place")
    return {**dict(zip(names, named(of, in_place), strict=True)), "wrong": 1}


def test_what_was_measured_is_not_measured_again():
    """By call, size and algorithm that was asked for; a form that is left alone is measured alone."""
    first, half, other = job(8), job(64), job(8, "ring/2")
    found = Earlier([row(first, False), row(first, True), row(half, True)])
    assert found.left([first, half, other]) == [job(64, forms=(False,)), other]
    assert found.wrong == 3


@pytest.fixture
def file(tmp_path):
    found = tmp_path / "run.json"
    results = Results(found)
    results.begin(mode="times", facts=FACTS, options=OPTIONS)
    results.add("refused", what="bcast", name="ring", reason="is tired")
    results.add("row", op="bcast", wrong=0)
    results.end(verdict="interrupted")
    return found


def test_the_same_run_goes_on(file):
    found = earlier(file, "times", OPTIONS | {"json": "b", "seed": 2}, FACTS | {"date": "today", "command": "longer"})
    assert [one["op"] for one in found.rows] == ["bcast"]
    assert [one["name"] for one in found.refused] == ["ring"]


# Not all of MACHINE, which must not say what is to be compared.
@pytest.mark.parametrize("name", ["commit", "ranks", "cpu", "numpy", "mpi4py", "buffers", "variables", "gpus"])
def test_another_machine_is_refused(file, name):
    with pytest.raises(RequestError, match=f"run.json is of another run: {name} a {name}, now else"):
        earlier(file, "times", OPTIONS, FACTS | {name: "else"})


def test_another_mode_or_option_is_refused(file):
    with pytest.raises(RequestError, match="another run: mode times, now overlap"):
        earlier(file, "overlap", OPTIONS, FACTS)
    with pytest.raises(RequestError, match=r"another run: option budget 9.0, now 8.0"):
        earlier(file, "times", OPTIONS | {"budget": 8.0}, FACTS)


def test_what_is_no_file_of_results_is_refused(tmp_path):
    (tmp_path / "text").write_text("text")
    with pytest.raises(RequestError, match="does not begin with a header"):
        earlier(tmp_path / "text", "times", OPTIONS, FACTS)


def test_rows_are_appended_after_the_last_whole_line(file):
    """The end of the run before and a line that was cut are dropped, and one end is written."""
    with file.open("a") as out:
        out.write('{"kind": "row", "op": "all')
    results = Results(file)
    results.go_on()
    results.add("row", op="reduce")
    results.end(verdict="OK")
    kinds = [json.loads(line)["kind"] for line in file.read_text().splitlines()]
    assert kinds == ["header", "refused", "row", "row", "end"]
    found = read(file)
    assert ([one["op"] for one in found["rows"]], found["end"]) == (["bcast", "reduce"], {"verdict": "OK"})


ROW = {"op": "bcast", "pair": [0, 1], "times": {"mpicoll": {"median": 4.1, "outliers": 2, "samples": [1.0]}}}
ROW |= {"figures": {"overlap": {"value": None, "unit": "%", "spread": 3.0}, "ratio nccl": {"value": 2.0, "unit": ""}}}


def test_columns_have_their_units_in_the_head():
    assert dict(flat(ROW)) == {
        "op": "bcast",
        "pair": "0 1",
        "mpicoll median (us)": 4.1,
        "mpicoll outliers": 2,
        "overlap (%)": None,
        "overlap spread (%)": 3.0,
        "ratio nccl": 2.0,
    }


def test_a_row_is_a_line_and_what_it_does_not_have_is_empty(tmp_path):
    write_csv(tmp_path / "run.csv", [ROW, {"op": "a, b", "times": {"nccl": {"median": 1.0}}, "figures": {}}])
    with (tmp_path / "run.csv").open(newline="") as lines:
        first, second = csv.DictReader(lines)
    assert (first["mpicoll median (us)"], first["nccl median (us)"]) == ("4.1", "")
    assert (second["op"], second["nccl median (us)"], second["overlap (%)"]) == ("a, b", "1.0", "")
