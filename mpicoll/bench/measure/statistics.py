"""Statistics of a call's times, and noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import geometric_mean

import numpy as np
from numpy.typing import NDArray

#: probability with which the median of all calls lies within the interval of the median
CONFIDENCE = 0.95
#: samples from which the median's interval has that confidence
FEWEST = 6
#: distances of the quartiles beyond the quartiles from which a sample is an outlier (Tukey's fences)
FENCE = 3.0


@dataclass(frozen=True)
class Statistics:
    """A summary of times, in the unit of the samples.

    Attributes:
        median: half of the samples are below it.
        spread: half the distance of the quartiles.
        low: lower end of the median's interval of 95 % confidence; of no distribution, by ranks of samples.
        high: upper end of it.
        least: the shortest.
        mean: the mean.
        p99: 99 % of the samples are below it.
        outliers: samples beyond Tukey's outer fences; they are counted and kept.
        number: of valid samples.
        most: the longest.
        invalid: samples that are infinite, since a rank came late; they count for nothing else.
    """

    median: float
    spread: float
    low: float
    high: float
    least: float
    mean: float
    p99: float
    outliers: int
    number: int
    most: float = math.nan
    invalid: int = 0

    @classmethod
    def of(cls, taken: NDArray[np.float64]) -> Statistics:
        """Summarise."""
        samples = taken[np.isfinite(taken)]
        first, median, third, p99 = map(float, np.percentile(samples, (25, 50, 75, 99)))
        ordered, place = np.sort(samples), interval(samples.size)
        low, high = float(ordered[place]), float(ordered[samples.size - 1 - place])
        fence = FENCE * (third - first)
        outliers = int(((samples < first - fence) | (samples > third + fence)).sum())
        least, mean, most = float(ordered[0]), float(samples.mean()), float(ordered[-1])
        spread, invalid = (third - first) / 2, taken.size - samples.size
        return cls(median, spread, low, high, least, mean, p99, outliers, samples.size, most, invalid)

    @classmethod
    def of_visits(cls, visits: Sequence[Statistics]) -> Statistics:
        """Summarise times that were taken in several visits, far apart: the median is the geometric mean of theirs.

        Visits count alike however many samples they have, for a machine's state lasts for seconds to minutes.
        """
        if len(visits) == 1:
            return visits[0]
        median = geometric_mean([one.median for one in visits])
        width = math.hypot(*(math.log(one.high / one.low) / 2 for one in visits)) / len(visits)
        return cls(
            median=median,
            spread=float(np.mean([one.spread for one in visits])),
            low=median * math.exp(-width),
            high=median * math.exp(width),
            least=min(one.least for one in visits),
            mean=float(np.mean([one.mean for one in visits])),
            p99=max(one.p99 for one in visits),
            outliers=sum(one.outliers for one in visits),
            number=sum(one.number for one in visits),
            most=max(one.most for one in visits),
            invalid=sum(one.invalid for one in visits),
        )

    @property
    def half_width(self) -> float:
        """The farther end of the median's interval, from the median and as a part of it; inf for too few samples."""
        if self.number < FEWEST or self.median <= 0:
            return math.inf
        return max(self.high - self.median, self.median - self.low) / self.median


@lru_cache(maxsize=4096)
def interval(number: int) -> int:
    """Return the place of the lower end of the median's interval among sorted samples, and of the upper from the end.

    Of 11 samples the interval is from the second to the tenth.  Of fewer than 6 it is all of them, which is too narrow
    for 95 % of confidence.

    Args:
        number: of samples.
    """
    least = (1 - CONFIDENCE) / 2
    below = chance = 0.5**number if number < 1000 else 0.0
    if number >= 1000:  # the normal distribution's
        return math.floor((number - 1.96 * math.sqrt(number)) / 2) - 1
    place = 0
    while below <= least:
        chance *= (number - place) / (place + 1)
        below += chance
        place += 1
    return max(place - 1, 0)


def noise(*parts: Statistics) -> float:
    """Return the spread of a sum or difference of medians."""
    return math.hypot(*(part.spread for part in parts))


def cost(value: float, spread: float) -> tuple[float, float]:
    """Return (value, spread) of what cannot be below zero: how far it is below tells that the spread is not less."""
    return max(value, 0.0), max(spread, -value)


def figure(value: float, spread: float) -> str:
    """Return a figure with its spread; one that is not above it is no figure."""
    return f"{value:.2f} ±{spread:.2f}" if abs(value) > spread else f"below noise ±{spread:.2f}"
