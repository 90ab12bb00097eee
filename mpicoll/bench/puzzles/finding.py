"""A finding: what one line of a puzzle's table says, for the file of results."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mpicoll.bench.measure.statistics import Statistics
from mpicoll.bench.output.rows import Record, quantity, summary


@dataclass(frozen=True)
class Finding:
    """A measurement of a thing that is no collective call.

    Attributes:
        op: name of what was measured.
        about: what else names it: its pair, its bytes, its link.
        times: by name, in seconds.
        figures: by name, what `quantity` returns.
    """

    op: str
    about: dict[str, Any]
    times: dict[str, Statistics] = field(default_factory=dict)
    figures: dict[str, Record] = field(default_factory=dict)

    def record(self) -> Record:
        """Return it for the file."""
        times = {name: summary(one) for name, one in self.times.items()}
        return {"op": self.op, **self.about, "times": times, "figures": self.figures, "wrong": None}


def measured(one: Statistics, unit: str) -> Record:
    """Return a figure with its spread for the file; samples that are the figures themselves are not below noise."""
    return quantity(one.median, unit) | {"spread": quantity(one.spread, unit)["value"]}


def plus_minus(one: Statistics, scale: float = 1.0) -> str:
    """Return the median and the spread, in the unit of the samples times `scale`; one sample has no spread."""
    spread = f"±{one.spread * scale:.2f}" if one.number > 1 else "±?"
    return f"{one.median * scale:.2f} {spread}"
