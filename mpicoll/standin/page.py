"""The report on stand-ins' calls, as a table and as JSON."""

from __future__ import annotations

import io
import json
from collections import Counter

from mpicoll.standin.tally import Counts

#: columns that stand to the right
NUMBERS = ("calls", "bytes", "time (s)")


def as_text(counts: Counts, reported: int, size: int) -> str:
    """Return the report as lines.

    Args:
        counts: of all ranks that reported.
        reported: how many these are.
        size: number of ranks.
    """
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("", "call", *NUMBERS, "by what, or why"):
        table.add_column(name, justify="right" if name in NUMBERS else "left", no_wrap=True)
    for (kind, method, text), (calls, nbytes, seconds) in counts.items():
        table.add_row(kind, method, str(calls), str(nbytes) if kind == "served" else "", f"{seconds:.4f}", text)
    console = Console(file=io.StringIO(), width=1000, color_system=None, markup=False, highlight=False, emoji=False)
    with console.capture() as captured:
        console.print(table)
    lines = [line.rstrip() for line in captured.get().splitlines()] if counts else []
    return "\n".join((summary(counts, reported, size), *lines, ""))


def summary(counts: Counts, reported: int, size: int) -> str:
    """Return the first line; arguments as in `as_text`."""
    sums: Counter[str] = Counter()
    for (kind, _, _), (calls, _, _) in counts.items():
        sums[kind] += calls
    said = f"{sums['served']} calls served, {sums['passed']} passed to mpi4py, {sums['raised']} raised"
    lacking = "" if reported == size else "; the others did not come in time"
    return f"mpicoll: {said}; {reported} of {size} ranks reported{lacking}"


def as_json(counts: Counts, reported: int, size: int) -> str:
    """Return the report as JSON; arguments as in `as_text`."""
    names = ("what", "call", "why", "calls", "bytes", "seconds")
    rows = [dict(zip(names, (*key, *row), strict=True)) for key, row in counts.items()]
    for row in rows:
        if row["what"] == "served":
            row["algorithm"] = row.pop("why")
    return json.dumps({"ranks": size, "reported": reported, "calls": rows}, indent=1) + "\n"
