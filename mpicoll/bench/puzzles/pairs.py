"""Times of all pairs of ranks: each alone, and all at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations, permutations
from statistics import median
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from mpicoll.bench.measure.clock import Clock, rest
from mpicoll.bench.measure.statistics import Statistics
from mpicoll.bench.puzzles.chains import Chains, Pair

#: pairs whose messages travel at the same time
Together = tuple[Pair, ...]

#: round trips for one latency
ROUNDS = 20


def alone(size: int) -> list[Together]:
    """Return each pair by itself."""
    return [(pair,) for pair in permutations(range(size), 2)]


def both_ways(size: int) -> list[Together]:
    """Return each pair with its opposite."""
    return [((a, b), (b, a)) for a, b in combinations(range(size), 2)]


def all_one_way(size: int) -> list[Together]:
    """Return all pairs in one direction, then all in the other one."""
    up = tuple(combinations(range(size), 2))
    return [up, tuple((b, a) for a, b in up)]


def all_both_ways(size: int) -> list[Together]:
    """Return all pairs in both directions."""
    return [tuple(permutations(range(size), 2))]


#: what the table of pairs has, and what travels at the same time; two ranks are alone, however they are counted
KINDS: dict[str, Callable[[int], list[Together]]] = {
    "alone": alone,
    "both directions": both_ways,
    "all at once": all_one_way,
    "all at once, both directions": all_both_ways,
}


def kinds(size: int) -> dict[str, list[Together]]:
    """Return what is measured on so many ranks."""
    found = {name: make(size) for name, make in KINDS.items()}
    return found if size > 2 else {name: found[name] for name in ("alone", "both directions")}


class Rounds:
    """Takes times in rounds, so that what changes meanwhile changes for all; ranks that have nothing to do rest.

    Args:
        world: all ranks.
        clock: lets them start together.
        warmup: rounds that are not timed.
        number: rounds that are.
    """

    def __init__(self, world: MPI.Intracomm, clock: Clock, warmup: int, number: int) -> None:
        self.world, self.clock, self.warmup, self.number = world, clock, warmup, number

    def take(self, parts: Mapping[Any, tuple[Iterable[Pair], Callable[[], Mapping[Pair, float]]]]) -> Times:
        """Return the times by part and pair, the same on all ranks; collective.

        Args:
            parts: pairs whose ranks take part, and what those ranks do: it returns seconds of some of the pairs.
        """
        mine: Times = defaultdict(list)
        for number in range(self.warmup + self.number):
            for name, (pairs, call) in parts.items():
                self.clock.barrier()
                found = call() if any(self.world.rank in pair for pair in pairs) else {}
                rest(self.world)
                for pair, seconds in found.items() if number >= self.warmup else ():
                    mine[name, pair].append(seconds)
        return {key: seconds for found in self.world.allgather(dict(mine)) for key, seconds in found.items()}


#: (part, pair) -> seconds of each round
Times = dict[tuple[Any, Pair], list[float]]


def flow(chains: Chains, together: Sequence[Pair], repeat: int = 1) -> dict[Pair, float]:
    """Return the seconds of each chain that ends on this rank, from the common start."""
    spans = chains.run(together, repeat)
    return {pair: found[-1][1] - found[0][0] for pair, found in spans.items() if pair[1] == chains.rank}


Figures = dict[str, dict[Pair, Statistics]]


def bandwidths(rounds: Rounds, chains: Chains) -> tuple[Figures, dict[str, float]]:
    """Return (by kind and pair the bandwidth, by kind that of all pairs together), in GB/s; collective."""
    parts = {
        (name, number): (together, lambda pairs=together: flow(chains, pairs))
        for name, sets in kinds(rounds.world.size).items()
        for number, together in enumerate(sets)
    }
    figures: Figures = defaultdict(dict)
    slowest: dict[Any, NDArray[np.float64]] = {}
    for (part, pair), taken in rounds.take(parts).items():
        seconds = np.array(taken)
        figures[part[0]][pair] = Statistics.of(chains.nbytes / seconds / 1e9)
        slowest[part] = np.maximum(seconds, slowest.get(part, seconds))
    totals: dict[str, list[float]] = defaultdict(list)
    for part, seconds in slowest.items():
        totals[part[0]] += list(len(parts[part][0]) * chains.nbytes / seconds / 1e9)
    return {name: figures[name] for name in kinds(rounds.world.size)}, {n: median(t) for n, t in totals.items()}


def latencies(rounds: Rounds, chains: Chains) -> dict[Pair, Statistics]:
    """Return the microseconds of a message of each pair, alone; collective."""
    parts = {pair: ((pair,), lambda pair=pair: pinged(chains, pair, ROUNDS)) for (pair,) in alone(rounds.world.size)}
    return {pair: Statistics.of(_micro(seconds)) for (_, pair), seconds in rounds.take(parts).items()}


def pinged(chains: Chains, pair: Pair, rounds: int) -> dict[Pair, float]:
    """Return the seconds of one message of a pair, on its source."""
    seconds = chains.ping(pair, rounds)
    return {pair: seconds} if pair[0] == chains.rank else {}


def _micro(seconds: list[float]) -> NDArray[np.float64]:
    return np.array(seconds) * 1e6
