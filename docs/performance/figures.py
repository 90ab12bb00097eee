"""Figures of claims: functions of a run, by name; None where a run has not what the claim is about."""

from __future__ import annotations

import re
from typing import Any

from mpicoll.pictures.units import size_text
from performance import baselines as against
from performance.campaigns import (
    bucket_rows,
    call_time,
    group_times,
    many,
    milli_text,
    more_text,
    overhead_rows,
    overhead_sizes,
    overlap_text,
    parts_of,
    plans,
    wrong,
)
from performance.runs import SHARED, Record, Run, listed

Figures = dict[str, Any] | None


def short_call(run: Run, baseline: str) -> Figures:
    """The shortest allreduce beside a baseline's."""
    found = _allreduces(run, baseline)
    if not found:
        return None
    row = found[min(found)]
    times = {"ours": against.took(row), "part": 1 / against.ratio(row, baseline)}
    return times | {"size": size_text(min(found)), "other": against.LABELS[baseline]}


def _allreduces(run: Run, baseline: str) -> dict[int, Record]:
    """Return the allreduces on most ranks that have a baseline, by bytes."""
    found = against.cells(run, baseline, max(run.ranks))
    return {nbytes: row for (name, nbytes), row in found.items() if name == "allreduce"}


def all_calls(run: Run, baseline: str) -> Figures:
    """All calls on most ranks beside a baseline's."""
    found = {key: against.ratio(row, baseline) for key, row in against.cells(run, baseline, max(run.ranks)).items()}
    if not found:
        return None
    sizes = [nbytes for _, nbytes in found]
    worst, nbytes = min(found, key=lambda key: found[key])
    least, half, most = against.spread_of(found.values())
    return {
        "other": against.LABELS[baseline],
        "faster": sum(round(value, 2) >= 1 for value in found.values()),
        **{"cells": len(found), "from": size_text(min(sizes)), "to": size_text(max(sizes))},
        **{"least": least, "half": half, "most": most, "which": f"{worst} of {size_text(nbytes)}"},
    }


def long_call(run: Run, baseline: str) -> Figures:
    """The bus bandwidth of the longest allreduce, and a baseline's."""
    found = _allreduces(run, baseline)
    if not found:
        return None
    row = found[max(found)]
    rate = row["figures"]["busbw"]["value"]
    rates = {"ours": rate, "theirs": rate / against.ratio(row, baseline)}
    return rates | {"size": size_text(max(found)), "other": against.LABELS[baseline]}


def validated(run: Run) -> Figures:
    """Measurements and their wrong elements."""
    algorithms = run.content["options"].get("algorithms") == ["all"]
    path = run.content["options"].get("path", "auto")
    how = "by every algorithm" if algorithms else "by mpicoll's choice"
    return wrong(run.rows) | {"how": how + (f", on the path {path}," if path != "auto" else "")}


def graphs(run: Run) -> Figures:
    """The shortest allreduce in CUDA graphs and back to back."""
    row = min((row for row in run.rows if row["collective"] == "allreduce"), key=lambda row: row["nbytes"])
    (_, streamed, replayed), (_, nccl_streamed, nccl_replayed) = row["ours"], row["nccl"]
    times = {"streamed": streamed, "replayed": replayed}
    return times | {
        "size": size_text(row["nbytes"]),
        "nccl_streamed": nccl_streamed,
        "nccl_replayed": nccl_replayed,
    }


def graph_cells(run: Run) -> Figures:
    """All calls in CUDA graphs beside NCCL's."""
    found = against.manner_ratios(run, against.MANNERS.index("both in CUDA graphs of many calls"))
    (worst, nbytes), sizes = min(found, key=lambda key: found[key]), [nbytes for _, nbytes in found]
    least, half, most = against.spread_of(found.values())
    figures = {"least": least, "half": half, "most": most, "which": f"{worst} of {size_text(nbytes)}"}
    return figures | {"cells": len(found), "from": size_text(min(sizes)), "to": size_text(max(sizes))}


def choices(run: Run, least: int, most: int) -> Figures:
    """Figures of the choices of today beside NCCL, from one message size in bytes to another."""
    found = {key: one for key, one in against.packaged_choices(run).items() if least <= key[1] <= most}
    if not found:
        return None
    sizes = [nbytes for _, nbytes in found]
    slowest, half, fastest = against.spread_of(nccl / ours for _, ours, nccl in found.values())
    figures = {"least": slowest, "half": half, "most": fastest, "cells": len(found)}
    return figures | {"from": size_text(min(sizes)), "to": size_text(max(sizes))}


def symmetric(run: Run) -> Figures:
    """Allreduces in place beside PyTorch's."""
    names = {"nccl": "nccl", "torch": "torch", "kernels": "torch-symmetric"}
    rows = {row["bytes"]: row for row in run.rows if row["op"] == "allreduce" and names["kernels"] in row["times"]}
    if not rows:
        return None
    figures: dict[str, Any] = {"from": size_text(min(rows)), "to": size_text(max(rows))}
    for key, name in names.items():
        ratios = [against.ratio(row, name) for row in rows.values()]
        figures |= {f"{key}_least": min(ratios), f"{key}_most": max(ratios)}
    return figures


def messages(run: Run) -> Figures:
    """The fastest algorithms by messages alone beside NCCL, below and from 1 MiB on."""
    found = against.fastest_by_messages(run)
    short = against.spread_of(value for (_, nbytes), value in found.items() if nbytes < 1 << 20)
    long = against.spread_of(value for (_, nbytes), value in found.items() if nbytes >= 1 << 26)
    names = ("least", "half", "most")
    return {f"short_{name}": value for name, value in zip(names, short, strict=True)} | {
        f"long_{name}": value for name, value in zip(names, long, strict=True)
    }


def other_arrays(run: Run) -> Figures:
    """A repeated call of the shortest size, and what other arrays add."""
    nbytes = overhead_sizes(run)[0]
    rows = overhead_rows(run, nbytes)
    names = {"views": "fresh views", "lists": "list of array, count, type", "new": "a new size"}
    figures = {key: more_text(rows[name]) for key, name in names.items()}
    return figures | {"size": size_text(nbytes), "same": call_time(rows["same arrays"])}


def torch_calls(run: Run) -> Figures:
    """PyTorch's calls over ours."""
    rows = overhead_rows(run, overhead_sizes(run)[0])
    ratios = {op: against.ratio(row, "torch") for op, row in rows.items() if "torch" in row["times"]}
    if not ratios:
        return None
    least = min(ratios, key=lambda op: ratios[op])
    size = size_text(overhead_sizes(run)[0])
    return {"size": size, "same": ratios["same arrays"], "least": ratios[least], "which": least}


def by_hand(run: Run) -> Figures:
    """A short allreduce beside its messages and sum by hand."""
    row = next((row for row in run.rows if row["op"] == "allreduce" and "by hand" in row["times"]), None)
    if row is None:
        return None
    ours, hand = (against.took(row, name) for name in ("blocking", "by hand"))
    return {"size": size_text(row["bytes"]), "ours": ours, "hand": hand}


def halo(run: Run) -> Figures:
    """A halo as a group and by the MPI's messages."""
    found = group_times(run)["halo of 64 KiB, both ways"]
    return {"group": found["group"], "replayed": found["group, replayed"], "mpi": found["MPI's messages"]}


def many_calls(run: Run) -> Figures:
    """Many short allreduces one by one, as a group and as a list."""
    title, found = max(group_times(run).items(), key=lambda one: one[1].get("one call each", 0))
    figures = {"what": title.removesuffix(" allreduce"), "each": found["one call each"]}
    return figures | {how: found[how] for how in ("group", "list")}


def gradients(run: Run) -> Figures:
    """Many short gradients in buckets and one by one."""
    rows = bucket_rows(run, "small")
    if not rows:
        return None
    least, most = (end(rows, key=lambda row: row["ratio"]) for end in (min, max))
    times = {"buckets": milli_text(most["ms"]["buckets"]), "each": milli_text(most["ms"]["one call each"])}
    return times | {"what": many(most), "ratio": most["ratio"], "other": many(least), "less": least["ratio"]}


def hidden(run: Run) -> Figures:
    """The part of the buckets' time that a backward pass hides."""
    rows = bucket_rows(run, "hidden")
    if not rows:
        return None
    parts, widths = ([f"{100 * row['hidden']:.0f}" for row in rows], [row["width"] for row in rows])
    return {"parts": " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1]))), "widths": listed(widths)}


def waiting(run: Run) -> Figures:
    """The part of the first call of a breakdown that is the wait for the stream."""
    row, parts = run.rows[0], parts_of(run.rows[0])
    share = 100 * parts["sync"] / parts["total"]
    return {"what": f"{row['op']} of {size_text(row['bytes'])}", "total": parts["total"], "share": share}


def overlapping(run: Run) -> Figures:
    """The overlap of the nonblocking calls of a run."""
    rows = [f"{overlap_text(row)} of {row['op']}" for row in run.rows]
    paths = sorted({row["path"] for row in run.rows})
    return {"what": ", ".join(rows), "size": size_text(run.rows[0]["bytes"]), "paths": " and ".join(paths)}


def planned(run: Run) -> Figures:
    """The time and the memory of the plan of an allreduce on the most ranks."""
    rows = plans(run)["allreduce", ""]
    size = max(rows)
    return {"size": size_text(rows[size]["nbytes"]), "ranks": size, "ms": rows[size]["ms"], "mib": rows[size]["mib"]}


def planned_on_hosts(run: Run) -> Figures:
    """The most time and memory of a plan on the most ranks, each collective's as it is chosen."""
    chosen = [row for row in run.rows if not row["algorithm"]]
    size = max(row["size"] for row in chosen)
    found = [row for row in chosen if row["size"] == size]
    names = [row["collective"] for row in found]
    return {
        "size": size_text(found[0]["nbytes"]),
        "ranks": size,
        "hosts": int(found[0]["topology"].removeprefix("hosts=")),
        "collectives": f"{', '.join(names[:-1])} or {names[-1]}",
        "ms": max(row["ms"] for row in found),
        "mib": max(row["mib"] for row in found),
    }


def compared(run: Run) -> Figures:
    """Comparisons with NumPy; None for a file that has several machines."""
    if run.group != SHARED:
        return None
    found = re.findall(r"(\d+) comparisons, (\d+) wrong", run.content["text"])
    return {"number": sum(int(n) for n, _ in found), "wrong": sum(int(bad) for _, bad in found) or "none"}
