"""Three ways to all-reduce, side by side."""

import pytest

from mpicoll.algorithms import registry
from mpicoll.analysis.segments import pieces
from mpicoll.analysis.ways import WAYS, compare, fastest
from mpicoll.dispatch.facts import Facts
from mpicoll.dispatch.paths import PATHS
from mpicoll.dispatch.select import candidates

SIZES = [8, 1 << 10, 1 << 16, 1 << 20, 1 << 24]


def compared(path, size, sizes=SIZES):
    row = PATHS[path]
    return compare(size, sizes, row.model, row.smallest_segment, row.wave)


@pytest.mark.parametrize("path", [name for name, row in PATHS.items() if not row.hosts_only])
@pytest.mark.parametrize("size", [2, 3, 8])
def test_each_leg_is_the_best_candidate_of_dispatch(path, size):
    legs = [leg for row in compared(path, size).rows for way in row for leg in way.legs]
    nbytes = [way.nbytes for row in compared(path, size).rows for way in row for _ in way.legs]
    for leg, count in zip(legs, nbytes, strict=True):
        facts = Facts(leg.collective, size, count, PATHS[path].memory, paths=(path,))
        best = min((c for c in candidates(facts) if c.seconds is not None), key=lambda c: c.seconds)
        assert leg.algorithm == best.choice.algorithm
        assert leg.seconds == pytest.approx(best.seconds)
        assert not PATHS[path].takes_segments or leg.segments == best.choice.segments


def test_rows_have_all_ways_of_each_size_in_order():
    found = compared("host", 4, [1024, 8, 1024])
    assert [[way.nbytes for way in row] for row in found.rows] == [[8] * 3, [1024] * 3]
    assert [way.name for way in found.rows[0]] == [" + ".join(names) for names in WAYS]


def test_a_way_takes_the_time_of_its_legs():
    for way in compared("direct", 8).rows[2]:
        assert way.seconds == pytest.approx(sum(leg.seconds for leg in way.legs))
        assert sum(way.terms.values()) == pytest.approx(way.seconds)
    assert way.terms["call"] == pytest.approx(2 * PATHS["direct"].model.call)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("size", [2, 4, 8, 17])
def test_at_a_crossover_the_other_way_becomes_faster(path, size):
    found = compared(path, size)
    names = [way.name for way in found.rows[0]]
    for crossover in found.crossovers:
        pair = sorted((names.index(crossover.below.name), names.index(crossover.above.name)))
        before, after = (
            [row[k] for k in pair] for row in compared(path, size, [crossover.nbytes - 1, crossover.nbytes]).rows
        )
        assert before[fastest(before)] == crossover.below
        assert after[fastest(after)] == crossover.above


def test_there_is_a_crossover_wherever_the_order_of_two_ways_changes():
    found = compared("host", 8)
    changed = sum(
        fastest([low[a], low[b]]) != fastest([high[a], high[b]])
        for low, high in zip(found.rows, found.rows[1:], strict=False)
        for a, b in ((0, 1), (0, 2), (1, 2))
    )
    assert len(found.crossovers) == changed > 0


def test_latency_rules_short_vectors_and_bandwidth_long_ones():
    rows = compared("host", 4).rows
    assert {way.ruling[0] for way in rows[0]} == {"α"}
    assert {way.ruling[0] for way in rows[-1]} == {"β"}


def test_ways_that_take_equally_long_do_not_cross():
    """On 2 ranks a two-shot is an exchange of halves and of results: the same two messages in two calls."""
    assert fastest(compared("host", 2, [1 << 16]).rows[0]) == 0
    assert compared("host", 8, [1 << 15, 1 << 16]).crossovers == ()


def test_one_rank_has_no_ways():
    with pytest.raises(ValueError, match="1 rank has nothing to all-reduce"):
        compare(1, [8], PATHS["host"].model)


def test_a_leg_is_written_with_its_segments():
    row = compared("host", 8, [1 << 26]).rows[0]
    assert str(row[0].legs[0]) == "allreduce ring/32"
    assert str(row[2].legs[1]) == "allgather linear"


def test_blocks_are_cut_only_as_far_as_the_path_allows():
    card, model = registry.get("bcast", "ring"), PATHS["host"].model
    assert pieces(card, model, 8, 1 << 20, smallest=32 << 10) == 16
    assert pieces(card, model, 8, 1 << 20, smallest=128 << 10) == 8
    assert pieces(card, model, 8, 1 << 20) == 1
    assert pieces(card, model, 8, 1 << 20, wave=1 << 18) == 4
    assert pieces(registry.get("bcast", "linear"), model, 8, 1 << 20, smallest=32 << 10) == 1
