"""Numbers of ranks and message sizes, as all command lines take them.

ranks   2,3,4,8   2-8   1-4,8
bytes   8,64K     8-4M, which grows by a factor of 8     8-4M:2, by a factor of 2
"""

from __future__ import annotations

from mpicoll.settings import parse_bytes

#: largest number: of ranks, for instance
MOST = 1 << 20
#: factor from one size to the next of a range such as 8-4M
FACTOR = 8


def whole_numbers(text: str) -> tuple[int, ...]:
    """Return the numbers in a text such as "1-4,8"; raises ValueError for another text."""
    found: list[int] = []
    for part in text.split(","):
        low, dash, high = part.partition("-")
        if not low.isdecimal() or (dash and not high.isdecimal()):
            raise ValueError(f"{part!r} is no number or range of numbers such as 1-4")
        if max(int(low), int(high or low)) > MOST or int(high or low) < int(low):
            raise ValueError(f"{part!r}: numbers go up, to {MOST} at most")
        found += range(int(low), int(high or low) + 1)
    return tuple(found)


def message_sizes(text: str) -> tuple[int, ...]:
    """Return the bytes in a text such as "8-1K,1M", ascending and each once; raises ValueError for another text.

    8-1K is 8, 64, 512 and 1024 bytes, and 8-1K:16 is 8, 128 and 1024.
    """
    found = set[int]()
    for part in text.split(","):
        span, colon, by = part.strip().partition(":")
        low, dash, high = span.partition("-")
        if colon and not (dash and by.isdecimal() and int(by) > 1):
            raise ValueError(f"{part!r}: a factor is a whole number from 2 on, behind a range such as 8-4M:2")
        first = parse_bytes(low)
        last = parse_bytes(high) if dash else first
        if last < first:
            raise ValueError(f"{part!r}: sizes go up, as 8-4M")
        found |= set(growing(first, last, int(by or FACTOR)))
    return tuple(sorted(found))


def growing(smallest: int, largest: int, factor: int) -> list[int]:
    """Return message sizes in bytes: by a factor from the smallest, and the largest."""
    found = [0] if smallest == 0 else []
    size = max(smallest, 1)
    while size < largest:
        found.append(size)
        size *= factor
    return [*found, largest] if largest not in found else found
