"""The benchmark's overlap of nonblocking calls."""

import json

import pytest
from mpi4py import MPI

from mpicoll.bench.overlap import Overlap
from mpicoll.bench.run import run

WORLD = MPI.COMM_WORLD


def test_overlap_as_osu_defines_it():
    assert Overlap("bcast", 8, "linear", pure=1.0, compute=2.0, total=2.25).percent == pytest.approx(75)
    assert Overlap("bcast", 8, "linear", pure=1.0, compute=2.0, total=3.5).percent == 0


def test_every_call_is_measured(tmp_path):
    file = WORLD.bcast(str(tmp_path / "overlap.json"))
    words = ["--op", "barrier,bcast,allreduce", "--min", "8", "--max", "8", "--iters", "2", "--async", "1"]
    assert run([*words, "--buffers", "numpy", "--json", file]) == 0
    if WORLD.rank == 0:
        with open(file) as found:  # noqa: PTH123
            rows = json.load(found)["rows"]
        assert [row["call"] for row in rows] == ["barrier", "bcast", "allreduce"]
        assert all(row["compute"] >= 1e-3 and row["pure"] > 0 and row["total"] > 0 for row in rows)
