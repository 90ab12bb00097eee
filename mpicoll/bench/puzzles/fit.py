"""The time of a message as latency + size / bandwidth, fitted to measured times.

Times of 5.1 us for 8 B and 1,005 us for 10 MB give a latency of 5.1 us and 10 GB/s; half the bandwidth is reached at
51 KB, where a message takes twice its latency.  Times of long messages alone may not show the latency: then all of a
time is that of the bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Fit:
    """The two parameters, and how well they fit.

    Attributes:
        latency: seconds of a message without its bytes; 0 where the sizes do not show it.
        bandwidth: bytes a second.
        error: root of the mean square of the relative errors.
        worst: the largest relative error.
        at: the size at which it is.
    """

    latency: float
    bandwidth: float
    error: float
    worst: float
    at: int

    def seconds(self, nbytes: int) -> float:
        """Return the time of a message of a size."""
        return self.latency + nbytes / self.bandwidth

    @property
    def half(self) -> float:
        """The size in bytes at which half the bandwidth is reached: its bytes take as long as the latency."""
        return self.latency * self.bandwidth


def fit(times: Mapping[int, float]) -> Fit:
    """Return the fit with the least squares of relative errors; raise ValueError where the times do not determine one.

    Args:
        times: by size in bytes, seconds.
    """
    sizes, seconds = np.array(list(times), float), np.array(list(times.values()))
    if sizes.size < 2:
        raise ValueError("a fit needs two sizes")
    paces = sizes / seconds
    latency, each = map(float, np.linalg.lstsq(np.array([1 / seconds, paces]).T, np.ones(sizes.size))[0])
    if each <= 0:
        raise ValueError("times do not grow with the size: the sizes are too small, or the times too noisy")
    if latency < 0:  # no message takes that: the line through 0 instead
        latency, each = 0.0, float(paces.sum() / (paces**2).sum())
    errors = (latency + sizes * each) / seconds - 1
    worst = int(np.argmax(abs(errors)))
    return Fit(latency, 1 / each, float(np.sqrt(np.mean(errors**2))), float(errors[worst]), int(sizes[worst]))


def reached_half(times: Mapping[int, float]) -> int | None:
    """Return the first measured size that has half of the largest measured bandwidth; None for no times."""
    speeds = {size: size / seconds for size, seconds in sorted(times.items())}
    most = max(speeds.values(), default=0.0)
    return next((size for size, speed in speeds.items() if speed >= most / 2), None)
