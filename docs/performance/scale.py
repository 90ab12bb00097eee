"""Tables and figures of calls on very many hosts, from runs of bench/at_scale.py."""

from __future__ import annotations

from typing import Any

from mpicoll.pictures.units import size_text
from performance.runs import Record, Run
from tables import markdown

#: the algorithms in two levels; the others are flat
TWO_LEVELS = "striped", "leader"
#: a message size, the placement of ranks, and an algorithm
Curve = tuple[int, str, str]


def curves(run: Run) -> dict[Curve, dict[int, Record]]:
    """Return the rows of each curve by number of ranks."""
    found: dict[Curve, dict[int, Record]] = {}
    for row in run.rows:
        found.setdefault((row["nbytes"], row["place"], row["algorithm"]), {})[row["size"]] = row
    return dict(sorted(found.items(), key=lambda item: item[0][:2]))


def table(run: Run) -> str:
    """Return the times of a run."""
    ranks = sorted({row["size"] for row in run.rows})
    lines = (
        [size_text(nbytes), place, f"`{name}`", *(_time(rows.get(size)) for size in ranks)]
        for (nbytes, place, name), rows in curves(run).items()
    )
    note = (
        "An allreduce in us on hosts of 8 ranks, in blocks of ranks or in turns, on the machine `h100_infiniband`: of "
        "the first host's busiest rank, by its own schedule, without waiting; in brackets by the simulator, with all "
        "ranks' schedules.\n\n![allreduce on hosts of 8 ranks](pictures/at-scale.svg)"
    )
    head = ["size", "hosts", "algorithm", *(f"{size:,} ranks" for size in ranks)]
    return f"{note}\n\n{markdown(head, lines)}"


def _time(row: Record | None) -> str:
    if row is None:
        return "-"
    checked = f" ({row['simulated_us']:,.0f})" if "simulated_us" in row else ""
    return f"{row['us']:,.0f}{checked}"


def figures(run: Run) -> dict[str, Any]:
    """Return what a sentence says of a run: the longest vectors on the most ranks, on hosts in blocks and in turns."""
    ranks, nbytes = max(row["size"] for row in run.rows), max(row["nbytes"] for row in run.rows)
    long = {one[1:]: rows for one, rows in curves(run).items() if one[0] == nbytes}
    last = {one: rows[ranks]["us"] for one, rows in long.items() if ranks in rows}
    names = sorted({name for _, name in last} - {*TWO_LEVELS})
    flat = {place: min(names, key=lambda name: last[place, name]) for place in ("blocks", "turns")}
    return {
        "size": size_text(nbytes),
        "ranks": ranks,
        "hosts": ranks // 8,
        "blocks": last["blocks", "striped"],
        "turns": last["turns", "striped"],
        **{f"flat_{place}": last[place, name] for place, name in flat.items()},
        **{f"name_{place}": name for place, name in flat.items()},
        "wrong": last["turns", flat["blocks"]],
    }
