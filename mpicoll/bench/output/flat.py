"""Rows as a table of CSV: a line for each, times and figures in columns of their own with the unit in the head.

A row of `{"op": "bcast", "times": {"mpicoll": {"median": 4.1}}, "figures": {"algbw": {"value": 2, "unit": "GB/s"}}}`
has "bcast" below "op", 4.1 below "mpicoll median (us)" and 2 below "algbw (GB/s)".
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

#: parts of a summary that are no microseconds
NUMBERS = ("outliers", "invalid", "number")


def write_csv(file: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write the table; a column that a row does not have is empty there."""
    lines = [dict(flat(row)) for row in rows]
    names = {name: None for line in lines for name in line}
    with file.open("w", newline="", encoding="utf-8") as out:
        table = csv.DictWriter(out, list(names), lineterminator="\n")
        table.writeheader()
        table.writerows(lines)


def flat(row: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the columns of a row: (name with its unit, value)."""
    for name, value in row.items():
        if name == "times":
            yield from _times(value)
        elif name == "figures":
            yield from _figures(value)
        else:
            yield name, " ".join(map(str, value)) if isinstance(value, list | tuple) else value


def _times(times: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, summary in times.items():
        for part, value in summary.items():
            if part != "samples":
                yield f"{name} {part}" + ("" if part in NUMBERS else " (us)"), value


def _figures(figures: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, figure in figures.items():
        unit = f" ({figure['unit']})" if figure["unit"] else ""
        yield f"{name}{unit}", figure["value"]
        if "spread" in figure:
            yield f"{name} spread{unit}", figure["spread"]
