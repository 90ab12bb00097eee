"""The benchmark's file of results."""

import json
from pathlib import Path

import pytest

import mpicoll
from mpicoll.bench.output.results import Results, read


def test_each_line_is_in_the_file_when_it_is_known(tmp_path):
    """A run that is killed leaves what it has measured."""
    file = tmp_path / "run.json"
    results = Results(file)
    results.begin(mode="times")
    results.add("row", op="bcast")
    found = read(file)
    assert (found["rows"], found["end"]) == ([{"op": "bcast"}], None)
    results.end(verdict="OK")
    assert read(file)["end"] == {"verdict": "OK"}


def test_nothing_is_written_before_the_header_or_after_the_end(tmp_path):
    """A signal's end is the last line, whatever the main thread still measures."""
    file = tmp_path / "run.json"
    results = Results(file)
    results.add("row", number=1)
    assert not file.exists()
    results.begin(mode="times")
    results.end(verdict="interrupted")
    results.add("row", number=2)
    results.end(verdict="OK")
    assert [json.loads(line)["kind"] for line in file.read_text().splitlines()] == ["header", "end"]


def test_a_line_that_was_cut_is_left_out(tmp_path):
    file = tmp_path / "run.json"
    results = Results(file)
    results.begin(mode="times")
    results.add("row", number=1)
    with file.open("a") as out:
        out.write('{"kind": "row", "num')
    results.end(verdict="OK")
    assert read(file)["rows"] == [{"number": 1}]


@pytest.mark.parametrize("name", [".", "none/run.json", "file/run.json"])
def test_a_place_that_cannot_be_written_is_found_before_the_run(tmp_path, name):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="directory"):
        Results(tmp_path / name).begin(mode="times")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is full")
def test_a_full_disk_is_found_before_the_run():
    with pytest.raises(OSError, match="No space left"):
        Results(Path("/dev/full")).begin(mode="times")


@pytest.mark.parametrize("text", ["", "[]\n", '{"schema": 1}\n', '{"kind": "header", "schema": 3}\n', "# text"])
def test_another_file_is_not_read(tmp_path, text):
    file = tmp_path / "run.json"
    file.write_text(text)
    with pytest.raises(ValueError, match="does not begin with a header of schema 1 or 2"):
        read(file)


def test_rows_of_schema_1_are_handed_out_in_schema_2(tmp_path):
    """Times by name, figures with units; ranks, memory and what was asked for come from the rest of the file."""
    row = {"mode": "times", "op": "bcast", "algorithm": "ring", "segments": 2, "reason": "algorithm= in the call"}
    row |= {"time_us": {"median": 4.0, "samples": [4.0, 5.0]}, "algbw_GBps": 1.5, "number": 2, "wrong": 0}
    row |= {"baselines": {"nccl": {"time_us": {"median": 2.0, "low": 1.0}, "ratio": 0.5}}}
    header = {"kind": "header", "schema": 1, "facts": {"ranks": 4, "buffers": "cupy"}}
    file = tmp_path / "old.json"
    file.write_text("\n".join(map(json.dumps, (header, {"kind": "row", **row}))))
    (found,) = read(file)["rows"]
    ours = {"median": 4.0, "samples": [4.0, 5.0], "number": 2}
    assert found["times"] == {"mpicoll": ours, "nccl": {"median": 2.0, "ci_low": 1.0}}
    assert found["figures"] == {"ratio nccl": {"value": 0.5, "unit": ""}, "algbw": {"value": 1.5, "unit": "GB/s"}}
    assert (found["ranks"], found["memory"], found["asked"], found["wrong"]) == (4, "device", "ring/2", 0)


KEPT = sorted((Path(mpicoll.__file__).parent.parent / "bench" / "results").glob("*.json"))


@pytest.mark.parametrize("mode", ["times", "overlap", "overhead", "breakdown"])
def test_kept_results_are_of_one_form(mode):
    rows = [row for file in KEPT for row in rows_of(file) if row.get("mode") == mode]
    assert rows
    for row in rows:
        assert {"mode", "op", "bytes", "ranks", "memory", "times", "figures", "wrong"} <= row.keys()
        assert all("median" in times for times in row["times"].values())
        assert all({"value", "unit"} <= figure.keys() for figure in row["figures"].values())
        assert not [name for name in row if name.endswith(("_us", "_GBps"))]


def rows_of(file):
    """Rows of a kept file; none of one that has another form."""
    try:
        return read(file)["rows"]
    except (ValueError, AttributeError):
        return []


def test_a_run_without_a_file_writes_none():
    results = Results(None)
    results.begin(mode="times")
    results.add("row", number=1)
    results.end(verdict="OK")
