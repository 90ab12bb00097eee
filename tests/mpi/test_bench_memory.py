"""The benchmark where memory is short: what does not fit on one rank is left out on all, with the reason."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll.bench.measure.arrays
import mpicoll.bench.tables.times
from mpicoll.bench.measure.backends import HostBackend, ShortageError
from mpicoll.bench.output.results import read
from mpicoll.bench.run import run

WORLD = MPI.COMM_WORLD
LAST = WORLD.size - 1
#: bytes that the last rank has in one piece, and message sizes that fit and that do not
PIECE, FITS, TOO_MUCH = 1 << 16, 1 << 10, 1 << 19


class Small:
    """NumPy, with little memory on the last rank."""

    def __init__(self, functions):
        self.functions = functions

    def __getattr__(self, name):
        found = getattr(np, name)
        return self._limited(found) if name in self.functions else found

    def _limited(self, function):
        def limited(*arguments, **keywords):
            made = function(*arguments, **keywords)
            if WORLD.rank == LAST and made.nbytes > PIECE:
                raise MemoryError(f"no {made.nbytes} bytes")
            return made

        return limited


def results(monkeypatch, functions, arguments):
    """Run the benchmark with so little memory for what these functions of NumPy's make."""
    monkeypatch.setattr(HostBackend, "xp", Small(functions))
    with tempfile.TemporaryDirectory() as mine:
        file = Path(WORLD.bcast(mine, root=0)) / "results.json"
        status = run(f"{arguments} --json {file} --iters 3 --warmup 0".split())
        WORLD.Barrier()
        found = WORLD.bcast(read(file) if WORLD.rank == 0 else None, root=0)
        WORLD.Barrier()
    assert WORLD.allgather(status) == [0] * WORLD.size
    return found


# Where it can end: the arrays, what is expected of them, a mark for each element.
@pytest.mark.parametrize("function", ["empty", "zeros_like", "ones"])
def test_what_does_not_fit_is_left_out(monkeypatch, function):
    found = results(monkeypatch, {function}, f"--op allreduce,alltoall --sizes {FITS},{TOO_MUCH} --both")
    assert [(row["op"], row["in_place"]) for row in found["rows"]] == [
        ("allreduce", False), ("allreduce", True), ("alltoall", False), ("alltoall", True),
    ]  # fmt: skip
    assert all(row["bytes"] <= FITS for row in found["rows"])
    assert [refused["what"] for refused in found["refused"]] == ["allreduce", "allreduce", "alltoall", "alltoall"]
    for refused in found["refused"]:
        assert refused["name"].endswith(" place:")
        assert f"memory of rank {LAST} is too little (no " in refused["reason"]


@pytest.mark.mpi(min_size=2)
def test_a_baseline_that_does_not_fit_is_left_out(monkeypatch):
    found = results(monkeypatch, {"zeros"}, f"--op bcast --baseline limit --sizes {FITS},{TOO_MUCH}")
    assert [list(row["times"]) for row in found["rows"]] == [["mpicoll", "limit"], ["mpicoll"]]
    (refused,) = found["refused"]
    assert refused["name"] == "baseline limit:"
    assert f"memory of rank {LAST} is too little" in refused["reason"]


@pytest.mark.parametrize("mode", ["--overhead", "--breakdown", "--async 0"])
def test_modes_leave_out_what_does_not_fit(monkeypatch, mode):
    found = results(monkeypatch, {"empty"}, f"{mode} --op allreduce --sizes {FITS},{TOO_MUCH} --outofplace")
    patterns = [row for row in found["rows"] if "beside" in row]  # of --overhead, the second table
    assert [row["bytes"] for row in found["rows"] if row not in patterns] == [FITS]
    assert {row["bytes"] for row in patterns} == ({FITS} if mode == "--overhead" else set())
    refused = found["refused"]
    assert [one["what"] for one in refused] == ["allreduce"] * (2 if patterns else 1)
    assert {row["mode"] for row in found["rows"]} == {found["mode"]}
    assert (found["end"]["measured"], found["end"]["of"]) == (1 + len(patterns), 2 + len(patterns))


@pytest.mark.mpi(min_size=2)
def test_what_was_wrong_is_not_forgotten(monkeypatch):
    """The first validation finds it, then a baseline's array does not fit on a rank."""

    def short(bench, arrays):
        raise ShortageError("memory of rank 0 is too little")

    monkeypatch.setattr(mpicoll.bench.tables.times, "_others", short)
    monkeypatch.setattr(mpicoll.bench.measure.arrays.Arrays, "wrong", lambda self: (1, "recvbuf: element 0"))
    status = run(f"--op bcast --sizes {FITS} --iters 3 --warmup 0".split())
    assert WORLD.allgather(status) == [1] * WORLD.size
