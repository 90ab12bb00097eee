"""Lower bounds: no cost is below them, and those algorithms that are known to be optimal reach them."""

import pytest

from mpicoll.algorithms import registry
from mpicoll.analysis.bounds import MINIMA, bound
from mpicoll.analysis.cost import CostModel
from mpicoll.analysis.segments import SEGMENTS
from mpicoll.dispatch.paths import PATHS
from mpicoll.schedule.collectives import COLLECTIVES

RANKS = (*range(2, 18), 32, 64)
SIZES = (0, 1, 1000, 1 << 16, 1 << 20, 1 << 30)
#: one machine for each parameter, on which nothing else takes time
LATENCY, BANDWIDTH, COMPUTATION = (CostModel(1, 1, 0, 0, 0), CostModel(0, 0, 1, 0, 0), CostModel(0, 0, 0, 1, 0))


def test_no_cost_is_below_the_lower_bound(card):
    for path, row in PATHS.items():
        for size in (size for size in RANKS if not card.refuses(size)):
            for nbytes in SIZES:
                least = bound(card.collective, row.model, size, nbytes).seconds
                seconds = row.model.seconds(card.cost, size, nbytes)
                assert seconds >= least * (1 - 1e-12), f"{path}, {size} ranks, {nbytes} bytes"


def test_no_cost_in_segments_is_below_the_lower_bound(card):
    """Segments hide reductions behind messages, as long as these take no less time."""
    for path, row in PATHS.items():
        for size in (size for size in RANKS if not card.refuses(size)):
            found = bound(card.collective, row.model, size, 1 << 30)
            parts = found.latency, found.bandwidth, found.computation if row.model.gamma <= row.model.beta else 0.0
            for segments in SEGMENTS:
                seconds = row.model.seconds(card.cost, size, 1 << 30, segments)
                assert seconds >= (found.call + max(parts)) * (1 - 1e-12), f"{path}, {size} ranks, {segments} segments"


OPTIMAL = [
    (LATENCY, "one_port", "barrier", "dissemination", RANKS),
    (LATENCY, "one_port", "bcast", "binomial", RANKS),
    (LATENCY, "one_port", "reduce", "binomial", RANKS),
    (LATENCY, "one_port", "gather", "binomial", RANKS),
    (LATENCY, "one_port", "scatter", "binomial", RANKS),
    (LATENCY, "one_port", "allreduce", "recursive_doubling", (2, 4, 8, 16, 32, 64)),
    (LATENCY, "one_port", "allgather", "bruck", RANKS),
    (LATENCY, "one_port", "reduce_scatter", "circulant", RANKS),
    (LATENCY, "one_port", "alltoall", "bruck", RANKS),
    (LATENCY, "one_port", "scan", "recursive_doubling", RANKS),
    (BANDWIDTH, "bandwidth", "allreduce", "ring", RANKS),
    (BANDWIDTH, "bandwidth", "allreduce", "two_shot", RANKS),
    (BANDWIDTH, "bandwidth", "allreduce", "reduce_scatter_allgather", (2, 4, 8, 16, 32, 64)),
    (BANDWIDTH, "bandwidth", "gather", "linear", RANKS),
    (BANDWIDTH, "bandwidth", "scatter", "binomial", RANKS),
    (BANDWIDTH, "bandwidth", "allgather", "ring", RANKS),
    (BANDWIDTH, "bandwidth", "reduce_scatter", "pairwise", RANKS),
    (BANDWIDTH, "bandwidth", "alltoall", "ring", RANKS),
    (COMPUTATION, "computation", "allreduce", "ring", RANKS),
    (COMPUTATION, "computation", "reduce_scatter", "pairwise", RANKS),
    (COMPUTATION, "computation", "reduce", "reduce_scatter_gather", (2, 4, 8, 16, 32, 64)),
]


@pytest.mark.parametrize(("model", "part", "collective", "name", "ranks"), OPTIMAL)
def test_an_algorithm_that_is_optimal_in_a_term_reaches_it(model, part, collective, name, ranks):
    card = registry.get(collective, name)
    for size in ranks:
        seconds = model.seconds(card.cost, size, 1 << 20)
        assert seconds == pytest.approx(getattr(bound(collective, model, size, 1 << 20), part)), f"{size} ranks"


@pytest.mark.parametrize("collective", ["bcast", "reduce", "scan"])
def test_a_chain_in_many_segments_comes_near_the_bandwidth(collective):
    cost = registry.get(collective, "ring").cost
    least = bound(collective, BANDWIDTH, 8, 1 << 20).bandwidth
    assert least < BANDWIDTH.seconds(cost, 8, 1 << 20, 1 << 10) < 1.01 * least


@pytest.mark.parametrize(
    ("size", "extra", "latency"),
    [
        (2, 1, 10),
        (3, 1, 11),
        (11, 1, 19),
        (12, 1, 20),
        (13, 1, 20),
        (14, 1, 21),
        (16, 1, 21),
        (17, 1, 22),
        (8, 10, 30),
        (9, 10, 40),
        (9, 99, 40),
        (9, 0, 10),
    ],
)
def test_messages_that_are_sent_at_once_reach_more_ranks(size, extra, latency):
    """With α = 10 and o = 1, 11 ranks are reached at 19; at 20 two more, by rank 0 and by the first it reached."""
    assert bound("bcast", CostModel(10, extra, 0, 0, 0), size, 0).latency == latency


def test_messages_one_after_the_other_take_the_latency_of_one_port():
    for size in RANKS:
        found = bound("barrier", CostModel(1, 1, 0, 0, 0), size, 0)
        assert found.latency == found.one_port == (size - 1).bit_length()


def test_the_bound_is_the_largest_part_and_what_every_call_costs():
    found = bound("allreduce", CostModel(1, 1, 0.5, 0.25, 0, call=100, call_byte=1), 4, 8)
    assert (found.latency, found.bandwidth, found.computation, found.call) == (2, 6, 1.5, 108)
    assert found.seconds == 114


def test_a_single_rank_need_not_do_anything():
    assert all(bound(name, CostModel(1, 1, 1, 1, 1), 1, 1000).seconds == 0 for name in COLLECTIVES)


def test_every_collective_has_a_minimum_with_its_source():
    assert MINIMA.keys() == COLLECTIVES.keys()
    assert all(minimum.source for minimum in MINIMA.values())
