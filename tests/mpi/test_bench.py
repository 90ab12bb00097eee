"""The benchmark on every rank: it measures all calls, and finds what is wrong."""

import ctypes
import shutil
import subprocess

import numpy as np
import pytest
from mpi4py import MPI

import data
import mpicoll
from mpi.benching import results
from mpicoll.algorithms import registry
from mpicoll.bench.measure.arrays import Arrays
from mpicoll.bench.measure.backends import HostBackend
from mpicoll.bench.output import environment as facts
from mpicoll.bench.request.cases import CALLS, make_case
from mpicoll.bench.request.numbers import REDUCTIONS
from mpicoll.bench.run import run
from mpicoll.runtime.arguments.operators import OPERATORS

WORLD = MPI.COMM_WORLD
LAST = WORLD.size - 1


def test_operators_are_the_library_s():
    assert {name: kinds for name, (_, kinds) in REDUCTIONS.items()} == {
        name: OPERATORS[name].kinds for name in REDUCTIONS
    }


@pytest.mark.ranks(1, 3)
def test_every_call_with_every_algorithm_that_can_serve(folder):
    status, found = results(folder, "--op all --algorithm all --min 96 --max 96")
    assert status == 0
    assert found["end"]["wrong"] == 0
    for name, call in CALLS.items():
        usable = registry.usable(call.row.name, WORLD.size, counts_known=not call.local)
        measured = {(row["algorithm"], row["in_place"]) for row in found["rows"] if row["op"] == name}
        assert measured == {(card.name, form) for card in usable for form in call.forms}
    known = sum(len(registry.known(call.row.name)) for call in CALLS.values())
    usable = sum(len(registry.usable(c.row.name, WORLD.size, counts_known=not c.local)) for c in CALLS.values())
    assert len(found["refused"]) == known - usable
    assert found["facts"]["ranks"] == WORLD.size


@pytest.mark.case("BENCH-TOL")
@pytest.mark.ranks(2, 3)
def test_every_dtype_and_operator(folder):
    # A mean is not whole where it is multiplied by 1/p and not divided by p.
    """The benchmark checks every dtype and operator, and finds no wrong element."""
    redops = "all" if WORLD.size & (WORLD.size - 1) == 0 else ",".join(name for name in REDUCTIONS if name != "AVG")
    arguments = f"--op allreduce,alltoallv --dtype all --redop {redops} --min 48 --max 48 --outofplace"
    status, found = results(folder, arguments)
    assert status == 0
    assert {row["redop"] for row in found["rows"]} >= {*REDUCTIONS, None} - {"AVG"}
    assert {"what": "every reduction", "name": "MAX", "reason": "is not defined for complex64"} in found["refused"]


def test_every_root(folder):
    status, found = results(folder, "--op gatherv,reduce,allreduce --root all --max 8 --inplace")
    assert status == 0
    roots = [(row["op"], row["root"]) for row in found["rows"]]
    assert roots == [(op, root) for op in ("gatherv", "reduce") for root in range(WORLD.size)] + [("allreduce", None)]


def test_the_file_tells_what_ran(folder):
    arguments = "--op bcast --algorithm auto,linear/2 --no-shuffle --min 4K --max 4K --dtype int16"
    status, found = results(folder, arguments)
    assert status == 0
    auto, linear = found["rows"]
    assert (linear["algorithm"], linear["segments"], linear["path"]) == ("linear", 2, "host")
    assert linear["reason"] == "algorithm= in the call"
    assert auto["reason"] != linear["reason"]
    assert (linear["bytes"], linear["count"], linear["dtype"]) == (4096, 2048, "int16")
    assert len(linear["times"]["mpicoll"]["samples"]) == linear["times"]["mpicoll"]["number"] == 1
    assert (auto["asked"], linear["asked"], auto["ranks"], auto["memory"]) == ("auto", "linear/2", WORLD.size, "host")
    assert found["facts"]["mpicoll"] == mpicoll.__version__


def corrupted(monkeypatch, method, harm):
    """Let a method do harm to its last array on the last rank after its work."""
    right = getattr(mpicoll.Communicator, method)

    def wrong(self, *arguments, **named):
        right(self, *arguments, **named)
        if self.rank == LAST:
            harm(next(a for a in reversed(arguments) if isinstance(a, np.ndarray)))

    monkeypatch.setattr(mpicoll.Communicator, method, wrong)


def flip(array):
    array.view("u1")[0] ^= 1


def write_before(array):
    ctypes.memset(array.ctypes.data - 1, 0, 1)


def write_behind(array):
    ctypes.memset(array.ctypes.data + array.nbytes, 0, 1)


HARMED = {
    "method": ("Allreduce", "Allgather", "Alltoall", "Reduce_scatter_block", "Exscan"),
    "form": ("--outofplace", "--inplace"),
    "harm": (flip, write_before, write_behind),
}


@pytest.mark.parametrize(tuple(HARMED), [tuple(row.values()) for row in data.pairwise(HARMED)])
def test_one_wrong_element_on_one_rank_is_found(monkeypatch, folder, capfd, method, form, harm):
    corrupted(monkeypatch, method, harm)
    status, found = results(folder, f"--op {method.lower()} --min 64 --max 64 {form}")
    assert status == 1
    assert found["end"]["wrong"] == found["rows"][0]["wrong"] == 2  # in each of the two validated calls
    if WORLD.rank == 0:
        out = capfd.readouterr().out
        assert out.count("# WRONG") == 2
        assert f"rank {LAST}: 1 wrong, " in out
        assert "wrong elements: 2 FAILED" in out


def test_a_changed_input_is_found(monkeypatch, folder):
    right = mpicoll.Communicator.Allreduce

    def wrong(self, sendbuf, recvbuf, op, **named):
        right(self, sendbuf, recvbuf, op, **named)
        sendbuf[-1] += 1

    monkeypatch.setattr(mpicoll.Communicator, "Allreduce", wrong)
    status, found = results(folder, "--op allreduce --min 64 --max 64 --outofplace")
    assert (status, found["end"]["wrong"]) == (1, 2 * WORLD.size)


@pytest.mark.parametrize("dtype", ["bool", "int8", "float16", "complex64"])
@pytest.mark.parametrize("call", [name for name in CALLS if name not in ("barrier", "exscan")])
def test_what_does_nothing_leaves_only_wrong_elements(call, dtype):
    case = make_case(CALLS[call], 100, dtype, WORLD.size, "SUM", 0)
    arrays = Arrays(case, False, WORLD.rank, HostBackend())
    arrays.load(0)
    wrong, words = arrays.wrong()
    keeps = arrays.recv is None or (call == "bcast" and WORLD.rank == 0)
    expected = 0 if keeps else arrays.recv.what.length
    assert (wrong, bool(words)) == (expected, bool(expected))


def test_results_of_the_call_before_are_wrong():
    case = make_case(CALLS["allgather"], 4000, "float32", WORLD.size, "", 0)
    arrays = Arrays(case, False, WORLD.rank, HostBackend())
    comm = mpicoll.Communicator(WORLD)
    arrays.load(0)
    comm.Allgather(*arrays.arguments)
    assert arrays.wrong() == (0, "")
    stale = arrays.recv.array.copy()
    arrays.load(1)
    arrays.recv.array[...] = stale
    assert arrays.wrong()[0] == case.count


def test_the_budget_is_kept():
    start = MPI.Wtime()
    assert run(["--op", "allreduce,bcast", "--max", "64", "--budget", "1"]) == 0
    assert MPI.Wtime() - start < 20


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_commit_is_that_of_the_work_tree_itself(folder):
    root = folder / f"{WORLD.rank}"
    inner = root / "package"
    inner.mkdir(parents=True)
    assert facts.commit(root) == ""
    author = ["-c", "user.name=nobody", "-c", "user.email=nobody@example.org"]
    for words in (["init", "--quiet"], [*author, "commit", "--quiet", "--allow-empty", "--message", "first"]):
        subprocess.run(["git", "-C", root, *words], check=True)
    found = facts.commit(root)
    assert len(found) == 40
    assert set(found) <= set("0123456789abcdef")
    assert facts.commit(inner) == ""


def test_without_git_there_is_no_commit(folder, monkeypatch):
    (folder / f"{WORLD.rank}" / ".git").mkdir(parents=True)
    monkeypatch.setenv("PATH", "")
    assert facts.commit(folder / f"{WORLD.rank}") == ""


@pytest.mark.gpu
@pytest.mark.parametrize("path", ["direct", "staged"])
def test_device_arrays(folder, path):
    status, found = results(folder, f"--op all --max 64K --buffers cupy --path {path}")
    if status == 2 and path == "direct":
        pytest.skip("the MPI library is not given device pointers")
    assert status == 0
    assert {row["path"] for row in found["rows"] if row["op"] != "barrier"} == {path}
