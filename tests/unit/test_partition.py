import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpicoll.schedule import offsets, split

COUNTS = st.integers(0, 10**6)
PARTS = st.integers(1, 300)


@pytest.mark.parametrize(
    ("count", "parts", "expected"),
    [
        (7, 3, (3, 2, 2)),
        (6, 3, (2, 2, 2)),
        (2, 3, (1, 1, 0)),
        (0, 3, (0, 0, 0)),
        (8, 3, (3, 3, 2)),
        (5, 1, (5,)),
    ],
)
def test_first_parts_are_larger_where_it_is_uneven(count, parts, expected):
    assert split(count, parts) == expected


@given(COUNTS, PARTS)
def test_parts_sum_to_the_count_and_differ_by_one_at_most(count, parts):
    counts = split(count, parts)
    assert len(counts) == parts
    assert sum(counts) == count
    assert counts[0] - counts[-1] <= 1
    assert list(counts) == sorted(counts, reverse=True)


@given(COUNTS, PARTS)
def test_parts_lie_one_after_the_other(count, parts):
    counts = split(count, parts)
    starts = offsets(counts)
    ends = [start + one for start, one in zip(starts, counts, strict=True)]
    assert [0, *ends] == [*starts, count]


@pytest.mark.parametrize(
    ("count", "parts", "grain", "expected"),
    [(16, 2, 4, (8, 8)), (12, 2, 4, (8, 4)), (7, 3, 4, (4, 0, 3)), (3, 2, 4, (0, 3)), (9, 2, 1, (5, 4))],
)
def test_parts_of_whole_grains(count, parts, grain, expected):
    assert split(count, parts, grain) == expected


@given(COUNTS, PARTS, st.integers(1, 64))
def test_parts_start_at_grains_and_the_last_takes_what_is_left(count, parts, grain):
    counts = split(count, parts, grain)
    assert len(counts) == parts
    assert sum(counts) == count
    assert all(start % grain == 0 for start in offsets(counts))
    whole = [*counts[:-1], counts[-1] - count % grain]
    assert whole == [one * grain for one in split(count // grain, parts)]


def test_nothing_has_no_offsets():
    assert offsets(()) == ()
