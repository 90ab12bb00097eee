"""The report: what is made of the rows of files of results, and the page."""

import re
import sys
from pathlib import Path

import pytest

import mpicoll
from mpicoll.__main__ import main
from mpicoll.bench.output.results import Results, read
from mpicoll.report.board import alike, board
from mpicoll.report.contest import Contest, Timing, contests
from mpicoll.report.page import fact_text, page, ratios
from mpicoll.report.pairs import matrices
from mpicoll.report.winners import takeovers, winner

KEPT = Path(mpicoll.__file__).parent.parent / "bench" / "results"


def times(median, width=0.0):
    return {"median": median, "ci_low": median - width, "ci_high": median + width}


def row(nbytes, asked, median, **how):
    found = {"mode": "times", "op": "bcast", "bytes": nbytes, "ranks": 4, "memory": "host", "in_place": False}
    found |= {"dtype": "float32", "redop": None, "root": 0, "asked": asked, "algorithm": asked, "segments": 4}
    found |= {"path": "host", "times": {"mpicoll": times(median)}, "figures": {"busbw": {"value": 1.0, "unit": "GB/s"}}}
    return found | how


def curve(*medians, width=0.0):
    """A curve of times at 1, 10 and 100 bytes."""
    return {10**k: Timing(m, m - width, m + width, 1.0, "x") for k, m in enumerate(medians)}


def test_rows_become_curves_choices_and_baselines():
    beside = {"mpicoll": times(10.0), "native": times(20.0)}
    rows = [row(8, "ring", 10.0, times=beside), row(8, "auto", 11.0, algorithm="ring"), row(64, "linear", 30.0)]
    (one,) = contests(rows)
    assert (one.call, one.ranks, list(one.curves), one.sizes) == ("bcast", 4, ["ring", "linear"], [8, 64])
    assert (one.auto[8].median, one.auto[8].way) == (11.0, "ring/4@host")
    assert one.baselines["native"][8] == Timing(20.0, 20.0, 20.0, 0.5, "native")  # half of our bandwidth


def test_launches_come_to_their_medians_and_ranks_apart():
    rows = [row(8, "ring", 10.0), row(8, "ring", 30.0), row(8, "ring", 12.0), row(8, "ring", 99.0, ranks=2)]
    two, four = contests(rows)
    assert (two.ranks, four.ranks, four.curves["ring"][8].median) == (2, 4, 12.0)


def test_what_rows_differ_in_is_in_the_title():
    rows = [row(8, "ring", 1.0), row(8, "ring", 2.0, root=1), row(8, "ring", 3.0, op="scan", root=None)]
    assert [one.call for one in contests(rows)] == ["bcast, root 0", "bcast, root 1", "scan"]


def test_calls_in_place_are_left_out_beside_others():
    rows = [row(8, "ring", 1.0), row(8, "ring", 2.0, in_place=True), row(8, "ring", 3.0, op="exscan", in_place=True)]
    assert [one.curves["ring"][8].median for one in contests(rows)] == [1.0, 3.0]


def test_the_winner_is_the_fastest_and_equals_overlap():
    one = Contest("bcast", 4, {"a": curve(10, width=1), "b": curve(11, width=1), "c": curve(14)}, curve(12.5))
    found = winner(one, 1)
    assert (found.name, found.equal, found.regret, found.shown) == ("a", ("b",), pytest.approx(0.25), True)
    assert winner(Contest("bcast", 4, one.curves, curve(9)), 1).regret == 0.0
    assert winner(Contest("bcast", 4, one.curves), 1).regret is None
    assert winner(Contest("bcast", 4, {}, curve(9)), 1).name == "x"
    assert winner(one, 10) is None


def test_an_algorithm_takes_over_where_the_curves_meet():
    (found,) = takeovers(Contest("bcast", 4, {"a": curve(1, 1, 100), "b": curve(10, 10, 10)}))
    assert (found.before, found.after, found.nbytes) == ("a", "b", pytest.approx(10**1.5))


def test_an_algorithm_that_cannot_be_told_apart_does_not_take_over():
    noisy = {"a": curve(10, 11, 10, width=1), "b": curve(11, 10, 11, width=1)}
    assert takeovers(Contest("bcast", 4, noisy)) == []
    exact = {"a": curve(10, 11, 10), "b": curve(11, 10, 11)}
    assert [(one.before, one.after) for one in takeovers(Contest("bcast", 4, exact))] == [("a", "b"), ("b", "a")]


def test_sizes_that_blocks_have_rounded_share_a_row():
    assert alike({2: [8, 64], 3: [12, 60], 8: [32]}) == [{2: 8, 3: 12}, {8: 32}, {3: 60, 2: 64}]
    assert alike({3: [8, 12], 4: [8]}) == [{3: 8, 4: 8}, {3: 12}]
    found = board(contests([row(8, "a", 1.0, ranks=2), row(12, "b", 2.0, ranks=3), row(8, "c", 3.0, ranks=4)]))
    assert (found.sizes, found.ranks, [one.name for one in found.cells.values()]) == ([8], [2, 3, 4], ["a", "b", "c"])
    assert found.nbytes == {(0, 0): 8, (0, 1): 12, (0, 2): 8}


def test_ratios_are_over_the_choice_or_else_the_fastest():
    beside = {"mpicoll": times(10.0), "native": times(20.0)}
    rows = [row(8, "a", 10.0, times=beside), row(64, "a", 10.0, times=beside), row(8, "auto", 40.0)]
    found = contests(rows)
    assert ratios(found, board(found), "native") == {(0, 0): 0.5, (1, 0): 2.0}


def pair(op, pair, name, value, **how):
    figures = {name: {"value": value, "unit": "us" if name == "latency" else "GB/s"}}
    return {"mode": "topology", "op": op, "pair": pair, "bytes": 1024, "times": {}, "figures": figures} | how


def test_matrices_are_of_pairs_and_not_of_the_streams_of_one_source():
    rows = [pair("latency", [0, 1], "latency", 1.5), pair("alone", [0, 1], "bandwidth", 9.0)]
    rows += [pair("alone", [1, 0], "bandwidth", 8.0), pair("one source", [0, 1], "bandwidth", 7.0, repeat=3)]
    assert matrices([*rows, row(8, "ring", 1.0)]) == [
        ("latency, 1 KiB", "us", {(0, 1): 1.5}),
        ("bandwidth, alone, 1 KiB", "GB/s", {(0, 1): 9.0, (1, 0): 8.0}),
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [(True, "yes"), (False, "no"), (0, "0"), (None, ""), ([], ""), ([1, 2], "1\n2"), ({"a": 1, "b": ""}, "a: 1\nb")],
)
def test_facts_are_in_words(value, text):
    assert fact_text(value) == text


@pytest.fixture(scope="module")
def kept():
    pytest.importorskip("matplotlib")
    return page({"run.json": read(KEPT / "2026-11-28-baselines-4xH200.json")})


def test_a_page_needs_nothing_from_elsewhere_and_runs_no_script(kept):
    assert not re.findall(r"<script|<link|src=|@import|url\(http|href=.http", kept)
    assert len(kept) < 5e6
    assert kept.count("<svg") == kept.count("</svg>") > 16


def test_a_page_has_the_machine_winners_plots_and_ratios(kept):
    assert "<h1>mpicoll: 4 ranks on NVIDIA H200, 2026-11-28</h1>" in kept
    assert "<b>one_shot/4@mapped</b>" in kept or "<b>one_shot@mapped</b>" in kept
    for text in ("allreduce on 4 ranks", "chosen (auto)", "t(nccl) / t(mpicoll)", "the fastest algorithm", "256 MiB"):
        assert text in kept
    assert "Pairs of ranks" not in kept


def test_names_cannot_break_the_page():
    pytest.importorskip("matplotlib")
    rows = [row(8, "<b>ring", 1.0, op="<i>bcast"), row(64, "<b>ring", 2.0, op="<i>bcast")]
    text = page({"<u>.json": {"facts": {"cpu": "<s>", "ranks": 4}, "rows": rows}})
    assert not re.findall(r"<u>|<s>|<i>|<b>ring|<b><b>", text)


def test_pairs_have_a_section():
    pytest.importorskip("matplotlib")
    text = page({"a": {"facts": {}, "rows": [pair("alone", [0, 1], "bandwidth", 9.0)]}})
    assert "Pairs of ranks" in text
    assert "The fastest algorithm" not in text


def written(tmp_path, rows):
    results = Results(tmp_path / "run.json")
    results.begin(mode="times", facts={"ranks": 4, "date": "2026-11-29", "cpu": "a CPU"})
    for one in rows:
        results.add("row", **one)
    results.end(verdict="OK")
    return str(tmp_path / "run.json")


def test_the_command_writes_the_page(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    run = written(tmp_path, [row(8, "ring", 1.0), row(64, "ring", 2.0)])
    assert main(["report", run, "-o", str(tmp_path / "page.html")]) == 0
    assert "4 ranks on a CPU, 2026-11-29" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "written:" in capsys.readouterr().out


def test_a_file_without_times_is_refused_in_a_line(tmp_path, capsys):
    assert main(["report", written(tmp_path, [row(8, "ring", 1.0, mode="overlap")])]) == 2
    assert "run.json: no rows of times, and none of pairs of ranks" in capsys.readouterr().err


def test_without_matplotlib_an_error_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["report", written(tmp_path, [row(8, "ring", 1.0)]), "-o", str(tmp_path / "page.html")]) == 2
    assert 'pip install "mpicoll[plots]"' in capsys.readouterr().err
    assert not (tmp_path / "page.html").exists()
