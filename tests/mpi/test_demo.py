"""The demo on every rank: its protocol, its steps, and its exit status."""

import re
from dataclasses import replace

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpicoll.algorithms import registry
from mpicoll.demo import main
from mpicoll.learn import calls
from mpicoll.learn.lesson import Classroom
from mpicoll.learn.patterns import PATTERNS
from mpicoll.learn.protocol import WIDTH
from mpicoll.learn.steps import Notebook, Scribe, by_round
from mpicoll.runtime.program.bound import Bound
from mpicoll.schedule.planner import stepwise_program

WORLD = MPI.COMM_WORLD
RANK, SIZE = WORLD.rank, WORLD.size
COLLECTIVES = [pattern for pattern in PATTERNS.values() if pattern.method]


def demo(capfd, arguments):
    """Run it; return the status of all ranks, and what rank 0 printed; the others print nothing."""
    capfd.readouterr()
    status = main(arguments.split())
    assert WORLD.allgather(status) == [status] * SIZE
    printed = capfd.readouterr()
    assert RANK == 0 or printed.out + printed.err == ""
    return status, *WORLD.bcast(printed, root=0)


@pytest.mark.many_ranks
@pytest.mark.parametrize("explain", ["", "--explain"])
def test_all_patterns_are_right_and_fit_a_terminal(explain, capfd):
    status, out, _ = demo(capfd, explain)
    lines = out.splitlines()
    assert status == 0
    assert lines[-1] == "All outputs are right."
    assert [line.split("(")[1].split(")")[0] for line in lines if line.startswith("===")] == list(PATTERNS)
    assert max(map(len, lines)) <= WIDTH
    assert out.count("All ranks have what NumPy finds.") == len(PATTERNS)
    assert ("\nround 0:\n" in out) == bool(explain and SIZE > 1)


@pytest.mark.many_ranks
@pytest.mark.ranks(4)
def test_the_examples_of_4_ranks(capfd):
    _, out, _ = demo(capfd, "--pattern all-reduce,reduce-scatter,all-to-all,all-gather,isend,split")
    for row in (
        "rank 0: [1, 2]  ->  rank 0: [10, 20]",
        "rank 3: [4, 8]  ->  rank 3: [10, 20]",
        "rank 1: [2, 3, 4, 5]  ->  rank 1: [14]",
        "rank 2: [20, 21, 22, 23]  ->  rank 2: [2, 12, 22, 32]",
        "rank 2: [30]  ->  rank 2: [10, 20, 30, 40]",
        "rank 3: [12, 13, 14, 15]  ->  rank 3: [11, 0]",
        "rank 2: [8, 9, 10, 11]    ->  rank 2: [8, 10, 12, 14]",
        "rank 3: [12, 13, 14, 15]  ->  rank 3: takes no part",
    ):
        assert row in out.splitlines()


@pytest.mark.many_ranks
def test_inner_algorithms_are_named_as_in_a_call(capfd):
    status, out, _ = demo(capfd, "--pattern allreduce --algorithm hierarchical(allgather=ring)/2")
    assert status == 0
    assert "By the algorithm striped(allgather=ring)" in out


@pytest.mark.many_ranks
def test_explaining_a_ring_names_every_message(capfd):
    _, out, _ = demo(capfd, "--pattern allreduce --algorithm ring --explain")
    sent, received, number, rank = [], [], 0, -1
    for line in out.splitlines():
        number += line.startswith("round ")
        rank = int(found[1]) if (found := re.match(r"  rank (\d+) ", line)) else rank
        if found := re.search(r"sends block\[(\d+)\] from .+ to rank (\d+)$", line):
            sent.append((number, rank, int(found[1]), int(found[2])))
        if found := re.search(r"receives block\[(\d+)\] from rank (\d+) into ", line):
            received.append((number, int(found[2]), int(found[1]), rank))
    rounds = range(1, 2 * SIZE - 1)
    assert sent == [(k, r, (r - k) % SIZE, (r + 1) % SIZE) for k in rounds for r in range(SIZE)]
    assert sorted(received) == sent


def replayed(lesson):
    """The outputs that the notes of a lesson tell of, in their order, of ranks that have one."""
    pages = [page for page in lesson.pages if page.book is not None]
    outputs = [page.room for page in pages]
    piece = lesson.outline.piece
    for notes in by_round([page.book for page in pages]).values():
        for rank, mine in enumerate(notes):
            for note in mine:
                for place, numbers in note.wrote.items():
                    outputs[rank][place * piece : (place + 1) * piece] = numbers
    return [(found, page.got) for found, page in zip(outputs, pages, strict=True) if found is not None]


def check_steps(comm, pattern, segments):
    """Of each algorithm: what the notes say that a rank wrote is its output in the end."""
    cards = registry.usable(pattern.method, (SIZE + 1) // 2 if pattern.name == "split" else SIZE)
    assert cards
    for card in cards:
        lesson = Classroom(comm, algorithm=card.name + segments, explain=True).teach(pattern)
        assert lesson.outline.plan.algorithm == card.name
        assert not lesson.wrong
        assert not lesson.outline.refusal
        for found, got in replayed(lesson):
            assert np.array_equal(found, got), card


@pytest.mark.many_ranks
@pytest.mark.parametrize("pattern", [p for p in COLLECTIVES if p.name != "barrier"], ids=lambda p: p.name)
def test_the_steps_lead_from_the_input_to_the_output(pattern, comm):
    check_steps(comm, pattern, "")


@pytest.mark.parametrize("name", ["bcast", "allreduce", "allgather", "alltoall"])
def test_the_steps_of_segments_lead_to_the_output(name, comm):
    check_steps(comm, PATTERNS[name], "/2")


def test_a_wrong_output_is_told_and_is_the_status(capfd, monkeypatch):
    zeros = replace(
        PATTERNS["bcast"],
        must=lambda inputs: [np.zeros(4, np.int64) if rank else row for rank, row in enumerate(inputs)],
    )
    monkeypatch.setitem(PATTERNS, "bcast", zeros)
    status, out, _ = demo(capfd, "--pattern bcast,scan")
    if SIZE == 1:
        assert status == 0
        return
    ranks = ", ".join(map(str, range(1, SIZE)))
    assert status == 1
    assert out.count("WRONG, not [0, 0, 0, 0]") == SIZE - 1
    assert f"WRONG on the ranks {ranks}: not what NumPy finds." in out
    assert out.endswith("Wrong: bcast.\n")


def test_a_barrier_that_lets_ranks_go_early_is_wrong(comm):
    class Hasty:
        barrier, allgather = comm.barrier, comm.allgather

        def Barrier(self, algorithm):
            pass

    early = np.zeros(1, np.int64)
    calls.meeting(Hasty(), np.array([20 * RANK]), early, None)
    assert (early[0] > 0) == (RANK < SIZE - 1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--pattern allreduce,ring", "argument --pattern: no pattern 'ring'; known: send, isend"),
        ("--algorithm rong", "no pattern here has an algorithm 'rong'; known: linear, "),
        ("--algorithm ring/0", "the number of segments is at least 1"),
        ("--pattern send --algorithm ring", "no pattern here has an algorithm 'ring'; known: none"),
        ("--buffers torch", "invalid choice: 'torch'"),
    ],
)
def test_what_cannot_be_served_is_refused_in_one_line_on_all_ranks(arguments, words, capfd):
    with pytest.raises(SystemExit) as raised:
        main(arguments.split())
    assert WORLD.allgather(raised.value.code) == [2] * SIZE
    printed = capfd.readouterr()
    assert (words in printed.err) == (RANK == 0)
    assert printed.err.count("\n") == printed.err.startswith("mpicoll.demo: ") == (RANK == 0)
    assert printed.out == ""


def test_device_arrays_without_a_device_are_refused(capfd, monkeypatch):
    monkeypatch.setattr("mpicoll.bench.measure.backends.devices", lambda: (0, "no device"))
    status, _, err = demo(capfd, "--buffers cupy")
    assert status == 2
    assert err == "mpicoll.demo: no CuPy buffers: rank 0 has no GPU (no device)\n"


def test_patterns_without_the_algorithm_say_so_and_run(capfd):
    status, out, _ = demo(capfd, "--pattern allreduce,scan,send --algorithm one_shot")
    assert status == 0
    text = " ".join(out.split())
    assert "By the algorithm one_shot, on the path host (algorithm= in the call)." in text
    assert "Not by the algorithm that was asked for: scan: no algorithm 'one_shot'; known: " in text
    assert "Messages are MPI's own: they have no algorithm." in text


def test_names_are_listed(capfd):
    status, out, _ = demo(capfd, "--list")
    assert status == 0
    assert [line.split()[0] for line in out.splitlines() if line[0] != " "] == list(PATTERNS)


def test_a_call_with_a_time_limit_is_explained_without_it(comm):
    with mpicoll.override(timeout=60):
        lesson = Classroom(comm, explain=True).teach(PATTERNS["allreduce"])
    assert all(page.book.watched and page.book.notes for page in lesson.pages)


def test_one_kernel_has_the_steps_of_its_schedule(comm):
    program = stepwise_program(registry.get("allreduce", "ring").schedule(RANK, SIZE, 0))
    book, ran, looks = Notebook("allreduce", range(SIZE), RANK, 2, program), [], []
    Scribe(book, lambda: looks.append(1)).run(Bound(actions=[lambda: ran.append(1)], kinds=["launch"], polls=[None]))
    assert (ran, looks, book.watched) == ([1], [], False)
    assert len([note for note in book.notes if note.text.startswith("sends")]) == 2 * (SIZE - 1)


@pytest.mark.gpu
@pytest.mark.parametrize("explain", ["", "--explain"])
def test_device_arrays(explain, capfd):
    status, out, _ = demo(capfd, f"--buffers cupy {explain}")
    assert status == 0
    assert "Arrays: cupy." in out
