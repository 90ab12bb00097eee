"""The benchmark's overlap of nonblocking calls."""

from pathlib import Path

import pytest
from mpi4py import MPI

from mpicoll.bench.contestants.contestant import Way
from mpicoll.bench.measure.statistics import Statistics
from mpicoll.bench.output.columns import Columns
from mpicoll.bench.output.results import read
from mpicoll.bench.output.rows import MeasuredCall
from mpicoll.bench.request.cases import CALLS, make_case
from mpicoll.bench.run import run
from mpicoll.bench.tables.overlap import COLUMNS, Overlap

WORLD = MPI.COMM_WORLD


def of_a_bcast(total, spread=0.0):
    """An overlap of a call that takes 1 s with 2 s of computation."""
    case = make_case(CALLS["bcast"], 8, "float32", 2, "", 0)
    times = [Statistics(seconds, spread, *5 * (seconds,), 0, 9) for seconds in (1.0, 2.0, total)]
    return Overlap(MeasuredCall(case, Way("linear"), True), *times)


def line(overlap):
    (cells,) = overlap.cells()
    return Columns(*COLUMNS).line(*cells)


def test_overlap_as_osu_defines_it():
    assert of_a_bcast(2.25).percent == pytest.approx(75)
    assert of_a_bcast(3.5).percent == 0
    assert line(of_a_bcast(2.25)).endswith(" 75.00 ±0.00")


def test_no_more_than_the_call_is_hidden():
    """Both together were faster than the computation alone: at least what is too much is noise."""
    found = of_a_bcast(1.5)
    assert (found.percent, found.noise) == (100, 50)
    assert line(found).endswith(" 100.00 ±50.00")
    assert line(of_a_bcast(0.75)).endswith(" below noise ±125.00")


def test_an_overlap_below_its_noise_is_not_a_number():
    found = of_a_bcast(2.75, spread=0.2)
    assert line(found).endswith(" below noise ±34.64")
    figure = found.record()["figures"]["overlap"]
    assert figure == {"value": None, "unit": "%", "spread": pytest.approx(34.64, abs=0.01)}


def test_every_call_is_measured(tmp_path):
    file = WORLD.bcast(str(tmp_path / "overlap.json"))
    words = ["--op", "barrier,bcast,allreduce", "--min", "8", "--max", "8", "--iters", "3", "--async", "1"]
    assert run([*words, "--buffers", "numpy", "--json", file]) == 0
    if WORLD.rank == 0:
        rows = read(Path(file))["rows"]
        assert [(row["mode"], row["op"]) for row in rows] == [("overlap", name) for name in words[1].split(",")]
        assert all(row["times"]["compute"]["median"] >= 1e3 for row in rows)
        assert all(row["times"][name]["median"] > 0 for row in rows for name in ("pure", "total"))
