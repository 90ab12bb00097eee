"""Uneven splitting: the only place that divides a count by a number of parts."""

from itertools import accumulate


def split(count: int, parts: int) -> tuple[int, ...]:
    """Return `parts` counts that sum to `count`; the first ones are one larger where it is uneven."""
    each, extra = divmod(count, parts)
    return (each + 1,) * extra + (each,) * (parts - extra)


def offsets(counts: tuple[int, ...]) -> tuple[int, ...]:
    """Return where each part starts when parts of these counts lie one after the other."""
    return tuple(accumulate(counts, initial=0))[:-1]
