"""Rows of schema 1 as those of schema 2: files that were written before 2026-11-29 keep their form.

`{"time_us": {"median": 4.1}, "baselines": {"nccl": {"time_us": {...}, "ratio": 1.2}}}` becomes
`{"times": {"mpicoll": {"median": 4.1}, "nccl": {...}}, "figures": {"ratio nccl": {"value": 1.2, "unit": ""}}}`.
"""

from __future__ import annotations

from typing import Any

Record = dict[str, Any]

#: endings of the names of schema 1, and the units that they mean
UNITS = {"_us": "us", "_GBps": "GB/s"}
#: names that have changed
NAMES = {"low": "ci_low", "high": "ci_high", "time": "mpicoll", "by_hand": "by hand", "per_call": "per call"}
NAMES |= {"call": "mpicoll", "per_message": "per message"}
#: reason of a call whose algorithm was given
GIVEN = "algorithm= in the call"


def converted(row: Record, facts: Record) -> Record:
    """Return a row of the benchmark in schema 2; one of another tool, which has no mode, as it is.

    Args:
        row: of schema 1.
        facts: of the file's header.
    """
    if "mode" not in row:
        return row
    old = dict(row)
    times, figures = _baselines(old.pop("baselines", {}))
    _of_ranks(old.pop("ranks", ()), times)
    _of_names(old, times, figures)
    if "noise" in old:
        figures["overlap"] = {"value": old.pop("percent"), "unit": "%", "spread": old.pop("noise")}
    if "messages" in old:
        figures["messages"] = {"value": old.pop("messages"), "unit": ""}
    for name in ("number", "within_budget"):  # the first is among the times, the second follows from figures
        old.pop(name, None)
    if "pattern" in old:
        old["op"] = old.pop("pattern")
    if "algorithm" in old:
        given = old["algorithm"] + (f"/{old['segments']}" if old.get("segments") else "")
        old["asked"] = given if old.get("reason") == GIVEN else "auto"
    place = {"ranks": facts.get("ranks"), "memory": "device" if facts.get("buffers") == "cupy" else "host"}
    return {**old, **place, "times": times, "figures": figures, "wrong": old.get("wrong")}


def _of_names(old: Record, times: Record, figures: Record) -> None:
    """Take what has a unit in its name out of a row: summaries are times, differences and numbers are figures."""
    for key in list(old):
        unit = next((unit for ending, unit in UNITS.items() if key.endswith(ending)), "")
        value = old.pop(key) if unit else None
        name = NAMES.get(key.rpartition("_")[0], key.rpartition("_")[0])
        if isinstance(value, dict) and set(value) == {"median", "spread"}:
            figures[name] = {"value": value["median"], "unit": unit, "spread": value["spread"]}
        elif isinstance(value, dict):
            times[name] = _summary(value)
        elif value is not None:
            figures[name] = {"value": value, "unit": unit}


def _baselines(found: Record) -> tuple[Record, Record]:
    """Return the times and figures of the baselines."""
    times = {name: _summary(one["time_us"]) for name, one in found.items()}
    ratios = {f"ratio {name}": {"value": one["ratio"], "unit": ""} for name, one in found.items() if "ratio" in one}
    return times, ratios


def _of_ranks(ranks: Any, times: Record) -> None:
    """Add the times of each rank, of which a breakdown has a list."""
    for one in ranks if isinstance(ranks, list) else ():
        for key, value in one.items():
            if key != "rank":
                times[f"rank {one['rank']}: {key.removesuffix('_us')}"] = {"median": value}


def _summary(times: Record) -> Record:
    """Return a summary of times with the names of today."""
    found = {NAMES.get(name, name): value for name, value in times.items()}
    return found | ({"number": len(found["samples"])} if "samples" in found else {})
