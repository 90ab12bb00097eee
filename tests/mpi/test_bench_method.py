"""How the benchmark measures: common starts, fewer ranks than there are, the order of jobs, and its budget."""

import os
import time
from collections import Counter

import numpy as np
import pytest
from mpi4py import MPI

from mpi.benching import results
from mpicoll.bench.measure import clock
from mpicoll.bench.measure.affinity import Affinity
from mpicoll.bench.measure.clock import Clock, offset, rest
from mpicoll.bench.output.results import read
from mpicoll.bench.run import run

WORLD = MPI.COMM_WORLD
RANK, SIZE = WORLD.rank, WORLD.size


@pytest.mark.mpi(min_size=2)
def test_ranks_are_sub_communicators_of_one_launch(folder):
    """Each row has its number of ranks, and one rank alone is a number of ranks, too."""
    numbers = list(range(1, SIZE + 1))
    status, found = results(folder, f"--op allreduce,bcast --bytes 64,1K --ranks 1-{SIZE} --outofplace")
    assert status == 0
    assert found["end"]["measured"] == found["end"]["of"] == 4 * SIZE
    assert [row["ranks"] for row in found["rows"]] == [n for n in numbers for _ in range(4)]


@pytest.mark.mpi(min_size=2)
def test_ranks_that_do_not_take_part_sleep():
    before = time.process_time()
    if RANK == 0:
        time.sleep(1)
    rest(WORLD)
    assert time.process_time() - before < 0.3


def test_more_ranks_than_there_are_cannot_be_served(capfd):
    assert run(f"--op bcast --ranks {SIZE + 1}".split()) == 2
    if RANK == 0:
        assert f"--ranks {SIZE + 1}: there are {SIZE} ranks" in capfd.readouterr().err


@pytest.mark.mpi(min_size=2)
def test_a_rank_that_comes_late_makes_a_sample_invalid(monkeypatch):
    """One time in three the last rank is held up between the agreement and the start."""
    monkeypatch.setattr(clock, "AHEAD", (0.05, 0.05))
    monkeypatch.setattr(clock, "LATE", 0.05)
    one, right, times = Clock(WORLD, True, lambda: None, "window"), Clock._wait, []

    def wait(self, request):
        right(self, request)
        times.append(1)
        if RANK == SIZE - 1 and len(times) % 3 == 0:
            time.sleep(0.15)

    monkeypatch.setattr(Clock, "_wait", wait)
    found = one.take(lambda: time.sleep(0.01), 9)
    assert np.isinf(found[2::3]).all()
    assert (found[np.isfinite(found)] >= 0.01).all()
    assert np.isfinite(found).any()
    assert WORLD.allgather(found.tolist()) == [found.tolist()] * SIZE


@pytest.mark.mpi(min_size=2)
def test_many_invalid_samples_make_the_ranks_agree_farther_ahead(monkeypatch):
    monkeypatch.setattr(clock, "LATE", -1.0)
    one = Clock(WORLD, False, lambda: None, "window")
    assert np.isinf(one.take(lambda: None, 3)).all()
    assert one.ahead == 2 * clock.AHEAD[0]


def test_offsets_between_hosts_are_found():
    """The ranks are on hosts of their own, each of whose clocks is 100 s farther ahead."""

    def now():
        return time.perf_counter() + 100 * RANK

    assert offset(WORLD, f"host {RANK}", now) == pytest.approx(100 * RANK, abs=0.02)
    assert offset(WORLD, "one host", now) == 0


def test_samples_of_windows_are_in_the_file(folder):
    file = folder / "results.json"
    status = run(f"--op bcast --bytes 8 --sync window --iters 20 --buffers numpy --json {file}".split())
    found = WORLD.bcast(read(file) if RANK == 0 else None, root=0)
    assert found["facts"]["method"]["sync"] == "window"
    if status == 0:
        (row,) = found["rows"]
        times = row["times"]["mpicoll"]
        assert times["samples"].count(None) == times["invalid"] == 20 - times["number"]
    else:  # every start was late, on a machine with other work
        assert "a rank came late to every start" in found["refused"][0]["reason"]


def test_a_seed_gives_the_order_of_algorithms(folder):
    def order(words):
        status, found = results(folder, f"--op allreduce --algorithm all --bytes 64 --outofplace {words}")
        assert status == 0
        return [row["algorithm"] for row in found["rows"]], found["facts"]["method"]

    straight, _ = order("--no-shuffle")
    first, method = order("--seed 3")
    assert (method["seed"], method["shuffle"]) == (3, True)
    assert order("--seed 3")[0] == first
    assert sorted(first) == sorted(straight)
    if len(straight) > 3:
        assert first != straight


def test_the_header_says_where_ranks_run(folder):
    _, found = results(folder, "--op barrier")
    places = found["facts"]["places"]
    assert len(places) == SIZE
    assert {"host", "cores", "cpus", "numa", "governor", "MHz", "gpu"} == set(places[0])
    assert places[0]["cpus"].startswith("cores ")


def test_a_clock_that_is_not_steady_is_in_the_file_and_on_the_screen(folder, monkeypatch, capfd):
    monkeypatch.setattr("mpicoll.bench.measure.steady.Steadiness.apart", 0.5)
    _, found = results(folder, "--op barrier")
    (note,) = found["end"]["notes"]
    assert note.startswith("WARNING: the clock was not steady")
    if RANK == 0:
        assert f"# {note}" in capfd.readouterr().out


def test_ranks_that_outnumber_cores_are_dealt_onto_them_and_are_free_again():
    before = os.sched_getaffinity(0)
    with Affinity.of(MPI.COMM_WORLD) as affinity:
        affinity.deal()
        found = MPI.COMM_WORLD.allgather(os.sched_getaffinity(0))
    assert os.sched_getaffinity(0) == before
    if 1 < len(before) < SIZE:
        shares = Counter(core for cores in found for core in cores).values()
        assert (sum(shares), max(shares) - min(shares)) == (SIZE, int(SIZE % len(before) > 0))
    else:
        assert found == [before] * SIZE
