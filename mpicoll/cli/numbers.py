"""Numbers on the command line: lists of whole numbers, and how they are written."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise


def whole_numbers(text: str) -> tuple[int, ...]:
    """Return the numbers in a text such as "1-4,8"; raises ValueError for another text."""
    found: list[int] = []
    for part in text.split(","):
        low, dash, high = part.partition("-")
        if not low.isdecimal() or (dash and not high.isdecimal()):
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


def host_of_ranks(text: str, size: int) -> tuple[int, ...]:
    """Return the host of each rank, from a number of hosts or the ranks of each, such as "2" or "0-3,4-7".

    Raises:
        ValueError: the text is neither, or some rank is on no host or on two.
    """
    if text.isdecimal() and int(text):
        edges = [size * k // int(text) for k in range(int(text) + 1)]
        groups = [range(a, b) for a, b in pairwise(edges)]
    else:
        groups = [range(part[0], part[-1] + 1) for part in map(whole_numbers, text.split(","))]
    found = [[host for host, ranks in enumerate(groups) if rank in ranks] for rank in range(size)]
    if any(len(hosts) != 1 for hosts in found):
        raise ValueError(f"--hosts {text}: each of the ranks 0 to {size - 1} is on one host, as in 2 or 0-3,4-7")
    return tuple(hosts[0] for hosts in found)


def choice(text: str) -> tuple[str, int]:
    """Return (algorithm, segments) of a text such as "ring/4"; raises ValueError for another."""
    name, cut, segments = text.partition("/")
    if cut and not (segments.isdecimal() and int(segments)):
        raise ValueError(f"{text!r}: after / comes a number of segments, as in ring/4")
    return name, int(segments or 1)


def size_text(nbytes: float) -> str:
    """Return a number of bytes in the unit in which it is short, such as "64 KiB" or "1.75 MiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if nbytes < 1024 or unit == "GiB":
            break
        nbytes /= 1024
    return f"{nbytes:.3g} {unit}" if nbytes < 1000 else f"{nbytes:.0f} {unit}"


def time_text(seconds: float) -> str:
    """Return a time in the unit in which it is short, such as "38.4 us"."""
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}" if seconds * scale < 1000 else f"{seconds * scale:.0f} {unit}"
    return f"{seconds * 1e9:.3g} ns"
