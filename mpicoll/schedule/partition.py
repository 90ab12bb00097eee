"""Uneven splitting: the only place that divides a count by a number of parts."""

from functools import lru_cache
from itertools import accumulate


@lru_cache(maxsize=1 << 12)
def split(count: int, parts: int, grain: int = 1) -> tuple[int, ...]:
    """Return `parts` counts that sum to `count`, as even as can be, the first ones larger.

    Parts start at multiples of `grain`; what is left over belongs to the last part.
    """
    units, rest = divmod(count, grain)
    each, extra = divmod(units, parts)
    counts = [(each + 1) * grain] * extra + [each * grain] * (parts - extra)
    counts[-1] += rest
    return tuple(counts)


@lru_cache(maxsize=1 << 12)
def offsets(counts: tuple[int, ...]) -> tuple[int, ...]:
    """Return the start of each part where parts of these counts lie one after the other: (0, 3, 5) for (3, 2, 2)."""
    return tuple(accumulate(counts, initial=0))[:-1]
