"""Earlier rows: what the file of an interrupted run has, and what is left to measure of the same run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mpicoll.bench.errors import RequestError
from mpicoll.bench.output.results import SCHEMA, read
from mpicoll.bench.output.rows import Record
from mpicoll.bench.request.jobs import Job

#: facts of the header that must be as they were
MACHINE = (
    *("mpicoll", "commit", "mpi", "mpi4py", "numpy", "cupy", "baselines", "variables"),
    *("ranks", "hosts", "cores", "cpu", "system", "buffers", "gpus"),
)
#: options that may differ: they change no measurement
FREE = ("json", "csv", "resume", "seed", "stats", "wide")
#: what names a cell in one form, of a row and of a job
NAMES = ("op", "bytes", "count", "dtype", "redop", "root", "ranks", "asked", "in_place")


@dataclass(frozen=True)
class Earlier:
    """The rows of an earlier run.

    Attributes:
        rows: of its file.
        refused: what it has left out.
    """

    rows: list[Record] = field(default_factory=list)
    refused: list[Record] = field(default_factory=list)

    @property
    def wrong(self) -> int:
        """Wrong elements of its rows."""
        return sum(row["wrong"] or 0 for row in self.rows)

    @property
    def violations(self) -> int:
        """Guidelines that are violated in its rows."""
        said = (one["verdict"] for row in self.rows for one in row.get("guidelines", {}).values())
        return sum(verdict == "violated" for verdict in said)

    def patterns(self, nbytes: int, ranks: int) -> set[str]:
        """Return the names of the patterns that it has of a size on a number of ranks."""
        rows = (row for row in self.rows if "beside" in row)
        return {row["op"] for row in rows if (row["bytes"], row["ranks"]) == (nbytes, ranks)}

    def left(self, jobs: Iterable[Job]) -> list[Job]:
        """Return the jobs that it has not, each with the forms that are left."""
        done = {tuple(row.get(name) for name in NAMES) for row in self.rows}
        found = (replace(job, forms=tuple(form for form in job.forms if named(job, form) not in done)) for job in jobs)
        return [job for job in found if job.forms]


def named(job: Job, in_place: bool) -> tuple[Any, ...]:
    """Return what names a job in one form, as NAMES says."""
    case = job.case
    root = case.root if case.call.row.rooted else None
    what = case.call.name, case.nbytes, case.count, case.dtype, case.redop or None, root
    return (*what, case.size, job.algorithm or "auto", in_place)


def earlier(path: Path, mode: str, options: Mapping[str, Any], facts: Mapping[str, Any]) -> Earlier:
    """Return what a file has; raise RequestError for a file of another run.

    Args:
        path: of the file.
        mode: of this run.
        options: of this run.
        facts: of this run's header.
    """
    try:
        found = read(path)
    except (ValueError, OSError) as error:
        raise RequestError(f"--resume: {error}") from None
    was = {"schema": found["schema"], "mode": found.get("mode")}
    now = {"schema": SCHEMA, "mode": mode}
    for name, mine in json.loads(json.dumps(options, default=str)).items():
        if name not in FREE:
            was[f"option {name}"], now[f"option {name}"] = found["options"].get(name), mine
    for name in MACHINE:
        was[name], now[name] = found["facts"].get(name), json.loads(json.dumps(facts.get(name), default=str))
    differing = next((name for name in now if now[name] != was[name]), "")
    if differing:
        raise RequestError(f"--resume: {path} is of another run: {differing} {was[differing]}, now {now[differing]}")
    return Earlier(found["rows"], found["refused"])
