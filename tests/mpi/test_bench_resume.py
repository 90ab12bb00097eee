"""A run of the benchmark that goes on where an earlier one ended."""

import csv
import json

import pytest
from mpi4py import MPI

from mpicoll.bench.output.results import read
from mpicoll.bench.run import run

WORLD = MPI.COMM_WORLD
# Numbers of ranks are of one launch; what one is has no other case on 3.
pytestmark = pytest.mark.ranks(1, 2)


def results(folder, arguments, iterations=1):
    """Run it, and return its status and its file on all ranks."""
    words = f"{arguments} --buffers numpy --warmup 0 --iters {iterations} --json {folder / 'results.json'}"
    status = run(words.split())
    found = read(folder / "results.json") if WORLD.rank == 0 else None
    return status, WORLD.bcast(found, root=0)


def cut(file, number):
    """Leave the header and so many rows, and a part of the next one, as a run that was killed does."""
    if WORLD.rank == 0:
        lines = file.read_text().splitlines(keepends=True)
        rows = [at for at, line in enumerate(lines) if json.loads(line)["kind"] == "row"]
        file.write_text("".join(lines[: rows[number]]) + lines[rows[number]][:40])
    WORLD.Barrier()


def measured(found):
    names = ("op", "bytes", "ranks", "asked", "in_place")
    return [tuple(row.get(name) for name in names) for row in found["rows"]]


@pytest.mark.parametrize("done", [3, -3])
@pytest.mark.parametrize("mode", ["", "--overhead", "--breakdown"])
def test_a_run_that_was_killed_goes_on_where_it_ended(folder, capfd, mode, done):
    """The rows that the file has are kept as they are, and those that are left are appended."""
    ranks = f"--ranks 1,{WORLD.size}" if WORLD.size > 1 else ""
    what = f"{mode} {ranks} --op bcast,allreduce --algorithm auto,linear --sizes 8,64 --no-shuffle"
    _, whole = results(folder, what, 3)
    done %= len(whole["rows"])
    cut(folder / "results.json", done)
    capfd.readouterr()
    status, found = results(folder, f"{what} --resume --csv {folder / 'results.csv'}", 3)
    assert (status, measured(found)) == (0, measured(whole))
    assert found["rows"][:done] == whole["rows"][:done]
    assert (found["end"]["measured"], found["end"]["of"]) == (whole["end"]["measured"], whole["end"]["of"])
    if WORLD.rank == 0:
        assert f", {done} of them in {folder / 'results.json'} before" in capfd.readouterr().out
        with (folder / "results.csv").open(newline="") as lines:
            assert [row["op"] for row in csv.DictReader(lines)] == [row["op"] for row in whole["rows"]]


def test_another_run_is_refused_and_its_file_kept(folder, capfd):
    _, whole = results(folder, "--op bcast --sizes 8")
    status, found = results(folder, "--op bcast --sizes 16 --resume")
    assert (status, found) == (2, whole)
    if WORLD.rank == 0:
        assert "results.json is of another run: option sizes [8], now [16]" in capfd.readouterr().err


def test_wrong_elements_of_the_run_before_count(folder):
    """A file with a wrong row stays one that has failed."""
    results(folder, "--op bcast --sizes 8,64")
    if WORLD.rank == 0:
        file = folder / "results.json"
        file.write_text(file.read_text().replace('"wrong": 0}', '"wrong": 5}', 1))
    cut(folder / "results.json", 1)
    status, found = results(folder, "--op bcast --sizes 8,64 --resume")
    assert (status, found["end"]["verdict"], found["end"]["wrong"]) == (1, "FAILED", 5)
