"""Predictions: the formula's time, corrected by what was measured near it."""

import math

import pytest

from mpicoll.algorithms import registry
from mpicoll.dispatch.facts import Facts
from mpicoll.dispatch.machine_facts import MachineFacts
from mpicoll.dispatch.paths import PATHS
from mpicoll.dispatch.predict import best_segments
from mpicoll.dispatch.table import parse_table
from mpicoll.dispatch.tuning import Tuning

RING = registry.get("bcast", "ring")
MODEL = PATHS["host"].model


def tuned(*statements):
    return Tuning((parse_table("\n".join(statements), "mine"),), MachineFacts())


def predicted(tuning, nbytes, size=4, **more):
    """The segments and microseconds of a bcast by the ring."""
    segments, seconds = best_segments(RING, Facts("bcast", size, nbytes, **more), "host", tuning)
    return segments, seconds * 1e6


def formula(nbytes, segments, size=4):
    return MODEL.seconds(RING.cost, size, nbytes, segments) * 1e6


#: at 64 KiB twice, and at 1 MiB three times as long as the formula says
TWO = tuned(
    f"measured:bcast:64K:p=4:mem=host:ring/1={2 * formula(1 << 16, 1)}",
    f"measured:bcast:1M:p=4:mem=host:ring/8={3 * formula(1 << 20, 8)}",
)


def test_where_it_was_measured_the_prediction_is_the_measured_time():
    assert predicted(TWO, 1 << 16) == (1, pytest.approx(2 * formula(1 << 16, 1)))
    assert predicted(TWO, 1 << 20) == (8, pytest.approx(3 * formula(1 << 20, 8)))


def test_between_two_sizes_the_correction_is_the_mean_in_logarithms():
    between = 1 << 18
    segments, micro = predicted(TWO, between)
    assert micro == pytest.approx(math.sqrt(6) * formula(between, segments), rel=1e-4)


def test_beyond_the_measured_sizes_the_last_correction_stays():
    assert predicted(TWO, 8) == (1, pytest.approx(2 * formula(8, 1)))
    assert predicted(TWO, 64 << 20) == (8, pytest.approx(3 * formula(64 << 20, 8)))


def test_one_measured_size_corrects_all():
    one = tuned(f"measured:bcast:64K:p=4:mem=host:ring/2={5 * formula(1 << 16, 2)}")
    for nbytes in (0, 8, 1 << 16, 1 << 24):
        assert predicted(one, nbytes) == (2, pytest.approx(5 * formula(nbytes, 2)))


def test_segments_are_those_of_the_nearest_measured_size():
    found = [predicted(TWO, nbytes)[0] for nbytes in (0, 1 << 16, (1 << 18) - 8, (1 << 18) + 8, 1 << 20, 1 << 26)]
    assert found == [1, 1, 1, 8, 8, 8]


def test_of_several_numbers_of_segments_the_fastest_is_predicted():
    several = tuned("measured:bcast:1M:p=4:mem=host:ring/1=900:ring/4=300:ring/16=500")
    assert predicted(several, 1 << 20) == (4, pytest.approx(300))


def test_a_wanted_size_of_segments_is_kept_and_corrected():
    segments, micro = predicted(TWO, 1 << 20, segment_bytes=1 << 16)
    assert segments == 16
    assert micro == pytest.approx(3 * formula(1 << 20, 16))


#: number of ranks, and how many times the formula's time was measured
SIZES = ((2, 2), (8, 8), (32, 32))


def test_another_number_of_ranks_takes_the_correction_of_the_nearest_by_their_ratio():
    """Of two that are as near, the larger one."""
    table = tuned(
        *(f"measured:bcast:64K:p={size}:mem=host:ring/1={times * formula(1 << 16, 1, size)}" for size, times in SIZES)
    )
    for size, times in ((2, 2), (3, 2), (4, 8), (5, 8), (8, 8), (15, 8), (17, 32), (32, 32), (1000, 32)):
        assert predicted(table, 1 << 16, size) == (1, pytest.approx(times * formula(1 << 16, 1, size))), size


def test_without_times_the_model_of_the_table_predicts():
    model = "model:host:alpha=1e-3"
    assert predicted(tuned(model), 8)[1] == pytest.approx(3000)  # three messages, one after the other
    assert predicted(Tuning(), 8)[1] == pytest.approx(formula(8, 1))


def test_times_of_other_algorithms_and_calls_do_not_matter():
    other = tuned(
        "measured:bcast:8:p=4:mem=host:linear/1=1e6",
        "measured:reduce:8:p=4:mem=host:ring/1=1e6",
        "measured:bcast:8:p=4:mem=device:ring/1@direct=1e6",
    )
    assert predicted(other, 8) == (1, pytest.approx(formula(8, 1)))


def test_a_measured_time_of_0_is_no_logarithm_of_0():
    assert predicted(tuned("measured:bcast:8:p=4:mem=host:ring/1=0"), 8)[1] == pytest.approx(1e-3)


# Device arrays.

GPUS = tuned(
    "measured:bcast:64K:p=2:mem=device:gpus=1:ring/1@mapped=500",
    "measured:bcast:64K:p=2:mem=device:ring/1@mapped=50:ring/1@direct=70",
)
EXPECTED = [(1, "mapped", 500), (2, "mapped", 50), (0, "mapped", 50), (1, "direct", 70)]


@pytest.mark.parametrize(("gpus", "path", "micro"), EXPECTED)
def test_times_of_so_many_gpus_come_before_those_of_any_number(gpus, path, micro):
    facts = Facts("bcast", 2, 1 << 16, "device", paths=("mapped", "direct"), gpus=gpus)
    assert best_segments(RING, facts, path, GPUS)[1] * 1e6 == pytest.approx(micro)


def test_a_path_that_takes_whole_blocks_has_one_segment_whatever_was_measured():
    """What it cuts a block into by itself is the same in the formula of both sizes."""
    table = tuned("measured:bcast:4M:p=2:mem=device:ring/7@mapped=100")
    facts = [Facts("bcast", 2, nbytes, "device", paths=("mapped",)) for nbytes in (4 << 20, 8 << 20)]
    (segments, first), (_, second) = (best_segments(RING, one, "mapped", table) for one in facts)
    (_, alone), (_, alone_twice) = (best_segments(RING, one, "mapped") for one in facts)
    assert (segments, first * 1e6) == (1, pytest.approx(100))
    assert second / first == pytest.approx(alone_twice / alone)
