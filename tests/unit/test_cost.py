"""Declared costs against the schedules that they are declared for."""

import itertools
import math
from collections import defaultdict
from fractions import Fraction

import pytest

from mpicoll.analysis.cost import NAMES, CostModel, pipelined
from mpicoll.dispatch.paths import PATHS
from mpicoll.schedule import Recv, Reduce, Schedule, Send

SIZES = [2, 3, 4, 7, 8]
FREE = {"alpha": 0, "extra": 0, "beta": 0, "gamma": 0, "launch": 0}


def coefficient(card, parameter, size):
    """What a cost charges for one parameter, for a vector of one byte in one segment."""
    return CostModel(**(FREE | {parameter: 1})).seconds(card.cost, size, 1)


def served(card):
    """Numbers of ranks for which bytes move; a barrier has none."""
    return [size for size in SIZES if not card.refuses(size) and card.collective != "barrier"]


def busiest(card, size, measure):
    """The most of something that one rank does, in full vectors, whatever the root."""
    roots = range(size) if card.row.rooted else (0,)
    schedules = [s for root in roots for s in card.schedules(size, root)]
    return max(Fraction(measure(s), card.vector_blocks(size)) for s in schedules)


def sent(schedule):
    return sum(len(m.source) for one in schedule.steps for m in one.messages if isinstance(m, Send))


def received(schedule):
    return sum(len(m.target) for one in schedule.steps for m in one.messages if isinstance(m, Recv))


def combined(schedule):
    reductions = [o for one in schedule.steps for o in one.local if isinstance(o, Reduce)]
    return sum(len(o.target) * (len(o.sources) - 1) for o in reductions)


def longest_chain(schedules):
    """The most blocks that ranks combine one after the other, each waiting for the messages that it needs."""
    done = [[] for _ in schedules]  # by rank and step: blocks combined until its end
    posted = defaultdict(list)  # by source and target: blocks combined before each message
    sent = [0] * len(schedules)  # by rank: steps whose messages are posted
    while any(len(ends) < len(s.steps) for ends, s in zip(done, schedules, strict=True)):
        for rank, schedule in enumerate(schedules):
            for step in range(len(done[rank]), len(schedule.steps)):
                start, one = done[rank][-1] if step else 0, schedule.steps[step]
                if sent[rank] == step:
                    sent[rank] += 1
                    for message in one.messages:
                        if isinstance(message, Send):
                            posted[rank, message.peer].append(start)
                peers = [m.peer for m in one.messages if isinstance(m, Recv)]
                if any(len(posted[peer, rank]) < peers.count(peer) for peer in peers):
                    break
                ready = max([start, *(posted[peer, rank].pop(0) for peer in peers)])
                done[rank].append(ready + combined(Schedule((one,), schedule.blocks)))
    return max(ends[-1] for ends in done if ends)


def test_every_cost_is_positive_and_finite(card):
    models = [row.model for row in PATHS.values()]
    vectors = itertools.product(models, [*SIZES, 16, 100, 1024], (0, 1, 1000, 1 << 20, 1 << 32))
    for model, size, nbytes in vectors:
        for segments in (1, 2, 32):
            seconds = model.seconds(card.cost, size, nbytes, segments)
            assert 0 < seconds < math.inf, f"{size} ranks, {nbytes} bytes, {segments} segments"


def test_no_cost_falls_with_the_size_of_the_vector(card):
    for model, size in itertools.product([row.model for row in PATHS.values()], SIZES):
        times = [model.seconds(card.cost, size, nbytes) for nbytes in (0, 1000, 10**6, 10**9)]
        assert times == sorted(times)


def test_no_cost_charges_less_than_the_busiest_rank_sends_or_receives(card):
    for size in served(card):
        busy = max(busiest(card, size, sent), busiest(card, size, received))
        assert coefficient(card, "beta", size) >= float(busy) - 1e-12, f"{size} ranks"


def test_no_cost_charges_less_than_the_busiest_rank_combines(card):
    for size in served(card):
        busy = busiest(card, size, combined)
        assert coefficient(card, "gamma", size) >= float(busy) - 1e-12, f"{size} ranks"


def test_no_cost_charges_much_less_than_the_longest_chain_of_reductions(card):
    """A rank with several children in a tree combines all at once, after the last one has combined its own.

    A tree that the last rank cuts off has no simple formula: a quarter may be missing.
    """
    for size in [*served(card), *(s for s in (15, 16, 17, 31, 32) if not card.refuses(s) and card.row.reducing)]:
        roots = (0, 1, size // 2, size - 1) if card.row.rooted else (0,)
        chain = max(longest_chain(card.schedules(size, root)) for root in roots)
        assert coefficient(card, "gamma", size) >= 0.75 * chain / card.vector_blocks(size), f"{size} ranks"


def test_no_cost_charges_less_than_one_latency(card):
    for size in SIZES:
        assert coefficient(card, "alpha", size) >= 1, f"{size} ranks"


@pytest.mark.parametrize(
    ("expression", "size", "expected"),
    [
        ("α", 8, 2.0),
        ("o", 8, 3.0),
        ("n*β", 8, 500.0),
        ("n*γ", 8, 700.0),
        ("λ", 8, 11.0),
        ("p", 7, 7.0),
        ("q", 8, 3.0),
        ("q", 9, 4.0),
        ("q", 1, 0.0),
        ("lg", 9, 3.0),
        ("lg", 8, 3.0),
        ("r", 8, 0.0),
        ("r", 9, 1.0),
        ("s", 9, 4.0),
        ("0-p", 9, 0.0),
    ],
)
def test_the_names_in_a_cost(expression, size, expected):
    model = CostModel(alpha=2, extra=3, beta=5, gamma=7, launch=11)
    assert model.seconds(expression, size, 100, 4) == expected


def test_what_every_call_costs_comes_on_top():
    model = CostModel(**FREE, call=10, call_byte=0.5)
    assert model.seconds("0", 4, 100) == 60


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"cost 'p\*L': uses the unknown name L; known: .*α"):
        PATHS["host"].model.seconds("p*L", 4, 0)


def test_only_a_cost_with_segments_is_pipelined():
    assert pipelined("(p-2+s)*α")
    assert not pipelined("p*α")
    assert "s" in NAMES
