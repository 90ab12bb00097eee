"""What the verifier catches: schedules that are right but for one small mistake.

Whether a mistake matters is judged by a second reading of schedules that shares no code with the
verifier (unit.interpreter): both must agree, on every mutant.
"""

import random
from collections import defaultdict
from dataclasses import replace

import pytest

import mpicoll
from mpicoll import ScheduleError
from mpicoll.algorithms import get
from mpicoll.analysis import proof, registration
from mpicoll.analysis import verify as verifier
from mpicoll.analysis.verify import verify
from mpicoll.schedule import Send
from mpicoll.schedule.planner import compile_program
from mpicoll.schedule.program import Start, Wait
from serving import served
from unit.interpreter import WrongError, interpret
from unit.mutants import FATAL, mutants, swapped_operands

SIZES = [*range(2, 7), 8]
#: mutants of each kind, for each algorithm and number of ranks; about 2500 in all
EACH = 1


def sample(card, size, seed):
    """Draw a few mutants of each kind; the root is drawn too."""
    draw = random.Random(seed)
    root = draw.randrange(size) if card.row.rooted else 0
    by_kind = defaultdict(list)
    for kind, schedules in mutants(card.schedules(size, root)):
        by_kind[kind].append(schedules)
    for kind, found in by_kind.items():
        for schedules in draw.sample(found, min(EACH, len(found))):
            yield kind, root, schedules


def harmless(collective, schedules, root):
    try:
        interpret(collective, schedules, root)
    except WrongError:
        return False
    return True


@pytest.mark.slow
def test_every_mistake_that_matters_is_caught_and_said_where(card):
    caught = 0
    for size in served(card, SIZES):
        for kind, root, schedules in sample(card, size, f"{card.collective} {card.name} {size}"):
            where = f"{kind}, size {size}, root {root}:\n" + "\n\n".join(map(str, schedules))
            if harmless(card.collective, schedules, root):
                assert kind not in FATAL, where
                verify(card.collective, schedules, root=root, in_place=False)
                continue
            with pytest.raises(ScheduleError, match=r"^rank \d+, (step \d+|end): ."):
                pytest.fail(f"not caught: {verify(card.collective, schedules, root=root)}, {where}")
            caught += 1
    assert caught >= 15  # so that the sample of all algorithms is of more than 700 that matter


@pytest.mark.slow
def test_swapped_operands_are_seen(card):
    """Where operands were in rank order they no longer are; a commutative operator is still served."""
    if not card.ordered:
        return
    for size in SIZES[1:]:  # an exscan of two ranks combines nothing
        for root in range(size) if card.row.rooted else (0,):
            right = card.schedules(size, root)
            assert verify(card.collective, right, root=root, in_place=False).ordered
            changed = swapped_operands(right)
            assert changed, "an algorithm that reduces has operands"
            for _, schedules in changed:
                assert not verify(card.collective, schedules, root=root, in_place=False).ordered
                assert not interpret(card.collective, schedules, root).ordered


@pytest.mark.parametrize("size", [2, 4, 5, 8])
def test_operands_that_one_rank_swaps_are_other_bits(size):
    right = get("allreduce", "recursive_doubling").schedules(size)
    assert verify("allreduce", right).same_bits
    last = max(rank for rank, _ in swapped_operands(right))
    assert not verify("allreduce", [s for r, s in swapped_operands(right) if r == last][-1]).same_bits


def test_a_mutant_cannot_be_registered(monkeypatch):
    for module in (proof, registration):
        monkeypatch.setattr(module, "SIZES_AT_REGISTRATION", [4])
    before = mpicoll.algorithms()
    for kind, schedules in mutants(get("allgather", "ring").schedules(4)):
        if kind in FATAL:
            with pytest.raises(ScheduleError, match=r"allgather\.mutant, size 4, rank \d"):
                mpicoll.algorithm("allgather", name="mutant")(lambda rank, size, s=schedules: s[rank])
    assert mpicoll.algorithms() == before


def hold_back(schedule, segments=1, lanes=0, aliased=False):
    """A planner that sends only what the rank has waited for something else first."""
    program = compile_program(schedule, segments, lanes, aliased)
    order = list(program.instructions)
    for i in range(len(order) - 1):
        one, after = order[i], order[i + 1]
        if segments > 1 and isinstance(one, Start) and isinstance(after, Wait):
            sends = tuple(t for t in one.transfers if program.transfers[t].sends)
            if sends and not set(sends) & set(after.transfers):
                rest = tuple(t for t in one.transfers if t not in sends)
                order[i : i + 2] = [Start(rest), after, Start(sends)]
    return replace(program, instructions=tuple(order))


def test_the_planners_order_is_proven_too(monkeypatch):
    """The steps of a ring are right; an order that holds sends back makes all ranks wait for each other."""
    ring = get("allgather", "ring").schedules(3)
    assert all(isinstance(one.messages[0], Send) for one in ring[0].steps[1:])
    verify("allgather", ring)
    monkeypatch.setattr(verifier, "compile_program", hold_back)
    with pytest.raises(ScheduleError, match=r"rank \d, step \d: deadlock"):
        verify("allgather", ring)
