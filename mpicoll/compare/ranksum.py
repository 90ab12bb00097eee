"""The rank-sum test of Wilcoxon, Mann and Whitney, and a correction for many tests.

SciPy has the test, too, but only the tests of mpicoll and its campaigns need SciPy: here are 15 lines instead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def rank_sum(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Return the probability that two sets of equal distribution differ in their ranks as much as these.

    It is two-sided, by the normal approximation with correction for ties and continuity; 1.0 for sets without a
    difference.
    """
    n, m = one.size, other.size
    _, place, counts = np.unique(np.concatenate([one, other]), return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]  # equal ones share their mean rank
    total = n + m
    ties = float((counts.astype(float) ** 3 - counts).sum()) / (total * (total - 1)) if total > 1 else 0.0
    variance = n * m / 12 * (total + 1 - ties)
    if variance <= 0:
        return 1.0
    away = max(abs(float(ranks[:n].sum()) - n * (total + 1) / 2) - 0.5, 0.0)
    return math.erfc(away / math.sqrt(2 * variance))


def adjusted(chances: Sequence[float]) -> list[float]:
    """Return chances for many tests by Benjamini and Hochberg: below 0.01, one in a hundred of those found is wrong."""
    order = sorted(range(len(chances)), key=lambda at: chances[at], reverse=True)
    found, least = [1.0] * len(chances), 1.0
    for number, at in zip(range(len(chances), 0, -1), order, strict=True):
        least = min(least, chances[at] * len(chances) / number)
        found[at] = least
    return found
