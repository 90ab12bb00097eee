"""Which arrays of a step are reduced together, and what is said where ranks differ."""

import numpy as np
import pytest

from mpicoll.training.bucket_layout import BucketLayout, Member
from mpicoll.training.same_order import difference

F4, F8 = np.dtype("f4"), np.dtype("f8")


def buckets(limit, *members):
    """The buckets that are closed by arrays of these (bytes, dtype, device), and those that are left."""
    layout = BucketLayout(limit)
    closed = [layout.add(Member(nbytes // dtype.itemsize, dtype, device)) for nbytes, dtype, device in members]
    return [bucket for bucket in closed if bucket], layout.close()


def host(*sizes):
    return [(nbytes, F4, -1) for nbytes in sizes]


@pytest.mark.parametrize(
    ("sizes", "closed", "left"),
    [
        ((60, 60, 200, 8), [(0, 1), (2,)], [(3,)]),
        ((100,), [(0,)], []),
        ((96, 4, 4), [(0, 1)], [(2,)]),
        ((40, 400, 60, 8), [(1,), (0, 2)], [(3,)]),  # a large one does not wait for the small ones
        ((0, 0), [], [(0, 1)]),
        ((), [], []),
    ],
)
def test_a_bucket_is_closed_as_soon_as_it_is_full(sizes, closed, left):
    assert buckets(100, *host(*sizes)) == (closed, left)


def test_a_bucket_has_one_dtype_and_one_device():
    mixed = [(40, F4, -1), (40, F8, -1), (40, F4, 0), (64, F8, -1), (64, F4, -1)]
    assert buckets(100, *mixed) == ([(1, 3), (0, 4)], [(2,)])


def test_buckets_that_are_left_are_closed_once_in_the_order_in_which_they_were_opened():
    layout = BucketLayout(100)
    for dtype in (F8, F4, F8):
        layout.add(Member(1, dtype, -1))
    assert layout.close() == [(0, 2), (1,)]
    assert layout.close() == []


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        ([{4: "float32[3]"}, {4: "float32[5]"}], "array 4 is float32[3] on rank 0, but float32[5] on rank 1"),
        ([{0: "a", 1: "b"}] * 2 + [{0: "a"}], "array 1 is b on rank 0, but not in this bucket on rank 2"),
        ([{}, {}, {7: "c", 8: "d"}], "array 7 is not in this bucket on rank 0, but c on rank 2"),
    ],
)
def test_a_difference_names_the_rank_and_the_array(told, sentence):
    assert difference(told) == sentence


def test_an_array_is_described_by_what_ranks_must_have_alike():
    assert str(Member(5, F4, -1)) == "float32[5]"
    assert str(Member(5, F4, 1)) == "float32[5] on a device"
