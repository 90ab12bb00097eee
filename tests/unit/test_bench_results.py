"""The benchmark's file of results."""

import json
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("text", ["", "[]\n", '{"schema": 1}\n', '{"kind": "header", "schema": 2}\n', "# text"])
def test_another_file_is_not_read(tmp_path, text):
    file = tmp_path / "run.json"
    file.write_text(text)
    with pytest.raises(ValueError, match="does not begin with a header of schema 1"):
        read(file)


def test_a_run_without_a_file_writes_none():
    results = Results(None)
    results.begin(mode="times")
    results.add("row", number=1)
    results.end(verdict="OK")
