"""A finding: what one line of a puzzle's table says, for the file of results."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from mpicoll.bench.measure.statistics import Statistics


@dataclass(frozen=True)
class Finding:
    """Figures that were found, by name."""

    found: dict[str, Any]

    def record(self) -> dict[str, Any]:
        """Return it for the file."""
        return self.found


def rounded(one: Statistics, scale: float = 1.0) -> dict[str, float]:
    """Return a summary for the file, in the unit of its samples times `scale`."""
    return {name: value if name == "number" else float(f"{value * scale:.5g}") for name, value in asdict(one).items()}


def plus_minus(one: Statistics, scale: float = 1.0) -> str:
    """Return the median and the spread, in the unit of the samples times `scale`; one sample has no spread."""
    spread = f"±{one.spread * scale:.2f}" if one.number > 1 else "±?"
    return f"{one.median * scale:.2f} {spread}"
