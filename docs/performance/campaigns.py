"""Tables of what a call costs, of groups, of gradients in buckets, of overlap and of planning."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median, quantiles
from typing import Any

from mpicoll.pictures.units import size_text
from performance.baselines import micro_text, ratio_text, took
from performance.runs import Record, Run
from tables import markdown


def overhead_rows(run: Run, nbytes: int) -> dict[str, Record]:
    """Return the rows of calls with other arrays each time, by what is done."""
    return {row["op"]: row for row in run.rows if "beside" in row and row["bytes"] == nbytes}


def overhead_sizes(run: Run) -> list[int]:
    """Return the message sizes of such calls, ascending."""
    return sorted({row["bytes"] for row in run.rows if "beside" in row})


def call_time(row: Record) -> float:
    """Return the microseconds of a call without what the program does besides."""
    return took(row) - took(row, "besides")


def more_text(row: Record) -> str:
    """Return what a call takes beside the one that it is compared with, in words."""
    more = row["figures"]["more"]
    if more["value"] is None:
        return f"less than the noise of {more['spread']:.1f} us"
    return f"{more['value']:.1f} ±{more['spread']:.1f} us"


def overhead(run: Run) -> str:
    """Return the times of calls with other arrays each time, by message size."""
    sizes, torch = overhead_sizes(run), any("torch" in row["times"] for row in run.rows)
    head, lines = ["us"], [[op] for op in overhead_rows(run, sizes[0])]
    for nbytes in sizes:
        head += [size_text(nbytes), "beside the same"] + (["PyTorch / mpicoll"] if torch else [])
        for line, row in zip(lines, overhead_rows(run, nbytes).values(), strict=True):
            line += [micro_text(call_time(row)), _more(row)] + ([_torch(row)] if torch else [])
    note = "An allreduce, each call synchronised. What the program does besides, such as slicing, is subtracted"
    return f"{note}{', but in the ratio' if torch else ''}.\n\n{markdown(head, lines)}"


def _more(row: Record) -> str:
    """Return the difference to the call that it is beside; "" for that call."""
    more = row["figures"]["more"]
    if row["op"] == row["beside"]:
        return ""
    return f"±{more['spread']:.1f}" if more["value"] is None else f"{more['value']:+.1f} ±{more['spread']:.1f}"


def _torch(row: Record) -> str:
    return ratio_text(took(row, "torch") / took(row) if "torch" in row["times"] else None)


def by_hand(run: Run) -> str:
    """Return blocking calls beside their persistent messages and NumPy's reductions by hand."""
    rows = [row for row in run.rows if "by hand" in row["times"]]
    names = ("blocking", "by hand", "persistent", "nonblocking")
    lines = ([row["op"], size_text(row["bytes"]), *_micros(row, names)] for row in rows)
    note = "Calls of the same arrays beside their messages and NumPy's reductions by hand, microseconds:"
    return f"{note}\n\n{markdown(['call', 'size', *names], lines)}" if rows else ""


def calls(run: Run) -> str:
    """Return both tables of a run of `--overhead`."""
    return "\n\n".join(filter(None, (overhead(run), by_hand(run))))


def group_times(run: Run) -> dict[str, dict[str, float]]:
    """Return the median microseconds of each row of bench/groups.py, by what is done and how."""
    return {title: {how: median(times) for how, times in one.items()} for title, one in run.rows[0].items()}


def groups(run: Run) -> str:
    """Return the medians and quartiles of a run of bench/groups.py, a table for each set of ways."""
    parts = ["Microseconds, the median of the turns and their quartiles:"]
    tables: dict[tuple[str, ...], list[list[str]]] = {}
    for title, one in run.rows[0].items():
        tables.setdefault(tuple(one), []).append([title, *map(_quartiles, one.values())])
    return "\n\n".join([*parts, *(markdown(["", *names], lines) for names, lines in tables.items())])


def _quartiles(times: list[float]) -> str:
    low, middle, high = map(micro_text, quantiles(times, n=4, method="inclusive"))
    return f"{middle} ({low} to {high})"


def buckets(run: Run) -> str:
    """Return the tables of a run of bench/gradient_buckets.py."""
    parts, small = [], bucket_rows(run, "small")
    if small:
        names = list(small[0]["ms"])
        lines = [[many(row), *(milli_text(row["ms"][name]) for name in names), f"{row['ratio']:.1f}"] for row in small]
        parts += ["Averages in place, milliseconds:", markdown(["gradients", *names, "one call each / buckets"], lines)]
    hidden = bucket_rows(run, "hidden")
    if hidden:
        lines = [[layers(row), *map(milli_text, row["ms"].values()), f"{100 * row['hidden']:.0f} %"] for row in hidden]
        parts += ["Behind a backward pass, milliseconds:", markdown(["layers", *hidden[0]["ms"], "hidden"], lines)]
    return "\n\n".join(parts)


def layers(row: Record) -> str:
    """Return the layers of a backward pass."""
    return f"{row['layers']} of {row['width']}, {row['rows']} rows"


def bucket_rows(run: Run, table: str) -> list[Record]:
    """Return the rows of a table, "small" or "hidden"."""
    return [row for row in run.rows if row["table"] == table]


def milli_text(value: float) -> str:
    """Return milliseconds with three digits or more."""
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"


def many(row: Record) -> str:
    """Return how many gradients a row has, and of which size."""
    return f"{row['gradients']} gradients of {size_text(row['nbytes'])}"


def parts_of(row: Record) -> dict[str, float]:
    """Return the microseconds of the parts of a call that was taken apart, on rank 0."""
    return {name.removeprefix("rank 0: "): took(row, name) for name in row["times"] if name.startswith("rank 0: ")}


def breakdown(run: Run) -> str:
    """Return the parts of calls on rank 0."""
    names = list(parts_of(run.rows[0]))
    lines = (
        [row["op"], size_text(row["bytes"]), "in place" if row["in_place"] else "", row["path"]]
        + [micro_text(parts_of(row)[name]) for name in names]
        for row in run.rows
    )
    return f"Microseconds on rank 0:\n\n{markdown(['call', 'size', 'form', 'path', *names], lines)}"


def overlap(run: Run) -> str:
    """Return how much of nonblocking calls a kernel hides."""
    names = {"pure": "alone", "compute": "kernel", "total": "both"}
    lines = (
        [row["op"], size_text(row["bytes"]), row["path"], *_micros(row, names), overlap_text(row)] for row in run.rows
    )
    head = ["call", "size", "path", *(f"{name}, us" for name in names.values()), "overlap"]
    return f"The call is started, a kernel is launched on its stream, then it is waited for.\n\n{markdown(head, lines)}"


def _micros(row: Record, names: Iterable[str]) -> list[str]:
    return [micro_text(took(row, name)) for name in names]


def overlap_text(row: Record) -> str:
    """Return the overlap of a row."""
    value = row["figures"]["overlap"]["value"]
    return "below noise" if value is None else f"{value:.0f} %"


def plans(run: Run) -> dict[tuple[str, str], dict[int, Record]]:
    """Return the rows of bench/planning.py by (collective, algorithm), then by number of ranks; "" is the choice."""
    found: dict[tuple[str, str], dict[int, Record]] = {}
    for row in run.rows:
        found.setdefault((row["collective"], row["algorithm"]), {})[row["size"]] = row
    return found


def planning(run: Run) -> str:
    """Return the time and memory of plans."""
    sizes = sorted({row["size"] for row in run.rows})
    lines = (
        [collective, algorithm or "as chosen", *(_plan(rows.get(size)) for size in sizes)]
        for (collective, algorithm), rows in plans(run).items()
    )
    head = ["collective", "algorithm", *(f"{size:,} ranks" for size in sizes)]
    size = size_text(run.rows[0]["nbytes"])
    note = f"Vectors of {size}, from cold caches: processor time, peak of Python's memory; - is beyond the limit."
    return f"{note}\n\n{markdown(head, lines)}"


def _plan(row: Record | None) -> str:
    return f"{row['ms']:.0f} ms, {row['mib']:.1f} MiB" if row else "-"


def wrong(rows: Iterable[Record]) -> dict[str, Any]:
    """Return how many validated rows there are, and their wrong elements."""
    found = [row["wrong"] for row in rows if row.get("wrong") is not None]
    return {"number": len(found), "wrong": sum(found) or "no"}
