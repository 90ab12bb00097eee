"""The protocol of wrappers: actions around a program, and around each of its segments."""

from __future__ import annotations

from mpicoll.runtime.program.bound import Bound


class Wrapper:
    """Actions around a program: here, none.

    A program of 2 segments may be: first, begin(0), a start, begin(1), a start, a wait, end(0), a wait, end(1), last.

    Attributes:
        by_segment: a segment has actions of its own, so its last messages are waited for early.
    """

    by_segment = False

    def first(self, bound: Bound) -> None:
        """Add what comes before the program."""

    def begin(self, bound: Bound, segment: int) -> None:
        """Add what comes before the first instruction of a segment."""

    def end(self, bound: Bound, segment: int) -> None:
        """Add what comes after the last instruction that writes a segment's output, if any does."""

    def last(self, bound: Bound) -> None:
        """Add what comes after the program."""
