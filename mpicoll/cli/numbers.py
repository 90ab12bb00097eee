"""Numbers on the command line: lists of whole numbers, and how they are written."""

from __future__ import annotations

from collections.abc import Sequence


def whole_numbers(text: str) -> tuple[int, ...]:
    """Return the numbers in a text such as "1-4,8"; raises ValueError for another text."""
    found: list[int] = []
    for part in text.split(","):
        low, _, high = part.partition("-")
        if not low.isdecimal() or (high and not high.isdecimal()):
            raise ValueError(f"{part!r} is no number or range of numbers such as 1-4")
        found += range(int(low), int(high or low) + 1)
    return tuple(found)


def span(numbers: Sequence[int]) -> str:
    """Return numbers in ascending order as a text, such as "1-4,8"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
