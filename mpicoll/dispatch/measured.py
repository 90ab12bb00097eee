"""Measured times of a tuning table, found by what they are of."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from mpicoll.dispatch.rules import Choice


@dataclass(frozen=True, eq=False)
class Timing:
    """Times of one message size.

    Attributes:
        collective: what was called.
        nbytes: message size in bytes.
        size: number of ranks.
        memory: "host" or "device".
        gpus: number of GPUs of all ranks, 0 for any.
        times: seconds of each choice.
    """

    collective: str
    nbytes: int
    size: int
    memory: str
    gpus: int
    times: dict[Choice, float]

    @cached_property
    def whole(self) -> dict[Choice, float]:
        """The times, by choices with all that a table may leave out."""
        times = self.times.items()
        return {Choice(c.algorithm, c.segments or 1, c.path or self.memory): seconds for c, seconds in times}

    @property
    def calls(self) -> tuple[str, int, str, int]:
        """The calls of all message sizes among which it is: collective, ranks, memory, GPUs."""
        return self.collective, self.size, self.memory, self.gpus


@dataclass(eq=False)
class Curve:
    """The times of an algorithm on one path and number of ranks, over message sizes.

    Attributes:
        size: number of ranks.
        points: by message size, (segments, seconds) of the fastest number of segments.
    """

    size: int
    points: dict[int, tuple[int, float]] = field(default_factory=dict)

    def add(self, nbytes: int, segments: int, seconds: float) -> None:
        """Enter a time; of several numbers of segments the fastest stays."""
        if nbytes not in self.points or seconds < self.points[nbytes][1]:
            self.points[nbytes] = segments, seconds

    def segments(self, nbytes: int) -> int:
        """Return the number of segments of the nearest measured size."""
        nearest = min(self.points, key=lambda n: abs(math.log2(n + 1) - math.log2(nbytes + 1)))
        return self.points[nearest][0]


#: a curve's name: collective, memory, number of GPUs, algorithm, path
Name = tuple[str, str, int, str, str]


class Measured:
    """Curves of a table.

    Args:
        timings: what was measured.
    """

    def __init__(self, timings: Iterable[Timing]) -> None:
        self._curves: dict[Name, dict[int, Curve]] = {}
        self._cells: dict[tuple[str, str, int, int, int], Timing] = {}
        for timing in timings:
            self._cells[timing.collective, timing.memory, timing.gpus, timing.size, timing.nbytes] = timing
            for choice, seconds in timing.whole.items():
                name = timing.collective, timing.memory, timing.gpus, choice.algorithm, choice.path
                curve = self._curves.setdefault(name, {}).setdefault(timing.size, Curve(timing.size))
                curve.add(timing.nbytes, choice.segments, seconds)

    def curve(self, name: Name, size: int) -> Curve | None:
        """Return an algorithm's curve on the nearest number of ranks, by their ratio, None if it has none."""
        sizes = self._curves.get(name)
        if not sizes:
            return None
        return sizes[min(sizes, key=lambda p: (abs(math.log(p / size)), -p))]

    def timing(self, collective: str, memory: str, gpus: int, size: int, nbytes: int) -> Timing | None:
        """Return the times of just this size, None if it was not measured.

        Args:
            collective: what is called.
            memory: "host" or "device".
            gpus: as in `Timing`.
            size: number of ranks.
            nbytes: message size in bytes.
        """
        return self._cells.get((collective, memory, gpus, size, nbytes))
