"""Runs of bytes."""

from hypothesis import given
from hypothesis import strategies as st

from mpicoll.runtime.program.layout import cut


def test_a_long_run_is_cut_in_order():
    assert cut((1000, 25), most=10) == [(1000, 10), (1010, 10), (1020, 5)]


def test_a_run_of_2_gib_and_more_becomes_messages_that_31_bits_can_count():
    pieces = cut((0, (5 << 30) + 3))
    assert [nbytes for _, nbytes in pieces] == [1 << 30] * 5 + [3]


def test_a_run_of_no_bytes_is_still_a_message():
    assert cut((1000, 0)) == [(1000, 0)]


@given(st.integers(0, 1 << 40), st.integers(0, 300), st.integers(1, 50))
def test_pieces_lie_one_after_the_other_and_are_as_few_as_can_be(address, nbytes, most):
    pieces = cut((address, nbytes), most)
    ends = [start + length for start, length in pieces]
    assert [start for start, _ in pieces] == [address, *ends[:-1]]
    assert ends[-1] == address + nbytes
    assert all(length <= most for _, length in pieces)
    assert len(pieces) == max(-(-nbytes // most), 1)
