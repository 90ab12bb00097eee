"""Three ways to all-reduce, side by side: directly, reduce and bcast, reduce_scatter and allgather.

Each part of a way is made by the algorithm that the cost model finds best.  A way of two calls also pays twice
what every call costs.  On 4 ranks of the path host, vectors of 8 KiB take 20.2 us directly (one_shot), 34.3 us by
reduce + bcast (linear, binomial), and 22.1 us by reduce_scatter + allgather (all_pairs, linear).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

from mpicoll.algorithms import registry
from mpicoll.analysis.cost import CostModel
from mpicoll.analysis.proof import doubt
from mpicoll.analysis.segments import pieces
from mpicoll.analysis.terms import ruling, terms
from mpicoll.errors import UnsupportedError

#: each way's collectives, one after the other
WAYS = (("allreduce",), ("reduce", "bcast"), ("reduce_scatter", "allgather"))
#: times are equal if they differ by no more than this fraction: sums of floats do
_ERROR = 1e-9


@dataclass(frozen=True)
class Leg:
    """One call of a way, by the algorithm that takes the least time.

    Attributes:
        collective: what is called.
        algorithm: its name.
        segments: pieces of a block.
        terms: symbol -> seconds, as in `analysis.terms`.
    """

    collective: str
    algorithm: str
    segments: int
    terms: dict[str, float]

    @property
    def seconds(self) -> float:
        """The predicted time."""
        return sum(self.terms.values())

    def __str__(self) -> str:
        return f"{self.collective} {self.algorithm}" + (f"/{self.segments}" if self.segments > 1 else "")


@dataclass(frozen=True)
class Way:
    """A way to all-reduce vectors of one size: its legs, one after the other."""

    nbytes: int
    legs: tuple[Leg, ...]

    @property
    def name(self) -> str:
        """The collectives, such as "reduce + bcast"."""
        return " + ".join(leg.collective for leg in self.legs)

    @property
    def seconds(self) -> float:
        """The predicted time."""
        return sum(leg.seconds for leg in self.legs)

    @property
    def terms(self) -> dict[str, float]:
        """Symbol -> seconds of all legs together."""
        return {symbol: sum(leg.terms[symbol] for leg in self.legs) for symbol in self.legs[0].terms}

    @property
    def ruling(self) -> tuple[str, float]:
        """The symbol of the largest term, and its fraction."""
        return ruling(self.terms)


@dataclass(frozen=True)
class Crossover:
    """A size from which on another one of two ways is faster.

    Attributes:
        below: the way that is faster for one byte less.
        above: the other way, which is faster from its number of bytes on.
    """

    below: Way
    above: Way

    @property
    def nbytes(self) -> int:
        """The smallest size at which `above` is faster."""
        return self.above.nbytes


@dataclass(frozen=True)
class Comparison:
    """All ways for some sizes, on some ranks, and where one overtakes another.

    Attributes:
        p: number of ranks.
        rows: for each size the ways, in the order of `WAYS`.
        crossovers: by size.
    """

    p: int
    rows: tuple[tuple[Way, ...], ...]
    crossovers: tuple[Crossover, ...]


def compare(
    p: int, sizes: Iterable[int], model: CostModel, smallest_segment: int = 0, wave: int = 1 << 62
) -> Comparison:
    """Return the ways for all sizes, and the crossovers between neighbouring sizes.

    A crossover is found by bisection; where two ways cross several times between two sizes, one is found.

    Args:
        p: number of ranks, 2 or more.
        sizes: bytes of the vector.
        model: the machine.
        smallest_segment: as in `dispatch.paths`.
        wave: as in `dispatch.paths`.

    Raises:
        UnsupportedError: no algorithm serves so many ranks.
    """

    def way(which: int, nbytes: int) -> Way:
        return Way(nbytes, tuple(best_leg(name, p, nbytes, model, smallest_segment, wave) for name in WAYS[which]))

    if p < 2:
        raise ValueError(f"{p} rank has nothing to all-reduce; ways are compared on 2 or more")
    rows = tuple(tuple(way(which, nbytes) for which in range(len(WAYS))) for nbytes in sorted(set(sizes)))
    found = [
        _crossover(way, pair, low[0].nbytes, high[0].nbytes)
        for low, high in pairwise(rows)
        for pair in combinations(range(len(WAYS)), 2)
        if fastest([low[which] for which in pair]) != fastest([high[which] for which in pair])
    ]
    return Comparison(p, rows, tuple(sorted(found, key=lambda one: one.nbytes)))


def best_leg(collective: str, p: int, nbytes: int, model: CostModel, smallest_segment: int, wave: int) -> Leg:
    """Return a collective's leg by the algorithm that takes the least time; arguments as in `compare`."""
    found = []
    for card in registry.known(collective):
        if card.by_hosts or not card.cost or card.refuses(p) or doubt(card, p, 0):
            continue
        cut = pieces(card, model, p, nbytes, smallest_segment, wave)
        found.append((model.seconds(card.cost, p, nbytes, cut), cut, card))
    if not found:
        raise UnsupportedError(f"{collective}: no algorithm with a cost serves {p} ranks")
    _, cut, card = min(found, key=lambda one: one[0])
    return Leg(collective, card.name, cut, terms(card.cost, model, p, nbytes, cut))


def fastest(ways: Sequence[Way]) -> int:
    """Return the index of the fastest way; of equal ones the first."""
    least = min(way.seconds for way in ways)
    return next(which for which, way in enumerate(ways) if way.seconds <= least * (1 + _ERROR))


def _crossover(way: Callable[[int, int], Way], pair: tuple[int, int], low: int, high: int) -> Crossover:
    """Return where the faster one of two ways changes.

    Args:
        way: returns a way for a number of bytes.
        pair: the two ways.
        low: bytes at which one is faster.
        high: bytes at which the other one is.
    """

    def faster(nbytes: int) -> int:
        return fastest([way(which, nbytes) for which in pair])

    first = faster(low)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if faster(middle) == first else (low, middle)
    return Crossover(way(pair[first], low), way(pair[1 - first], high))
