"""Tables and figures of calls on several hosts, from runs of bench/on_hosts.py."""

from __future__ import annotations

import re
from typing import Any

from mpicoll.pictures.units import size_text
from mpicoll.schedule.topology import Topology
from performance.runs import Record, Run
from tables import markdown

#: from which message size on a long call is one, in bytes
LONG = 128 << 10
#: name of the MPI's own collective
OWN = "MPI's own"
#: what is wanted of long calls: how often the speed of the MPI's own, or how near to the bound
FASTER, NEAR = 1.3, 1.1


def layout(run: Run) -> str:
    """Return the hosts in words, such as "2 hosts: 0-3, 4-7"."""
    return str(Topology.of(run.content["hosts"]))


def links(run: Run) -> str:
    """Return what a link between the hosts has, in words."""
    delay, rate = (re.search(rf"--{name} (\S+)", run.command)[1] for name in ("delay", "rate"))
    return f"{delay} ms and {rate} Mbit/s"


def longest(run: Run) -> list[Record]:
    """Return the rows of long calls."""
    return [row for row in run.rows if row["nbytes"] >= LONG]


def bound(run: Run, row: Record) -> float:
    """Return the milliseconds of the least bytes, and of the delays without which so few bytes do not suffice.

    That is one delay on two hosts, and log2 H rounds on H of them; an allreduce there has twice as many.
    """
    hosts = Topology.of(run.content["hosts"]).hosts
    rounds = 1 if hosts == 2 else (hosts - 1).bit_length() * (2 if row["op"] == "allreduce" else 1)
    delay = float(re.search(r"--delay (\S+)", run.command)[1])
    return row["ms"]["auto"] / row["auto_over_bound"] + (rounds - 1) * delay  # which has one delay


def is_good(run: Run, row: Record) -> bool:
    """Tell whether a long call is faster than the MPI's own, or near to the bound."""
    return row["own_over_auto"] >= FASTER or row["ms"]["auto"] <= NEAR * bound(run, row)


def figures(run: Run) -> dict[str, Any]:
    """Return what a sentence says of a run."""
    rows, long = run.rows, longest(run)
    middle = [row for row in rows if row["nbytes"] > 1000]
    short = [row for row in rows if row["nbytes"] <= 1000]
    worst = max(middle, key=lambda row: row["auto_over_flat"])
    return {
        "layout": layout(run),
        "links": links(run),
        "from": size_text(min(row["nbytes"] for row in middle)),
        "to": size_text(max(row["nbytes"] for row in middle)),
        "flat": worst["auto_over_flat"],
        "which": f"{worst['op']} of {size_text(worst['nbytes'])}",
        "good": sum(is_good(run, row) for row in long),
        "long": len(long),
        "least": size_text(LONG),
        "faster": FASTER,
        "near": 100 * (NEAR - 1),
        "bytes": max(row["bytes_over_least"] for row in long),
        "short": max(row["auto_over_flat"] for row in short),
    }


def table(run: Run) -> str:
    """Return the times of a run."""
    head = ["call", "size", "chosen, ms", "best flat, ms", "", "MPI's own, ms", "bound, ms", "bytes / least"]
    note = "Medians of calls in turn; the bound is the least bytes with their delays."
    if tables := run.content.get("tables"):
        note = f"Chosen by the tuning table {tables[0]}. {note}"
    return f"{layout(run)}; links of {links(run)}. {note}\n\n{markdown(head, (_line(run, row) for row in run.rows))}"


def _line(run: Run, row: Record) -> list[str]:
    ms, flat = row["ms"], row["best_flat"]
    times = [f"{ms['auto']:.0f}", f"{ms[flat]:.0f}", f"`{flat}`", f"{ms[OWN]:.0f}"]
    many = f"{row['bytes_over_least']:.2f}" if row["nbytes"] > 1000 else ""
    return [row["op"], size_text(row["nbytes"]), *times, f"{bound(run, row):.0f}", many]
