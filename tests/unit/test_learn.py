"""The demo's parts that need no other rank: its numbers, its words, and the order of its steps."""

import numpy as np
import pytest

from mpicoll.algorithms import registry
from mpicoll.dispatch.plan import plan
from mpicoll.learn.lesson import Outline, Page
from mpicoll.learn.numbers import MISSING
from mpicoll.learn.patterns import PATTERNS, named
from mpicoll.learn.protocol import WIDTH, contents, row_text, wrapped
from mpicoll.learn.steps import Notebook, by_round
from mpicoll.schedule.collectives import COLLECTIVES
from mpicoll.schedule.planner import stepwise_program


def example(name, size):
    """The inputs of all ranks, and what they must have after the pattern."""
    pattern = PATTERNS[name]
    inputs = [pattern.has(rank, size, pattern.n) for rank in range(size)]
    outputs = pattern.must(inputs)
    return [None if row is None else row.tolist() for row in inputs], [
        None if row is None else row.tolist() for row in outputs
    ]


@pytest.mark.parametrize(
    ("name", "inputs", "outputs"),
    [
        ("allreduce", [[1, 2], [3, 4], [2, 6], [4, 8]], [[10, 20]] * 4),
        ("allgather", [[10], [20], [30], [40]], [[10, 20, 30, 40]] * 4),
        (
            "reduce_scatter",
            [[1, 2, 3, 4], [2, 3, 4, 5], [3, 4, 5, 6], [4, 5, 6, 7]],
            [[10], [14], [18], [22]],
        ),
        ("scatter", [[10, 20, 30, 40], None, None, None], [[10], [20], [30], [40]]),
        ("exscan", [[1, 2], [3, 4], [2, 6], [4, 8]], [[MISSING] * 2, [1, 2], [4, 6], [6, 12]]),
    ],
)
def test_examples_on_4_ranks(name, inputs, outputs):
    assert example(name, 4) == (inputs, outputs)


@pytest.mark.parametrize("size", [1, 2, 4, 11])
def test_an_all_to_all_names_sender_and_receiver(size):
    inputs, outputs = example("alltoall", size)
    assert np.array_equal(np.transpose(inputs), outputs)
    assert len(np.unique(inputs)) == size * size


@pytest.mark.parametrize("name", PATTERNS)
def test_inputs_differ_on_all_ranks(name):
    inputs, _ = example(name, 5)
    assert len({str(row) for row in inputs}) == (2 if name == "scatter" else 5)


def test_a_pattern_is_found_by_its_name_or_title():
    for text in ("allreduce", "all-reduce", "AllReduce", "All_Reduce"):
        assert named(text) is PATTERNS["allreduce"]
    assert named("broadcast") is PATTERNS["bcast"]
    with pytest.raises(ValueError, match=r"no pattern 'ring'; known: send, .*split"):
        named("ring")


def test_all_collectives_are_among_the_patterns():
    assert {pattern.row.name for pattern in PATTERNS.values() if pattern.row} == set(COLLECTIVES)


def test_numbers_are_shown_in_brackets_with_bars_between_pieces():
    assert row_text(None) == "-"
    assert row_text([1, MISSING, 3]) == "[1, ., 3]"
    assert row_text([1, 2, 3, 4], 2) == "[1 2|3 4]"
    assert row_text([1, 2, 3, 4], 4) == row_text([1, 2, 3, 4], 1) == "[1, 2, 3, 4]"


def test_lines_are_cut_at_spaces():
    lines = wrapped("all-reduce " * 20, "rank 0 ", "       ")
    assert max(map(len, lines)) <= WIDTH
    assert lines[0].startswith("rank 0 all-reduce")
    assert all(line.startswith("       all-reduce") for line in lines[1:])
    assert [line[:16].strip() for line in contents([("send", "word " * 30)])] == ["send", "", ""]


def test_a_page_is_right_if_it_has_what_numpy_finds():
    row = np.arange(3)
    assert Page(True).right
    assert Page(True, got=row, must=row.copy()).right
    assert not Page(True, got=row, must=row + 1).right
    assert not Page(True, got=row).right


def test_a_vector_is_so_long_that_no_piece_is_empty():
    found = Outline(2, plan("allreduce", size=4, nbytes=16, algorithm="ring/2"), "ring/2").with_filled_blocks()
    assert (found.n, found.pieces, found.piece, found.algorithm) == (16, 8, 2, "ring/2")
    short = Outline(2, plan("allreduce", size=4, nbytes=16, algorithm="one_shot"), None)
    assert short.with_filled_blocks() is short


def books(name, algorithm, size):
    """The notebooks of all ranks, as if a call had been made."""
    schedules = registry.get(name, algorithm).schedules(size, 0)
    shared = COLLECTIVES[name].shared
    found = [Notebook(name, range(size), rank, 1, stepwise_program(s, shared)) for rank, s in enumerate(schedules)]
    for book in found:
        book.write(book.program.instructions, None)
    return found


def messages(numbered):
    """(round, sender, receiver, blocks) of all messages that leave, and of all that come."""
    left, come = [], []
    for number, ranks in numbered.items():
        for rank, notes in enumerate(ranks):
            for words in (note.text.split() for note in notes):
                if words[0] == "sends":
                    left.append((number, rank, int(words[words.index("to") + 2]), words[1]))
                if words[0] == "receives":
                    come.append((number, int(words[4]), rank, words[1]))
    return left, come


CASES = [
    pytest.param(card.collective, card.name, size, id=f"{card.collective}-{card.name}-{size}")
    for name in COLLECTIVES
    if name != "barrier"
    for size in (1, 3, 4)
    for card in registry.usable(name, size)
]


@pytest.mark.parametrize(("name", "algorithm", "size"), CASES)
def test_each_message_leaves_and_comes_in_one_round_of_its_own(name, algorithm, size):
    """In a round a rank sends at most one message, and receives at most one."""
    found = books(name, algorithm, size)
    left, come = messages(by_round(found))
    assert len(left) == sum(transfer.sends for book in found for transfer in book.program.transfers)
    assert sorted(left) == sorted(come)
    for rank in (1, 2):
        assert len({(one[0], one[rank]) for one in left}) == len(left)


def test_words_of_a_ring():
    numbered = by_round(books("allreduce", "ring", 4))
    assert [note.text for note in numbered[0][1]] == [
        "sends block[0] from its input to rank 2",
        "receives block[3] from rank 0 into scratch[0]",
        "computes scratch[0] = scratch[0] + input[3]",
    ]
    assert list(numbered) == [0, 1, 2, 3, 4, 5]


def test_words_of_an_all_to_all_and_of_a_barrier():
    texts = [note.text for note in books("alltoall", "linear", 3)[1].notes]
    assert "copies input[1>1] to output[1>1]" in texts
    assert "sends block[1>2] from its input to rank 2" in texts
    assert {note.text for book in books("barrier", "linear", 2) for note in book.notes} == {
        f"{verb} an empty message {word} rank {rank}"
        for verb, word in (("sends", "to"), ("receives", "from"))
        for rank in (0, 1)
    }
