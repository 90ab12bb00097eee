"""The benchmark's numbers are exact, and no wrong rank, place or iteration goes unseen."""

from fractions import Fraction

import numpy as np
import pytest

from mpicoll.bench.request.numbers import (
    DTYPES,
    PERIOD,
    REDUCTIONS,
    Recipe,
    combined,
    dtype_named,
    kind,
    pattern,
    raw,
    repeated,
)

ALL = (*DTYPES, "bfloat16")
SERVED = [(t, op) for t in ALL for op in REDUCTIONS if kind(dtype_named(t)) in REDUCTIONS[op][1]]


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("size", [1, 3, 8])
def test_ranks_and_iterations_differ(dtype, size):
    recipe = Recipe(dtype, "", size)
    one = pattern(recipe, 0, 0).astype("c16")
    for other in [pattern(recipe, rank, 0) for rank in range(1, size)] + [pattern(recipe, 0, 1)]:
        assert np.mean(one != other.astype("c16")) > (0.4 if dtype == "bool" else 0.99)


@pytest.mark.parametrize("dtype", [t for t in ALL if t != "bool"])
def test_a_shift_by_a_power_of_two_is_seen(dtype):
    one = pattern(Recipe(dtype, "", 8), 0, 0)
    for power in range(13):
        assert np.mean(one.astype("c16") != np.roll(one, 1 << power).astype("c16")) > 0.9


@pytest.mark.parametrize(("dtype", "redop"), SERVED)
@pytest.mark.parametrize("size", [2, 3, 8, 64])
def test_results_do_not_depend_on_the_order(dtype, redop, size):
    recipe = Recipe(dtype, redop, size)
    ranks = tuple(range(size))
    expected = combined(recipe, ranks, 0)
    if redop == "AVG":
        return  # means of means are no means; see the next test
    halves = [combined(recipe, part, 0) for part in (ranks[::2], ranks[1::2])]
    wide = [half.astype("f4") if dtype == "bfloat16" else half for half in halves]
    assert (REDUCTIONS[redop][0](*wide).astype(expected.dtype) == expected).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("redop", ["SUM", "PROD", "AVG"])
@pytest.mark.parametrize("size", [1, 5, 8, 32])
def test_floating_results_are_those_of_whole_numbers(dtype, redop, size):
    recipe = Recipe(dtype, redop, size)
    for index in (0, 1, 17, PERIOD - 1):
        exact = Fraction(1 if redop == "PROD" else 0)
        for rank in range(size):
            number = Fraction(float(pattern(recipe, rank, 3)[index]))
            exact = exact * number if redop == "PROD" else exact + number
        exact /= size if redop == "AVG" else 1
        assert Fraction(float(combined(recipe, tuple(range(size)), 3)[index])) == exact


@pytest.mark.parametrize(("dtype", "redop"), SERVED)
def test_a_missing_rank_is_seen(dtype, redop):
    recipe = Recipe(dtype, redop, 5)
    whole = combined(recipe, (0, 1, 2, 3, 4), 0)
    for missing in range(5):
        part = combined(recipe, tuple(rank for rank in range(5) if rank != missing), 0)
        if redop == "AVG":
            part = part.astype("c16") * 4 / 5  # divided by the number of ranks all the same
        assert (part != whole).any()


@pytest.mark.parametrize("dtype", ["float16", "float32", "complex64"])
def test_the_mean_over_the_first_ranks_is_whole(dtype):
    recipe = Recipe(dtype, "AVG", 8)
    for first in range(1, 9):
        mean = combined(recipe, tuple(range(first)), 0)
        total = sum(pattern(recipe, rank, 0).astype("c16") for rank in range(first))
        assert (mean.astype("c16") * first == total).all()
        assert (mean.real == np.round(mean.real)).all()


@pytest.mark.parametrize("start", [0, 5, PERIOD - 1, PERIOD, 3 * PERIOD + 7])
@pytest.mark.parametrize("count", [0, 1, PERIOD, 2 * PERIOD + 3])
def test_a_vector_repeats_its_period(start, count):
    period = np.arange(PERIOD)
    assert (repeated(np, period, start, count) == np.arange(start, start + count) % PERIOD).all()


def test_equal_numbers_have_equal_bits_where_bits_are_compared():
    assert raw(np.dtype("float16")) == raw(dtype_named("bfloat16")) == np.uint16
    assert raw(np.dtype(bool)) == np.uint8
    assert raw(np.dtype("complex64")) == np.complex64
    for dtype, redop in SERVED:
        result = combined(Recipe(dtype, redop, 8), tuple(range(8)), 0)
        if kind(result.dtype) == "f":
            assert not np.signbit(result[result == 0].astype("f8")).any()


@pytest.mark.parametrize("name", ["float31", "object", "S4", "datetime64[s]", ">f4"])
def test_dtypes_without_numbers_are_refused(name):
    with pytest.raises(ValueError, match="dtype"):
        dtype_named(name)
