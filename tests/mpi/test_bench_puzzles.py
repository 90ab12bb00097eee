"""The puzzles on every rank: they measure all that they name, validate it, and write it down."""

import json
import re
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpicoll.bench.measure.backends import HostBackend
from mpicoll.bench.measure.clock import Clock
from mpicoll.bench.output.results import read
from mpicoll.bench.puzzles import case
from mpicoll.bench.puzzles.chains import Chains
from mpicoll.bench.puzzles.pairs import Rounds
from mpicoll.bench.puzzles.run import run
from mpicoll.settings import parse_bytes

WORLD = MPI.COMM_WORLD
SIZE = WORLD.size


def puzzle(folder, arguments):
    """Run it; return the status and the file, the same on all ranks."""
    file = folder / "results.json"
    status = run([*arguments.split(), "--buffers", "numpy", "--warmup", "0", "--json", str(file)])
    assert WORLD.allgather(status) == [status] * SIZE
    return status, WORLD.bcast(read(file) if WORLD.rank == 0 else None, root=0)


@pytest.mark.ranks(1)
@pytest.mark.parametrize("name", ["topology", "allreduce-ways", "bandwidth"])
def test_one_rank_is_refused(name, capsys):
    assert run([name]) == 2
    assert f"{name}: one rank has no other" in capsys.readouterr().err


@pytest.mark.ranks(2, 3)
def test_all_pairs_are_measured_and_the_source_s_streams_traced(folder, capsys):
    trace = folder / "trace.json"
    status, found = puzzle(folder, f"topology --bytes 4K --repeat 3 --iters 2 --trace {trace}")
    assert (status, found["end"]["verdict"], found["end"]["wrong"]) == (0, "OK", 0)
    assert found["end"]["measured"] == found["end"]["of"] == len(found["rows"])
    kinds = ["latency", "alone", "both directions"] + ["all at once", "all at once, both directions"] * (SIZE > 2)
    pairs = [[a, b] for a in range(SIZE) for b in range(SIZE) if a != b]
    for kind in kinds:
        assert [row["pair"] for row in found["rows"] if row["op"] == kind] == pairs
    streams = [row for row in found["rows"] if row["op"] == "one source"]
    assert [row["pair"] for row in streams] == [[0, target] for target in range(1, SIZE)]
    assert all(row["figures"]["bandwidth"]["value"] > 0 and row["times"]["stream"]["number"] == 2 for row in streams)
    if WORLD.rank == 0:
        messages = [one for one in json.loads(trace.read_text())["traceEvents"] if one["ph"] == "X"]
        assert [one["tid"] for one in messages] == [target for target in range(1, SIZE) for _ in range(3)]
        assert all(one["dur"] >= 0 for one in messages)
        said = capsys.readouterr().out
        assert "Pairs alone:" in said
        assert "the memory of one host" in said


@pytest.mark.ranks(2, 3)
@pytest.mark.parametrize("option", ["--trace", "--plot"])
@pytest.mark.parametrize(("file", "why"), [("/no/such/file.png", "No such file or directory"), (".", "Is a directory")])
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(option, file, why, monkeypatch, capsys):
    monkeypatch.setattr("mpicoll.bench.puzzles.run.find_spec", lambda name: name)  # whether or not it can draw
    assert run(["topology", option, file]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "" if WORLD.rank else f"mpicoll.bench: {option} {file}: {why}\n")


@pytest.mark.ranks(2, 3)
def test_conclusions_come_before_files_that_cannot_be_written_after_all(capsys):
    short = "--bytes 8 --repeat 1 --iters 1 --buffers numpy"
    assert run(["topology", *short.split(), "--trace", "/dev/full"]) == 2
    said = capsys.readouterr()
    assert ("Pairs alone:" in said.out) == (WORLD.rank == 0)
    assert said.err == ("" if WORLD.rank else "mpicoll.bench: --trace /dev/full: No space left on device\n")


@pytest.mark.ranks(2, 3)
def test_chains_arrive_in_order_and_what_does_not_is_counted():
    world = WORLD.Dup()
    chains = Chains(world, HostBackend(), 1000, sent=2)
    spans = chains.run([(0, 1), (1, 0)], 4)
    assert {pair: len(found) for pair, found in spans.items()} == ({(0, 1): 4, (1, 0): 4} if WORLD.rank < 2 else {})
    for found in spans.values():
        assert all(begin <= end <= later for (begin, end), (later, _) in pairwise(found))
    if WORLD.rank == 1:
        chains.received.pop(SIZE - 1, None)  # nothing came from there
        assert chains.wrong() == 0
        chains.received[0][17] ^= 1
        assert chains.wrong() == 1
    world.Free()


@pytest.mark.ranks(2, 3)
def test_times_of_the_streams_are_the_source_s():
    world, backend = WORLD.Dup(), HostBackend()
    rounds = Rounds(world, Clock(world, True, backend.synchronize), 0, 2)
    found = case.measured(SimpleNamespace(world=world, backend=backend), rounds, 1000, 3)
    if WORLD.rank == 0:
        begin = min(spans[0][0] for spans in found.spans.values())
        last = {pair: spans[-1][1] - begin for pair, spans in found.spans.items()}
        assert {pair: seconds[-1] for pair, seconds in found.seconds.items()} == last
    world.Free()


@pytest.mark.ranks(2, 3)
def test_all_ways_are_measured_on_each_number_of_ranks(folder, capsys):
    numbers = list(range(2, SIZE + 1))
    given = ",".join(map(str, numbers))
    status, found = puzzle(folder, f"allreduce-ways --bytes 8,4K --ranks {given} --iters 3")
    assert (status, found["end"]["verdict"], found["end"]["wrong"]) == (0, "OK", 0)
    names = ["direct", "reduce + bcast", "reduce_scatter + allgather", "reduce_scatter alone"]
    rows = [(row["ranks"], row["bytes"], row["op"]) for row in found["rows"]]
    sizes = {2: (8, 4096), 3: (12, 4092)}
    assert rows == [(number, nbytes, name) for number in numbers for nbytes in sizes[number] for name in names]
    assert [len(row["algorithms"]) for row in found["rows"][:4]] == [1, 2, 2, 1]
    for row in found["rows"]:
        figures = {name: one["value"] for name, one in row["figures"].items()}
        terms = [value for name, value in figures.items() if name.startswith("predicted: ")]
        assert figures["predicted"] == pytest.approx(sum(terms), rel=1e-4)
        assert row["times"]["mpicoll"]["number"] == 3
    if WORLD.rank == 0:
        said = capsys.readouterr().out
        assert "2x more efficient than all-reduce" in said
        named = re.findall(r"(?:at|from) (\w+)(?: to (\w+))? B\b", said[said.index(f"On {SIZE} ranks") :])
        assert {parse_bytes(word) for words in named for word in words if word} == set(sizes[SIZE])


@pytest.mark.ranks(2, 3)
@pytest.mark.parametrize("method", ["Bcast", "Allgather", "Allreduce"])
def test_a_wrong_way_fails_on_all_ranks(folder, monkeypatch, method):
    right = getattr(mpicoll.Communicator, method)

    def wrong(self, *arguments, **named):
        right(self, *arguments, **named)
        array = [one for one in arguments if isinstance(one, np.ndarray)][-1]
        array[:1] += self.rank == 1

    monkeypatch.setattr(mpicoll.Communicator, method, wrong)
    status, found = puzzle(folder, "allreduce-ways --bytes 64 --iters 1")
    assert (status, found["end"]["verdict"]) == (1, "FAILED")
    assert found["end"]["wrong"] == 2  # before the times are taken, and after


@pytest.mark.ranks(2, 3)
def test_the_time_of_a_message_is_fitted(folder, capsys):
    status, found = puzzle(folder, "bandwidth --bytes 8,64K,1M --iters 3")
    assert (status, found["end"]["wrong"]) == (0, 0)
    assert found["end"]["measured"] == found["end"]["of"] == len(found["rows"]) == 4
    assert [row["bytes"] for row in found["rows"] if row["op"] == "message"] == [8, 1 << 16, 1 << 20]
    (fitted,) = [row for row in found["rows"] if row["op"] == "fit"]
    figures = {name: (one["value"], one["unit"]) for name, one in fitted["figures"].items()}
    assert figures["theoretical"] == (None, "GB/s")
    product = figures["latency"][0] * 1e-6 * figures["fitted bandwidth"][0] * 1e9
    assert figures["n_1/2"] == (pytest.approx(product, rel=1e-4), "B")
    if WORLD.rank == 0:
        assert "not reported" in capsys.readouterr().out
