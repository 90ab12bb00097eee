"""One trace of all ranks, from each rank's file: `python -m mpicoll trace run.0.json run.1.json -o run.json`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def merged(files: Iterable[str]) -> dict[str, Any]:
    """Return the trace of several files.

    Ranks of one host have one clock.  Those of other hosts are moved by the difference of the hosts' wall clocks.

    Raises:
        ValueError: a file cannot be read, or is no trace of mpicoll's.
    """
    events: list[dict[str, Any]] = []
    clocks: dict[str, float] = {}
    first = None
    for file in files:
        head, found = _read(file)
        clock = clocks.setdefault(head["host"], head["wall_clock"])  # one for all ranks of a host
        first = clock if first is None else first
        for event in found:
            if "ts" in event:
                event["ts"] += (clock - first) * 1e6
        events += found
    return {"otherData": {"hosts": sorted(clocks)}, "traceEvents": events}


def _read(file: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return what a file says of its rank, and its events."""
    try:
        found = json.loads(Path(file).read_text(encoding="utf-8"))
        head, events = found["otherData"], found["traceEvents"]
        return {"host": str(head["host"]), "wall_clock": float(head["wall_clock"])}, list(events)
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ValueError(f"{file} is no trace of one rank: {type(error).__name__}: {error}") from None


def merge(files: Iterable[str], target: str) -> tuple[int, int]:
    """Write the trace of several files into one; return (number of calls, number of ranks).

    Raises:
        ValueError: a file cannot be read or written.
    """
    trace = merged(files)
    try:
        Path(target).write_text(json.dumps(trace), encoding="utf-8")
    except OSError as error:
        raise ValueError(f"{target} cannot be written: {error}") from None
    calls = [event for event in trace["traceEvents"] if event["ph"] in ("X", "b")]
    return len(calls), len({event["pid"] for event in trace["traceEvents"]})
