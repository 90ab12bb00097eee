"""Lowered programs do what the collective promises, however fast each rank is.

Calls of one algorithm follow each other with other contents, lengths and slots, over the same inboxes.
Whatever keeps a rank from writing into an inbox too early is taken away once, to see that this is found out.
"""

import random
from dataclasses import replace

import pytest

from mpicoll.algorithms import catalogue, known, registry
from mpicoll.runtime.paths.mapped.credits import unheard
from mpicoll.runtime.paths.mapped.lowering import Await, Credit
from serving import served
from unit.mapped_interpreter import Call, Rules, SpoiledError, blocks_of, memory_of, programs_of, run_interleaved

SIZES = (1, 2, 3, 4, 5, 8)
CALLS = 4
#: collectives whose blocks may differ in length; in the last three not every rank knows every length
UNEVEN = ("allgather", "reduce_scatter", "gather", "scatter", "alltoall")
UNKNOWN = ("gather", "scatter", "alltoall")

CARDS = [card for name in catalogue() for card in known(name) if name != "barrier"]
NAMED = {"ids": lambda card: f"{card.collective}.{card.name}"}


def lengths_of(card, blocks, even, draw):
    """Return the tiles of each block: of several waves, or none."""
    if not even:
        return [draw.choice((0, 1, 2, 9)) for _ in range(blocks)]
    most = draw.choice((0, 1, 2, 5, 8))
    larger = draw.randint(0, blocks) if card.row.free and most else blocks
    return [most if block < larger else most - 1 for block in range(blocks)]


def aliasing(card, size, root, draw):
    """Return ranks whose input and output are the same memory."""
    if card.row.shared:
        return set(range(size))
    if card.collective == "alltoall":
        return set()
    able = {root} if card.row.rooted else set(range(size))
    return {rank for rank in sorted(able) if draw.random() < 0.5}


def make(card, size, root, number, draw, even):
    """Return a call, and which ranks have input and output in one."""
    schedules, aliased = card.schedules(size, root), aliasing(card, size, root, draw)
    programs = programs_of(schedules, aliased, even, early=draw.random() < 0.5)
    lengths = lengths_of(card, schedules[0].blocks, even, draw)
    memory = [memory_of(card.row, s, r, size, root, number, r in aliased, lengths) for r, s in enumerate(schedules)]
    return Call(programs, memory, lengths, [blocks_of(s) for s in schedules], draw.randint(1, 3)), aliased


def check(card, call, aliased, size, root, number):
    """Raise SpoiledError unless every rank has what the collective's row says, and nothing else was written."""
    for rank, schedule in enumerate(card.schedules(size, root)):
        given = memory_of(card.row, schedule, rank, size, root, number, rank in aliased, call.lengths)
        wanted = card.row.after(rank, size, root, schedule.blocks)
        for (buffer, block), tiles in call.memory[rank].items():
            made = block in wanted and (buffer == "output" or rank in aliased)
            if not made and tiles != given[buffer, block]:
                raise SpoiledError(f"rank {rank}, call {number}: {buffer}[{block}] was written")
            for tile, found in enumerate(tiles if made else ()):
                parts = list(found or ())
                if (parts if card.ordered else sorted(parts)) != [(r, block, tile, number) for r in wanted[block]]:
                    raise SpoiledError(f"rank {rank}, call {number}: output[{block}], tile {tile} is {found}")


def run(card, size, root, seed, rules=None, even=True, change=lambda call: None):
    """Make some calls, one after the other."""
    draw = random.Random(f"{size}, {root}, {seed}")
    made = [make(card, size, root, number, draw, even) for number in range(CALLS)]
    for call, _ in made:
        change(call)
    run_interleaved([call for call, _ in made], size, draw, rules or Rules(draw.choice(("lines", "slices"))))
    for number, (call, aliased) in enumerate(made):
        check(card, call, aliased, size, root, number)


def must_know(card):
    """Tell whether an algorithm passes on blocks whose counts no rank knows: it refuses blocks that differ."""
    return card.forwards and card.collective in UNKNOWN


def roots(card, size):
    return sorted({0, size - 1}) if card.row.rooted else [0]


@pytest.mark.slow
@pytest.mark.parametrize("chosen", CARDS, **NAMED)
def test_right_however_fast_the_ranks_are(chosen):
    for size in served(chosen, SIZES):
        for root in roots(chosen, size):
            for seed in range(4):
                run(chosen, size, root, seed)


@pytest.mark.slow
@pytest.mark.parametrize(
    "chosen", [card for card in CARDS if card.collective in UNEVEN and not must_know(card)], **NAMED
)
def test_right_where_blocks_differ(chosen):
    """Some ranks have many tiles where others have one or none."""
    for size in served(chosen, SIZES):
        for root in roots(chosen, size):
            for seed in range(4):
                run(chosen, size, root, seed, even=False)


def without_credit(call):
    call.programs = [
        replace(p, instructions=tuple(i for i in p.instructions if not isinstance(i, Await | Credit)))
        for p in call.programs
    ]


def is_found_out(card, size=4, **wrong):
    """Tell whether some way of running goes wrong."""
    for seed in range(60):
        try:
            run(card, size, 0, seed, **wrong)
        except SpoiledError:
            return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("chosen", [card for card in CARDS if unheard(card.schedules(4))], **NAMED)
def test_credit_is_given_only_where_it_is_needed(chosen):
    assert is_found_out(chosen, change=without_credit)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["lines", "slices"])
@pytest.mark.parametrize("missing", [{"tokens": False}, {"calls": 1}, {"waves": 1}], ids=str)
@pytest.mark.parametrize("name", ["bcast.ring", "gather.linear", "scan.ring"])
def test_tokens_and_turns_are_needed(name, missing, protocol):
    """Without them a rank writes into memory that a slower one has not read."""
    card = registry.get(*name.split("."))
    assert is_found_out(card, rules=Rules(protocol, **missing))


def test_what_goes_wrong_is_told():
    """A value of an earlier call, and a rank that waits for ever."""
    card, texts = registry.get("bcast", "ring"), set()
    for protocol in ("lines", "slices"):
        for seed in range(40):
            try:
                run(card, 3, 0, seed, rules=Rules(protocol, tokens=False), change=without_credit)
            except SpoiledError as error:
                texts.add(str(error)[:8])
    assert {"all wait", "rank 1, "} <= texts
