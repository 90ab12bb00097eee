"""Where more sizes are worth their time: between sizes where the winner changes, and around those where times bend.

    n         2K      8K      32K
    measured  6 us    8 us    30 us    by one algorithm

At 8 KiB, what its formula says of the sizes around it would be 13 us: there is a bend, and a size is missing between 8
and 32 KiB, or between 2 and 8.  MPI libraries change their protocol at such sizes, and caches end there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

from mpicoll.algorithms import registry
from mpicoll.dispatch.measured import Measured, Timing
from mpicoll.dispatch.predict import bend
from mpicoll.dispatch.rules import NATIVE
from mpicoll.dispatch.tuning import Tuning
from mpicoll.tuning.choose import ranges
from mpicoll.tuning.contenders import FAR

#: sizes as near as this, by their ratio, need none between them
NEAR = 1.3
#: how far a time may be from what the sizes around it predict, as a logarithm of their ratio
BENT = 0.1
#: how many times that of a longer message a size's least time is where something disturbed its race
DISTURBED = 1.5


def disturbed(timings: Sequence[Timing]) -> Iterator[int]:
    """Yield each size in bytes that takes longer than a longer message: it should not.

    Args:
        timings: of one collective, by ascending size; the same in the functions below.
    """
    shortest = math.inf
    for timing in reversed(timings):
        seconds = min(timing.times.values())
        if seconds > DISTURBED * shortest:
            yield timing.nbytes
        shortest = min(seconds, shortest)


def changes(timings: Sequence[Timing]) -> Iterator[tuple[float, int]]:
    """Yield (ratio of two measured sizes between which the choice changes, the size in bytes where it does)."""
    ends = [each.high for each in ranges(timings)[:-1]]
    for one, two in pairwise(timings):
        end = next((end for end in ends if one.nbytes < end <= two.nbytes), 0)
        if _wide(one, two) and end:
            yield _ratio(one, two), end if end < two.nbytes else _middle(one, two)


def bends(timings: Sequence[Timing], tuning: Tuning) -> Iterator[tuple[float, int]]:
    """Yield (how far a time is from what the sizes around it predict, a size in bytes next to it), where it is far.

    Args:
        timings: as above.
        tuning: has the paths' models.
    """
    measured = Measured(timings)
    for before, here, after in zip(timings, timings[1:], timings[2:], strict=False):
        far = _bent(here, measured, tuning)
        if far > BENT:
            yield from ((far, _middle(*pair)) for pair in ((before, here), (here, after)) if _wide(*pair))


def _bent(timing: Timing, measured: Measured, tuning: Tuning) -> float:
    """Return how far the time of an algorithm that may win is from what the sizes around it predict, at most."""
    most, found = FAR * min(timing.whole.values()), [0.0]
    for choice, seconds in timing.whole.items():
        if choice.algorithm == NATIVE:  # of which no formula predicts anything
            continue
        card = registry.get(timing.collective, choice.algorithm)
        name = timing.collective, timing.memory, timing.gpus, choice.algorithm, choice.path
        curve = measured.curve(name, timing.size)
        if seconds <= most and curve:
            found.append(bend(curve, card, choice.path, tuning.model(choice.path), timing.nbytes))
    return max(found)


def _ratio(one: Timing, two: Timing) -> float:
    return (two.nbytes + 1) / (one.nbytes + 1)


def _wide(one: Timing, two: Timing) -> bool:
    return _ratio(one, two) > NEAR


def _middle(one: Timing, two: Timing) -> int:
    """Return the size between two, by their ratio."""
    return math.isqrt((one.nbytes + 1) * (two.nbytes + 1))
