"""Statistics of a call's times, and noise."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Statistics:
    """A summary of times, in the unit of the samples; the spread is half the distance of the quartiles."""

    median: float
    spread: float
    least: float
    mean: float
    p99: float
    number: int

    @classmethod
    def of(cls, samples: NDArray[np.float64]) -> Statistics:
        """Summarise."""
        low, median, high, p99 = map(float, np.percentile(samples, (25, 50, 75, 99)))
        return cls(median, (high - low) / 2, float(samples.min()), float(samples.mean()), p99, samples.size)


def noise(*parts: Statistics) -> float:
    """Return the spread of a sum or difference of medians."""
    return math.hypot(*(part.spread for part in parts))


def figure(value: float, spread: float) -> str:
    """Return a figure with its spread; one that is not above it is no figure."""
    return f"{value:.2f} ±{spread:.2f}" if abs(value) > spread else f"below noise ±{spread:.2f}"
