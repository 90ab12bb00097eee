"""How much slower mpicoll's choices are than the fastest ones: files of `mpicoll.bench --regret`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np

from performance.runs import Record, Run, listed
from tables import markdown

#: goals of the project, and the half-width from which on a cell is uncertain: as in mpicoll/bench/tables/regret.py
GOALS, UNCERTAIN = (3.0, 10.0, 25.0), 5.0
#: beginnings of a row's reason, and who chose
WHO = (
    (r"tuning table \(?packaged\)? ?([\w-]*).*", r"the packaged table \1"),
    (r"tuning table .*", "the user's table"),
    (r"cost model.*", "the cost model"),
)


@dataclass(frozen=True)
class Cells:
    """The cells of a run."""

    rows: list[Record]

    def values(self, name: str) -> list[float]:
        """Return a figure of all cells that have it, in percent."""
        found = (row["figures"].get(name, {}).get("value") for row in self.rows)
        return [value for value in found if value is not None]

    @cached_property
    def regret(self) -> tuple[float, float, float]:
        """(mean, what 95 % of the cells are below, worst) in percent."""
        return summed_up(self.values("regret"))

    @cached_property
    def without_ties(self) -> tuple[float, float, float]:
        """The same where overlapping intervals count as 0."""
        return summed_up(self.values("regret, ties as 0"))

    @property
    def worst(self) -> str:
        """The cell with the most regret."""
        return _called(max(self.rows, key=lambda row: row["figures"]["regret"]["value"]))

    @property
    def uncertain(self) -> list[Record]:
        """Cells whose ratio is known less well."""
        widths = [row["figures"]["half-width"]["value"] for row in self.rows]
        return [row for row, width in zip(self.rows, widths, strict=True) if width is None or width > UNCERTAIN]

    @cached_property
    def errors(self) -> list[float]:
        """Errors of all predicted times, in percent."""
        named = (name for row in self.rows for name in row["figures"] if name.startswith("error "))
        return list(chain.from_iterable(self.values(name) for name in dict.fromkeys(named)))

    @property
    def tuned_with(self) -> str:
        """The name of who chose, with the number of cells where it is not the same for all."""
        found = Counter(_who(row.get("reason", "")) for row in self.rows)
        parts = (f"{who} ({number} cells)" if len(found) > 1 else who for who, number in found.most_common())
        return ", ".join(parts)


def summed_up(values: list[float]) -> tuple[float, float, float]:
    """Return (mean, what 95 % of the values are below, the greatest)."""
    return float(np.mean(values)), float(np.percentile(values, 95)), max(values)


def _who(reason: str) -> str:
    """Return who chose, without the place of a file."""
    found = next((re.sub(pattern, who, reason) for pattern, who in WHO if re.fullmatch(pattern, reason)), reason)
    return found.strip()


def _called(row: Record) -> str:
    return f"{row['op']} of {row['bytes']} B on {row['ranks']} ranks"


def claimed(run: Run) -> dict[str, Any] | None:
    """Return the figures of a sentence; None for a file without cells."""
    found = Cells(run.rows)
    if not found.rows:
        return None
    mean, most, worst = found.regret
    figures = {"mean": mean, "most": most, "worst": worst, "which": found.worst, "cells": len(found.rows)}
    return figures | {"tuned": found.tuned_with, "uncertain": len(found.uncertain)}


def predicted(run: Run) -> dict[str, Any] | None:
    """Return the errors of predicted times for a sentence; None where there are none."""
    errors = Cells(run.rows).errors
    return {"times": len(errors), **_quantiles(errors)} if errors else None


def _quantiles(errors: list[float]) -> dict[str, float]:
    half, most = np.percentile(errors, [50, 95])
    return {"half": float(half), "most": float(most)}


def table(runs: Iterable[Run]) -> str:
    """Return a table of runs, and below it their uncertain cells and commands; "" for none."""
    known = [(run, Cells(run.rows)) for run in runs if run.rows]
    if not known:
        return ""
    head = ["machine", "MPI", "memory", "ranks", "tuned with", "cells", "mean", "95 %", "worst"]
    head += ["mean, ties 0", "95 %", "worst", "uncertain", "predicted times", "off, half", "95 %"]
    goals = ", ".join(f"{goal:g}" for goal in GOALS)
    note = f"Regret in %: 100 (t(chosen) / t(fastest) - 1); goals {goals}, italics where one is not reached."
    notes = [f"- {_note(run, found)}" for run, found in known]
    return "\n\n".join([note, markdown(head, [_line(*one) for one in known]), "\n".join(notes)])


def _line(run: Run, found: Cells) -> list[str]:
    memory = " and ".join(sorted({row["memory"] for row in found.rows}))
    errors = _quantiles(found.errors) if found.errors else {}
    return [
        *(run.machine, run.mpi, memory, listed(run.ranks), found.tuned_with, str(len(found.rows))),
        *map(_goal, found.regret, GOALS),
        *map(_goal, found.without_ties, GOALS),
        f"{len(found.uncertain)} ({100 * len(found.uncertain) / len(found.rows):.0f} %)",
        str(len(found.errors)),
        *(f"{errors[name]:.1f}" if errors else "-" for name in ("half", "most")),
    ]


def _goal(value: float, goal: float) -> str:
    text = f"{value:.2f}"
    return f"*{text}*" if float(text) > goal else text


def _note(run: Run, found: Cells) -> str:
    doubtful = (
        f"{row['op']} {row['bytes']} B on {row['ranks']} ranks (±{row['figures']['half-width']['value']:.1f} %)"
        for row in found.uncertain
    )
    listing = ", ".join(doubtful)
    return run.about + (f" Uncertain: {listing}." if listing else "")
