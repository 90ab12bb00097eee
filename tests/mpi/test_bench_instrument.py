"""The benchmark's look into a call: what its own cost is, and where its time goes."""

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpicoll.bench.contestants.contestant import Way
from mpicoll.bench.contestants.instrument import KINDS, ByHand, Stopwatch, emptied, program_of
from mpicoll.bench.contestants.patterns import make_known, patterns
from mpicoll.bench.measure.arrays import Arrays
from mpicoll.bench.measure.backends import HostBackend
from mpicoll.bench.measure.statistics import Statistics
from mpicoll.bench.output.columns import Columns
from mpicoll.bench.output.results import read
from mpicoll.bench.output.rows import MeasuredCall
from mpicoll.bench.request.cases import CALLS, make_case
from mpicoll.bench.run import run
from mpicoll.bench.tables import breakdown, overhead
from mpicoll.bench.tables.breakdown import Breakdown
from mpicoll.bench.tables.overhead import Overhead
from mpicoll.runtime.program.bound import observed

WORLD = MPI.COMM_WORLD
RANK, SIZE = WORLD.rank, WORLD.size


def made(comm, name, algorithm, nbytes=4096):
    arrays = Arrays(make_case(CALLS[name], nbytes, "float32", SIZE, "SUM", 0), False, RANK, HostBackend())
    arrays.load(0)

    def call():
        getattr(comm, CALLS[name].method)(*arrays.arguments, algorithm=algorithm)

    call()
    return arrays, call, program_of(call)


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("algorithm", ["linear", "ring", "recursive_doubling", "ring/4"])
def test_every_instruction_has_a_kind(comm, algorithm):
    _, _, bound = made(comm, "allreduce", algorithm)
    kinds = bound.kinds
    assert len(bound.requests) == len(bound.program.transfers) > 0
    assert kinds.count("wait") == len(bound.waits)
    assert kinds.count("start") > 0
    assert kinds[bound.last_start] == "start"
    assert set(kinds) <= {"start", "wait", "launch"}


@pytest.mark.mpi(min_size=2)
def test_a_watched_call_is_right_and_its_times_are_taken(comm):
    arrays, call, bound = made(comm, "allreduce", "ring")
    watch = Stopwatch()
    with observed(watch):
        arrays.load(1)
        call()
    assert arrays.wrong() == (0, "")
    before = watch.spent()
    assert all(before[kind] > 0 for kind in ("start", "wait", "launch"))
    assert watch.first is not None
    assert bound.reached == len(bound.actions) - 1
    call()
    assert watch.spent() == before  # the call is its own again


def test_a_call_without_its_program_does_nothing(comm):
    """Neither where it is found by its key, nor on the shortcut."""
    arrays, call, bound = made(comm, "allreduce", None)
    for _ in range(3):
        call()
    arrays.load(1)
    with emptied(bound):
        call()
    assert arrays.wrong()[0] > 0
    call()
    assert arrays.wrong() == (0, "")


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("name", ["barrier", "allgather", "alltoall", "bcast"])
def test_messages_by_hand_are_those_of_the_call(comm, name):
    _, _, bound = made(comm, name, None, nbytes=8 * SIZE * SIZE)
    world = WORLD.Dup()
    by_hand = ByHand(bound, world)
    assert len(by_hand.requests) == len(bound.requests)
    sent = sum(
        array.nbytes for transfer, array in zip(bound.program.transfers, by_hand.arrays, strict=True) if transfer.sends
    )
    assert (WORLD.allreduce(sent) > 0) == (name != "barrier")
    by_hand()
    by_hand()
    by_hand.free()
    world.Free()


def lines(folder, arguments):
    file = WORLD.bcast(str(folder / "rows.json"))
    assert run([*arguments.split(), "--buffers", "numpy", "--json", file]) == 0
    if RANK == 0:
        return read(Path(file))["rows"]
    return []


def test_overhead_of_every_call(tmp_path, capfd):
    rows = lines(tmp_path, "--overhead --op default,gatherv --iters 3 --warmup 0")
    rows = [row for row in rows if "beside" not in row]
    for row in rows:
        assert row["bytes"] <= 8 * SIZE
        times, figures = row["times"], row["figures"]
        assert times["per call"]["median"] > 0
        extra, difference = figures["extra"], times["blocking"]["median"] - times["by hand"]["median"]
        shown = difference > extra["spread"] + 0.01
        assert extra["value"] == pytest.approx(difference, abs=0.01) if shown else extra["spread"] > 0
        assert (figures["messages"]["value"] > 0) == (SIZE > 1)
    if RANK == 0:
        assert {row["op"] for row in rows} >= {"barrier", "allreduce", "exscan", "gatherv"}
        assert "# too long: above 10 us a repeated call over its messages, 3 us a message" in capfd.readouterr().out


def test_patterns_beside_the_same_arrays(tmp_path, capfd):
    """Each differs from its reference by what is left of its time, and only the reference by nothing."""
    rows = lines(tmp_path, "--overhead --op allreduce --sizes 64 --iters 5 --warmup 1")
    found = {row["op"]: row for row in rows if "beside" in row}
    for row in found.values():
        call, besides = (row["times"][name]["median"] for name in ("mpicoll", "besides"))
        difference = call - besides - found[row["beside"]]["times"]["mpicoll"]["median"]
        more = row["figures"]["more"]
        assert more["value"] is None or more["value"] == pytest.approx(difference, abs=0.01)
        assert more["value"] is not None or abs(difference) <= more["spread"] + 0.01
        assert (row["bytes"], row["memory"], "host" in row["times"]) == (64, "host", False)
    if RANK == 0:
        assert {"same arrays", "fresh views", "500 arrays in turn", "alltoall in place"} <= found.keys()
        assert found["alltoall in place"]["beside"] == "alltoall"
        views, place = (found[name]["times"]["besides"]["median"] for name in ("fresh views", "in place"))
        assert views > 0 == place
        assert "fresh views" in capfd.readouterr().out


def test_a_pattern_makes_right_calls(comm):
    """As often as it takes until their arrays come again."""
    for pattern in patterns(comm, HostBackend(), 64):
        make_known(pattern)
    x, y = np.full(16, RANK + 1, "f4"), np.zeros(16, "f4")
    comm.Allreduce(x, y)
    assert (y == SIZE * (SIZE + 1) / 2).all()


def test_breakdown_adds_up(tmp_path, capfd):
    rows = lines(tmp_path, "--breakdown --op default,alltoallv --sizes 0,4K --iters 5")
    for row in rows:
        of_ranks = defaultdict(dict)
        for name, one in row["times"].items():
            rank, kind = name.split(": ")
            of_ranks[rank][kind] = one["median"]
        assert "rank 0" in of_ranks
        for one in of_ranks.values():
            assert set(one) == {"total", *KINDS}
            assert one["total"] >= one["plan"] > 0
            assert (one["start"] > 0) == (SIZE > 1)
    if RANK == 0:
        out = capfd.readouterr().out
        assert all(kind in out for kind in KINDS)


@pytest.mark.parametrize("mode", ["overhead", "breakdown"])
def test_a_time_limit_is_in_the_way(mode, capfd):
    with mpicoll.override(timeout=60):
        assert run([f"--{mode}", "--op", "bcast", "--sizes", "8", "--buffers", "numpy"]) == 2
    if RANK == 0:
        assert f"--{mode}: calls with a time limit go another way" in capfd.readouterr().err


def test_lines_of_the_tables():
    micro = zip((*KINDS, "total"), (1, 2, 3, 4, 0, 0, 10), strict=True)
    seconds = {kind: Statistics.of(np.array([value * 1e-6])) for kind, value in micro}
    call = MeasuredCall(make_case(CALLS["bcast"], 8, "float32", 4, "", 0), Way("linear"), True)
    first, second = Breakdown(call, {0: seconds, 3: seconds}).cells()
    columns = Columns(*breakdown.COLUMNS)
    text = f"{columns.line(*first)} {columns.line(*second)}"
    times = "10.00 1.00 10% 2.00 20% 3.00 30% 4.00 40% 0.00 0% 0.00 0%"
    assert " ".join(text.split()) == f"0 {times} 3 {times}"


def of_a_bcast(messages, blocking, spread=0.0):
    """An overhead where by hand the messages take 10 us, and 6 us are the call's own."""
    case = make_case(CALLS["bcast"], 8, "float32", 4, "", 0)
    times = [Statistics(t * 1e-6, spread * 1e-6, *5 * (t,), 0, 9) for t in (blocking, 10, 1, 1, 6)]
    return Overhead(MeasuredCall(case, Way("linear"), True), messages, *times)


def line(found):
    (cells,) = found.cells()
    return Columns(*overhead.COLUMNS).line(*cells)


def test_what_the_library_adds_to_messages():
    cheap, dear = of_a_bcast(2, 20), of_a_bcast(1, 20)
    assert cheap.extra == (pytest.approx(10e-6), 0)
    assert cheap.per_message == (pytest.approx(2e-6), 0)
    assert cheap.within
    assert not dear.within
    assert line(dear).endswith("4.00 ±0.00 too long")


def test_an_overhead_below_its_noise_is_not_a_number():
    """The blocking call seems faster than its messages alone, on a machine with other work: that is noise."""
    noisy = of_a_bcast(1, 9, spread=3)
    assert line(noisy).count("below noise ±") == 2
    assert "below noise ±7.00" in line(noisy)
    noisy = of_a_bcast(2, 20, spread=30)
    assert line(noisy).count("below noise ±") == 2
    assert of_a_bcast(1, 20, spread=5).within
    figures = noisy.record()["figures"]
    assert figures["extra"] == {"value": None, "unit": "us", "spread": pytest.approx(42.4264)}
    assert figures["per message"] == {"value": None, "unit": "us", "spread": pytest.approx(25.9808)}
