"""Matrices of the report: a number for each pair of ranks, from rows of the puzzle `topology`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mpicoll.pictures.units import size_text

#: what is measured of a pair alone or beside others; all else is of streams from one source
FIGURES = ("latency", "bandwidth")


def matrices(rows: Iterable[dict[str, Any]]) -> list[tuple[str, str, dict[tuple[int, int], float]]]:
    """Return (title, unit, value by pair) of each thing that was measured of all pairs."""
    found: dict[tuple[str, str], dict[tuple[int, int], float]] = {}
    for row in rows:
        name = next((name for name in FIGURES if name in row.get("figures", {})), "")
        if row.get("mode") != "topology" or "repeat" in row or not name:
            continue
        figure, (source, target) = row["figures"][name], row["pair"]
        what = name if name == row["op"] else f"{name}, {row['op']}"
        title = f"{what}, {size_text(row['bytes'])}"
        if figure["value"] is not None:
            found.setdefault((title, figure["unit"]), {})[source, target] = figure["value"]
    return [(title, unit, values) for (title, unit), values in found.items()]
