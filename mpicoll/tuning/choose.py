"""From measured times to rules: few switches, each where one algorithm overtakes another.

Times of ring and linear of 100 and 80 us at 8 B, and of 900 and 1,500 us at 1 MiB, give the rules `0-320:linear` and
`320-inf:ring`: the line between the ratios crosses 1 there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mpicoll.dispatch.measured import Timing
from mpicoll.dispatch.rules import ANY, NATIVE, Choice, Rule
from mpicoll.schedule.topology import FLAT, Topology

#: what a switch of algorithms must save, as a part of the time of one measured size: less is noise
SWITCH = 0.05
#: cost of an algorithm that was not measured at a size, in parts of the fastest one's time
UNKNOWN = 10.0
#: upper bound of a range without one
INF = 1 << 62


@dataclass(frozen=True)
class Range:
    """Message sizes for which an algorithm is chosen.

    Attributes:
        algorithm: what is chosen, its segments left open.
        low: first size in bytes.
        high: first size beyond.
        segments: at each measured size within.
    """

    algorithm: Choice
    low: int
    high: int
    segments: tuple[int, ...]


def by_algorithm(timing: Timing) -> dict[Choice, tuple[float, int]]:
    """Return for each algorithm on a path (seconds of its fastest number of segments, that number)."""
    found: dict[Choice, tuple[float, int]] = {}
    for choice, seconds in timing.times.items():
        algorithm = Choice(choice.algorithm, 0, choice.path or timing.memory)
        if algorithm not in found or seconds < found[algorithm][0]:
            found[algorithm] = seconds, choice.segments
    return found


def ranges(timings: Sequence[Timing]) -> list[Range]:
    """Return what is chosen for all message sizes.

    Args:
        timings: of one collective, number of ranks and memory, by ascending size.
    """
    times = [by_algorithm(timing) for timing in timings]
    chosen = path_of_least_cost(times)
    found, low = list[Range](), 0
    for place, algorithm in enumerate(chosen):
        last = place + 1 == len(chosen)
        if last or chosen[place + 1] != algorithm:
            high = INF if last else crossing(timings[place : place + 2], algorithm, chosen[place + 1])
            within = [one for timing, one in zip(timings, times, strict=True) if low <= timing.nbytes < high]
            found.append(Range(algorithm, low, high, tuple(one[algorithm][1] for one in within if algorithm in one)))
            low = high
    return found


def path_of_least_cost(times: Sequence[Mapping[Choice, tuple[float, int]]]) -> list[Choice]:
    """Return an algorithm for each measured size: the least sum of what each loses and of what switches cost.

    Args:
        times: of each size, as `by_algorithm` returns them.
    """
    algorithms = sorted({algorithm for one in times for algorithm in one}, key=lambda f: (f.path, f.algorithm))
    total = dict.fromkeys(algorithms, 0.0)
    steps: list[dict[Choice, Choice]] = []
    for one in times:
        best = min(seconds for seconds, _ in one.values())
        lost = {f: one[f][0] / best - 1 if f in one else UNKNOWN for f in algorithms}
        nearest = min(algorithms, key=lambda f: total[f])
        before = {f: f if total[f] <= total[nearest] + SWITCH else nearest for f in algorithms}
        total = {f: total[b] + (SWITCH if b != f else 0.0) + lost[f] for f, b in before.items()}
        steps.append(before)
    found = [min(algorithms, key=lambda f: total[f])]
    for before in reversed(steps[1:]):
        found.append(before[found[-1]])
    return found[::-1]


def crossing(timings: Sequence[Timing], before: Choice, after: Choice) -> int:
    """Return the message size between two measured ones from which on another algorithm is faster.

    Args:
        timings: of the smaller and of the larger size.
        before: the faster algorithm at the smaller size.
        after: at the larger size.
    """
    sizes = [math.log2(timing.nbytes + 1) for timing in timings]
    ratios = [_ratio(by_algorithm(timing), before, after) for timing in timings]
    part = 0.5
    if all(map(math.isfinite, ratios)) and ratios[0] < 0 < ratios[1]:
        part = -ratios[0] / (ratios[1] - ratios[0])
    exact = 2 ** (sizes[0] + part * (sizes[1] - sizes[0])) - 1
    return _round(exact, timings[0].nbytes, timings[1].nbytes)


def _ratio(times: Mapping[Choice, tuple[float, int]], before: Choice, after: Choice) -> float:
    if before not in times or after not in times:
        return math.nan
    return math.log(times[before][0] / times[after][0])


def _round(nbytes: float, low: int, high: int) -> int:
    """Return the nearest of 1, 1.25, 1.5 and 1.75 times a power of two above `low`, `high` where none is below it."""
    fit = {part << power for power in range(60) for part in (4, 5, 6, 7) if low < part << power < high} | {high}
    return min(fit, key=lambda one: abs(math.log(one / max(nbytes, 1))))


def rules(timings: Sequence[Timing], topology: Topology = FLAT) -> list[Rule]:
    """Return the rules for one collective, number of ranks and memory.

    Those for MPI's own collective come first, and behind them what is chosen where it does not serve.  On several hosts
    each rule says how many there are, and how many ranks they have.

    Args:
        timings: as in `ranges`.
        topology: where the ranks were.
    """
    counts = [len(group) for group in topology.groups]
    hosts, perhost = ((len(counts), len(counts)), (min(counts), max(counts))) if counts else (ANY, ANY)
    return [replace(rule, hosts=hosts, perhost=perhost) for rule in _native_first(timings)]


def _native_first(timings: Sequence[Timing]) -> list[Rule]:
    """Return the rules without hosts; arguments as in `ranges`."""
    if not any(choice.algorithm == NATIVE for one in timings for choice in one.times):
        return _all_rules(timings)
    ours = [replace(one, times={c: s for c, s in one.times.items() if c.algorithm != NATIVE}) for one in timings]
    native = [rule for rule in _all_rules(timings) if rule.choice.algorithm == NATIVE]
    return [*native, *_all_rules([one for one in ours if one.times])]


def _all_rules(timings: Sequence[Timing]) -> list[Rule]:
    """Return a rule for each range; arguments as in `ranges`."""
    found = []
    for each in ranges(timings):
        one = timings[0]
        path = "" if each.algorithm.path == one.memory else each.algorithm.path
        same = each.segments[0] if len(set(each.segments)) == 1 else 0
        choice, ranks = Choice(each.algorithm.algorithm, same, path), (one.size, one.size)
        found.append(Rule(one.collective, choice, each.low, each.high, ranks, False, one.memory, one.gpus))
    return found
