"""From measured times to rules: few switches, each where one algorithm overtakes another.

Times of ring and linear of 100 and 80 us at 8 B, and of 900 and 1,500 us at 1 MiB, give the rules `0-96K:linear` and
`96K-inf:ring`: the line between the ratios crosses 1 there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mpicoll.dispatch.measured import Cell
from mpicoll.dispatch.rules import Choice, Rule

#: what a switch of algorithms must save, as a part of the time of one measured size: less is noise
SWITCH = 0.03
#: cost of an algorithm that was not measured at a size, in parts of the fastest one's time
UNKNOWN = 10.0
#: upper bound of a range without one
INF = 1 << 62


@dataclass(frozen=True)
class Family:
    """An algorithm on a path, whatever its segments."""

    algorithm: str
    path: str


@dataclass(frozen=True)
class Span:
    """Message sizes for which a family is chosen.

    Attributes:
        family: what is chosen.
        low: first size in bytes.
        high: first size beyond.
        segments: at each measured size within.
    """

    family: Family
    low: int
    high: int
    segments: tuple[int, ...]


def by_family(cell: Cell) -> dict[Family, tuple[float, int]]:
    """Return for each family (seconds of its fastest number of segments, that number)."""
    found: dict[Family, tuple[float, int]] = {}
    for choice, seconds in cell.times.items():
        family = Family(choice.algorithm, choice.path or cell.memory)
        if family not in found or seconds < found[family][0]:
            found[family] = seconds, choice.segments
    return found


def spans(cells: Sequence[Cell]) -> list[Span]:
    """Return what is chosen for all message sizes.

    Args:
        cells: of one collective, number of ranks and memory, by ascending size.
    """
    times = [by_family(cell) for cell in cells]
    chosen = path_of_least_cost(times)
    found, low = list[Span](), 0
    for place, family in enumerate(chosen):
        last = place + 1 == len(chosen)
        if last or chosen[place + 1] != family:
            high = INF if last else crossing(cells[place : place + 2], family, chosen[place + 1])
            within = [one for cell, one in zip(cells, times, strict=True) if low <= cell.nbytes < high]
            found.append(Span(family, low, high, tuple(one[family][1] for one in within if family in one)))
            low = high
    return found


def path_of_least_cost(times: Sequence[Mapping[Family, tuple[float, int]]]) -> list[Family]:
    """Return a family for each measured size: the least sum of what each loses and of what switches cost.

    Args:
        times: of each size, as `by_family` returns them.
    """
    families = sorted({family for one in times for family in one}, key=lambda f: (f.path, f.algorithm))
    total = dict.fromkeys(families, 0.0)
    steps: list[dict[Family, Family]] = []
    for one in times:
        best = min(seconds for seconds, _ in one.values())
        lost = {f: one[f][0] / best - 1 if f in one else UNKNOWN for f in families}
        nearest = min(families, key=lambda f: total[f])
        before = {f: f if total[f] <= total[nearest] + SWITCH else nearest for f in families}
        total = {f: total[b] + (SWITCH if b != f else 0.0) + lost[f] for f, b in before.items()}
        steps.append(before)
    found = [min(families, key=lambda f: total[f])]
    for before in reversed(steps[1:]):
        found.append(before[found[-1]])
    return found[::-1]


def crossing(cells: Sequence[Cell], before: Family, after: Family) -> int:
    """Return the message size between two measured ones from which on another family is faster.

    Args:
        cells: of the smaller and of the larger size.
        before: the faster family at the smaller size.
        after: at the larger size.
    """
    sizes = [math.log2(cell.nbytes + 1) for cell in cells]
    ratios = [_ratio(by_family(cell), before, after) for cell in cells]
    part = 0.5
    if all(map(math.isfinite, ratios)) and ratios[0] < 0 < ratios[1]:
        part = -ratios[0] / (ratios[1] - ratios[0])
    exact = 2 ** (sizes[0] + part * (sizes[1] - sizes[0])) - 1
    return min(max(_round(exact), cells[0].nbytes + 1), cells[1].nbytes)


def _ratio(times: Mapping[Family, tuple[float, int]], before: Family, after: Family) -> float:
    if before not in times or after not in times:
        return math.nan
    return math.log(times[before][0] / times[after][0])


def _round(nbytes: float) -> int:
    """Return the nearest of 1, 1.25, 1.5 and 1.75 times a power of two, in logarithms."""
    power = 2 ** math.floor(math.log2(max(nbytes, 8)))
    return int(min((power * part for part in (1, 1.25, 1.5, 1.75, 2)), key=lambda n: abs(math.log(n / max(nbytes, 8)))))


def rules(cells: Sequence[Cell]) -> list[Rule]:
    """Return the rules for one collective, number of ranks and memory; arguments as in `spans`."""
    one, found = cells[0], []
    for span in spans(cells):
        path = "" if span.family.path == one.memory else span.family.path
        same = span.segments[0] if len(set(span.segments)) == 1 else 0
        choice, ranks = Choice(span.family.algorithm, same, path), (one.size, one.size)
        found.append(Rule(one.collective, choice, span.low, span.high, ranks, False, one.memory, one.gpus))
    return found
