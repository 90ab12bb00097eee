"""`--check-guidelines` on every rank: what stands in a call's place does its work, and a slower call is found."""

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpicoll.algorithms import registry
from mpicoll.bench.contestants.compositions import COMPOSITIONS, Composition
from mpicoll.bench.measure.arrays import Arrays
from mpicoll.bench.measure.backends import HostBackend
from mpicoll.bench.measure.race import Runner
from mpicoll.bench.measure.statistics import Statistics
from mpicoll.bench.output.guidelines import HOLDS, OURS, VIOLATED
from mpicoll.bench.output.results import read
from mpicoll.bench.request.cases import CALLS, in_equal_blocks, make_case
from mpicoll.bench.run import run
from mpicoll.bench.tables import guidelines

WORLD = MPI.COMM_WORLD
# Twelve sides of each call are timed and validated: on one number of ranks.
pytestmark = pytest.mark.ranks(2)


@pytest.mark.parametrize("root", [0, WORLD.size - 1])
@pytest.mark.parametrize(("op", "legs"), [(op, legs) for op, rows in COMPOSITIONS.items() for legs in rows])
def test_a_composition_does_the_work_of_its_call(world, op, legs, root):
    case = in_equal_blocks(make_case(CALLS[op], 1000, "int32", WORLD.size, "SUM", root))
    arrays = Arrays(case, CALLS[op].forms[0], WORLD.rank, HostBackend())
    call = Composition(legs, world, HostBackend()).bind(arrays, None)
    for iteration in range(3):
        arrays.load(iteration)
        call()
        assert WORLD.allgather(arrays.wrong()) == [(0, "")] * WORLD.size


def checked(folder, arguments):
    """Check guidelines within a small budget; return the status and the file on all ranks."""
    file = folder / "results.json"
    status = run([*arguments.split(), "--check-guidelines", "--budget", "6", "--json", str(file)])
    assert WORLD.allgather(status) == [status] * WORLD.size
    return status, WORLD.bcast(read(file) if WORLD.rank == 0 else None, root=0)


def test_a_call_is_compared_with_all_that_could_stand_in_its_place(folder):
    sizes = 48, 96
    status, found = checked(folder, "--op allreduce,bcast --sizes 48,96 --baseline native")
    assert status in (0, 4)
    assert (found["end"]["wrong"], found["end"]["measured"]) == (0, 4)
    assert [(row["op"], row["bytes"]) for row in found["rows"]] == [
        (op, n) for op in ("allreduce", "bcast") for n in sizes
    ]
    composed = {"allreduce": {"reduce + bcast", "reduce_scatter + allgather"}, "bcast": {"scatter + allgather"}}
    for row in found["rows"]:
        algorithms = {card.name for card in registry.usable(row["op"], WORLD.size)} - {row["algorithm"]}
        larger = {"96 B"} if row["bytes"] == 48 else set()
        assert set(row["guidelines"]) == {*composed[row["op"]], *algorithms, "native", *larger}
        assert set(row["times"]) == {OURS, *row["guidelines"]}
        assert (row["asked"], row["mode"]) == ("auto", "guidelines")
    violated = [one for row in found["rows"] for one in row["guidelines"].values() if one["verdict"] == VIOLATED]
    assert (status == 4) == bool(violated)


def test_a_slower_call_ends_with_figures_and_a_status_of_its_own(monkeypatch, folder, capfd):
    """The first rival, reduce + bcast, is said to take 8 us where all others take 10."""

    def planned(calls, *how):
        times = [8 if place == 1 else 10 for place in range(len(calls))]
        return [Runner(Statistics.of(np.full(9, t * 1e-6)), Statistics.of(np.full(9, t / 10)), 1e-5) for t in times]

    monkeypatch.setattr(guidelines, "race", planned)
    status, found = checked(folder, "--op allreduce --sizes 96")
    assert (status, found["end"]["verdict"], found["end"]["wrong"]) == (4, "VIOLATED", 0)
    (row,) = found["rows"]
    verdicts = {name: one["verdict"] for name, one in row["guidelines"].items()}
    assert verdicts.pop("reduce + bcast") == VIOLATED
    assert set(verdicts.values()) == {HOLDS}
    assert row["figures"]["ratio reduce + bcast"]["value"] == 1.25
    if WORLD.rank == 0:
        out = capfd.readouterr().out
        assert " ".join(out.partition(" reduce + bcast")[2].split()).startswith("8.00 1.25 0.0")
        assert f"# guidelines: {len(verdicts)} holds, 1 violated, 0 unclear" in out


def test_a_wrong_element_of_a_composition_is_found(monkeypatch, folder):
    right = mpicoll.Communicator.Bcast

    def wrong(self, buf, root=0, **named):
        right(self, buf, root, **named)
        buf.view("u1")[0] ^= self.rank == WORLD.size - 1

    monkeypatch.setattr(mpicoll.Communicator, "Bcast", wrong)
    status, found = checked(folder, "--op allreduce --sizes 96")
    assert (status, found["end"]["wrong"], found["rows"][0]["wrong"]) == (1, 1, 1)
