"""The run: what is asked for is put together, done and written; and the exit status."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import asdict
from typing import Any, Protocol

import numpy as np
from mpi4py import MPI

import mpicoll
from mpicoll.bench import baselines, breakdown, facts, overhead, overlap
from mpicoll.bench.bench import Bench
from mpicoll.bench.clock import Clock
from mpicoll.bench.jobs import Job, forms, jobs
from mpicoll.bench.measure import Budget
from mpicoll.bench.memory import choose
from mpicoll.bench.nccl import NVLS, without_nvls
from mpicoll.bench.options import Options, RequestError, parse
from mpicoll.bench.progress import Progress
from mpicoll.bench.report import Report
from mpicoll.bench.subject import Mpicoll
from mpicoll.communicator import Communicator
from mpicoll.runtime.channels import channel_of
from mpicoll.settings import settings


class Row(Protocol):
    """A line of a table other than that of times."""

    def record(self) -> dict[str, Any]:
        """Return it for the file."""


#: what there is instead of the table of times: head of the table, and its rows
MODES: dict[str, tuple[tuple[str, ...], Callable[[Bench, list[Job]], Iterator[Row]]]] = {
    "overlap": (overlap.HEAD, overlap.rows),
    "overhead": (overhead.HEAD, overhead.rows),
    "breakdown": (breakdown.HEAD, breakdown.rows),
}


def run(arguments: list[str]) -> int:
    """Do what the command line asks for, and return the exit status; collective over all ranks.

    Args:
        arguments: the command line without the program's name; rank 0's counts.

    Returns:
        0 if every element is right, 1 if any is wrong, 2 if the request cannot be served.
    """
    first = MPI.COMM_WORLD.rank == 0
    arguments = MPI.COMM_WORLD.bcast(arguments, root=0)
    options = parse(arguments, loud=first)
    world = MPI.COMM_WORLD.Dup()
    path = nullcontext() if options.path == "auto" else mpicoll.override(path=options.path)
    try:
        with path, np.errstate(all="ignore"):  # repeated in place, sums grow beyond every limit
            status = _run(arguments, options, world)
    except RequestError as error:
        if first:
            print(f"mpicoll.bench: {error}", file=sys.stderr, flush=True)
        status = 2
    world.Free()  # not after any other exception: the other ranks may still be in a call
    return status


def _run(arguments: list[str], options: Options, world: MPI.Intracomm) -> int:
    start = time.monotonic()
    _try_file(options, world)
    switched_off = "nccl" in options.baselines and without_nvls()
    bench = _prepared(arguments, options, world)
    report = bench.report
    todo = jobs(options, world.size, bench.memory.kind, report)
    report.begin(facts.lines(report.header))
    if switched_off:
        report.say(f"# {NVLS}=0 was set here; set it yourself to measure NCCL with NVLS")
    if options.mode:
        return _another_table(options, bench, todo)
    number = sum(len(forms(job.case.call, options)) for job in todo)
    bench.budget = Budget(world, options.budget, number)
    report.head()
    with Progress(number, world.rank == 0) as bench.progress:
        for job in todo:
            bench.do(job)
    report.end(time.monotonic() - start)
    if options.json and world.rank == 0:
        with options.json.open("w", encoding="utf-8") as out:
            report.write(out, asdict(options))
    return 1 if report.wrong else 0


def _prepared(arguments: list[str], options: Options, world: MPI.Intracomm) -> Bench:
    """Return what measures, before it is known how much there is to measure; collective."""
    memory = choose("numpy" if options.mode == "overhead" else options.buffers, world)
    comm = Communicator(world)
    header = facts.collect(arguments, world, comm, memory)
    made, refused = baselines.make(options.baselines, world, memory, channel_of(comm).awareness)
    header["baselines"] = {name: getattr(baseline, "version", "") for name, baseline in made.items()}
    report = Report(header, sys.stdout if world.rank == 0 else None, baselines=tuple(made))
    for name, why in refused.items():
        report.refuse("every call", f"baseline {name}:", why)
    clock = Clock(world, bool(header["oversubscribed"]), memory.synchronize)
    budget = Budget(world, options.budget, 0)
    return Bench(options, world, memory, Mpicoll(comm), made, clock, budget, report, Progress(0, False))


def _another_table(options: Options, bench: Bench, todo: list[Job]) -> int:
    """Print the table of a mode and write its rows."""
    if settings.timeout > 0 and options.mode != "overlap":
        raise RequestError(f"--{options.mode}: calls with a time limit go another way; unset MPICOLL_TIMEOUT")
    head, measured = MODES[options.mode]
    bench.report.say(*head)
    rows = []
    for row in measured(bench, todo):
        rows.append(row.record())
        bench.report.say(str(row))
    if options.json and bench.world.rank == 0:
        report = bench.report
        whole = {"facts": report.header, "options": asdict(options), "refused": report.refused, "rows": rows}
        options.json.write_text(json.dumps(whole, indent=1, default=str) + "\n", encoding="utf-8")
    return 0


def _try_file(options: Options, world: MPI.Intracomm) -> None:
    """Find out before the run whether its results can be written."""
    why = ""
    if options.json and world.rank == 0:
        try:
            options.json.touch()
        except OSError as error:
            why = f"--json: {error}"
    why = world.bcast(why, root=0)
    if why:
        raise RequestError(why)
