"""What cards declare of blocks and scratch, against the schedules of all ranks."""

import pytest

import mpicoll
from mpicoll import ScheduleError
from mpicoll.algorithms import get, known, unregister
from mpicoll.algorithms.expression import compiled, evaluate, of_ranks
from mpicoll.algorithms.space import Space, counted, declared
from mpicoll.analysis import proof, registration
from mpicoll.schedule import COLLECTIVES, Recv, Schedule, Send, inp, out, step
from mpicoll.schedule.pack import pack, packed_cells

SIZES = [*range(1, 10), 12, 16, 17, 33]


@pytest.fixture(autouse=True)
def few_sizes(monkeypatch):
    """Registration proves 1 to 5 ranks, to be quick, and what a test registers goes again."""
    for module in (proof, registration):
        monkeypatch.setattr(module, "SIZES_AT_REGISTRATION", range(1, 6))
    yield
    for collective in COLLECTIVES:
        for card in known(collective):
            if card.name == "mine":
                unregister(collective, "mine")


def register(collective, name, **declarations):
    """Register one of the project's algorithms once more, under another name."""
    card = get(collective, name)
    needs = {"power_of_two": card.power_of_two, "even": card.even}
    mpicoll.algorithm(collective, name="mine", **needs, **declarations)(lambda *place: card.function(*place))
    return get(collective, "mine")


def most_needed(card, size):
    """Count (unsegmented, segmented) cells of scratch from packed schedules, the most over all roots."""
    schedules = [s for root in (range(size) if card.row.rooted else (0,)) for s in card.schedules(size, root)]

    def alone(ref):
        return len(ref) == 1 or list(ref.cells) == list(range(ref.cells[0], ref.cells[-1] + 1))

    def cut(ref):
        return len(ref) == 1 or (alone(ref) and (card.row.free or ref.buffer == "scratch"))

    return tuple(max(len(pack(s, rule).scratch) for s in schedules) for rule in (alone, cut))


def test_what_the_project_declares_is_so_and_not_loose(card):
    for size in SIZES:
        if card.refuses(size):
            continue
        assert card.vector_blocks(size) == (size if card.collective == "alltoall" else card.schedule(0, size).blocks)
        for segmented, needed in zip((False, True), most_needed(card, size), strict=True):
            assert needed <= card.scratch_blocks(size, segmented), f"{size} ranks, {segmented}"
            if not card.by_hosts:  # which declare what they need on any hosts
                assert card.scratch_blocks(size, segmented) <= 2 * needed + 3, f"{size} ranks, {segmented}"


def test_every_card_of_the_project_declares(card):
    assert card.scratch
    assert card.blocks or not card.row.free


REFUSED = {
    "too few blocks": ("allreduce", "ring", {"blocks": "1"}, "declares blocks='1', but the vector is cut into 2"),
    "too many blocks": (
        "allreduce",
        "ring",
        {"blocks": "p+1"},
        "declares blocks='p\\+1', but the vector is cut into 1",
    ),
    "no scratch": ("allreduce", "ring", {"scratch": "0"}, "declares scratch='0', 0 blocks, but a rank needs 1"),
    "right for two ranks": (
        "reduce",
        "linear",
        {"scratch": "1"},
        "size 3, root 0: declares scratch='1', 1 blocks, but a rank needs 2",
    ),
    "not packed": (
        "allgather",
        "recursive_doubling",
        {"scratch": "0"},
        "size 4: declares scratch='0', 0 blocks, but a rank needs 4",
    ),
    "packed too little": (
        "allgather",
        "recursive_doubling",
        {"scratch": "0", "packed": "p-1"},
        "declares packed='p-1', 3 blocks, but a rank needs 4",
    ),
    "loose": (
        "allreduce",
        "ring",
        {"scratch": "p*p"},
        "size 5: declares scratch='p\\*p', 25 blocks, far more than the 4",
    ),
    "loosely packed": (
        "allgather",
        "ring",
        {"scratch": "0", "packed": "4*p"},
        "declares packed='4\\*p', 20 blocks, far more than the 0",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_false_declaration_is_refused_by_name(case):
    collective, name, declarations, why = REFUSED[case]
    with pytest.raises(ScheduleError, match=rf"^{collective}\.mine, .*{why}"):
        register(collective, name, **declarations)
    assert "mine" not in mpicoll.algorithms(collective)[collective]


SENSELESS = {
    "p-": "scratch 'p-': ",
    "n": "scratch 'n': uses the unknown name n; known: lg, p, q, r",
    "max(p, 2)": "scratch 'max\\(p, 2\\)': 'max\\(p, 2\\)' is not arithmetic",
    "1/(p-5)": "scratch '1/\\(p-5\\)' with p=5: .*zero",
    "(1-p)**0.5": "scratch .* with p=2 is .*j.*, no number of blocks",
    "9e999": "scratch '9e999' with p=2 is inf, no number of blocks",
}


@pytest.mark.parametrize("text", SENSELESS)
def test_an_expression_without_a_value_is_refused_by_name(text):
    with pytest.raises(ValueError, match=rf"^allreduce\.mine: {SENSELESS[text]}"):
        register("allreduce", "ring", scratch=text, verified=False)


@pytest.mark.parametrize(
    ("declarations", "why"),
    [
        ({"blocks": "p/2"}, "blocks 'p/2' with p=3 is 1.5, no whole number from 1 on"),
        ({"blocks": "p-2"}, "blocks 'p-2' with p=2 is 0, no whole number from 1 on"),
        ({"scratch": 3}, "scratch 3 is no expression such as 'p-1'"),
        ({"packed": "p"}, "packed='p' without scratch"),
    ],
)
def test_declarations_that_make_no_sense(declarations, why):
    with pytest.raises(ValueError, match=rf"^allreduce\.mine: {why}"):
        register("allreduce", "ring", verified=False, **declarations)


def test_a_false_declaration_for_many_ranks_is_found_when_it_is_first_used():
    register("allreduce", "ring", scratch="7")
    with pytest.raises(ScheduleError, match=r"size 18: declares scratch='7', 7 blocks, but a rank needs 17"):
        mpicoll.plan("allreduce", size=18, nbytes=1 << 30, algorithm="mine")


@pytest.mark.parametrize(("collective", "name"), [("allreduce", "ring"), ("gather", "binomial"), ("alltoall", "bruck")])
def test_without_a_declaration_the_schedules_tell(collective, name):
    mine, theirs = register(collective, name), get(collective, name)
    for size in (1, 2, 5, 8):
        assert mine.vector_blocks(size) == theirs.vector_blocks(size)
        assert (mine.scratch_blocks(size, False), mine.scratch_blocks(size, True)) == most_needed(theirs, size)


def test_blocks_alone_may_be_declared():
    mine = register("allreduce", "ring", blocks="p")
    assert (mine.vector_blocks(5), mine.scratch_blocks(5, True)) == (5, 4)


def test_expressions_know_the_number_of_ranks():
    found = [[evaluate(compiled("scratch", name), of_ranks(p)) for name in ("p", "q", "lg", "r")] for p in (1, 6, 8)]
    assert found == [[1, 0, 0, 0], [6, 3, 2, 1], [8, 3, 3, 0]]
    assert [declared("scratch", text, 5) for text in ("p/2", "p-9", "2**lg-1")] == [3, 0, 3]


def test_counting_is_packing_without_doing_it():
    schedule = Schedule.of([step(Send(inp((0, 2)), 1), Recv(out((1, 2)), 1)), step(Send(inp((2, 1)), 1))], 3)
    for rule in (lambda ref: False, lambda ref: ref.buffer == "output", lambda ref: True):
        assert packed_cells(schedule, rule) == len(pack(schedule, rule).scratch)
    assert counted(COLLECTIVES["allreduce"], [schedule]) == Space(3, 4, 4)
    assert counted(COLLECTIVES["allgather"], [schedule]) == Space(3, 4, 6)
