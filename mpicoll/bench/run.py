"""The run: what is asked for is put together, done and written; and the exit status."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial

import numpy as np
from mpi4py import MPI

import mpicoll
from mpicoll.bench import baselines, breakdown, facts, overhead, overlap
from mpicoll.bench.bench import Bench, times
from mpicoll.bench.clock import Clock
from mpicoll.bench.interruption import FORWARDED, Interruption
from mpicoll.bench.jobs import Job, forms, jobs
from mpicoll.bench.measure import Budget
from mpicoll.bench.memory import choose
from mpicoll.bench.nccl import NVLS, without_nvls
from mpicoll.bench.options import Options, RequestError, parse
from mpicoll.bench.progress import Progress, terminal
from mpicoll.bench.report import Report
from mpicoll.bench.results import Results
from mpicoll.bench.subject import Mpicoll, anywhere
from mpicoll.communicator import Communicator
from mpicoll.runtime.context.contexts import context_of
from mpicoll.settings import format_bytes, settings

#: what makes the table of each mode
TABLES: dict[str, Callable[[Bench, Iterable[Job]], None]] = {
    "times": times,
    "overlap": overlap.table,
    "overhead": overhead.table,
    "breakdown": breakdown.table,
}
#: exit status of a run that its budget ended
INTERRUPTED = 3
#: moves a terminal's cursor to an empty line and shows it again, where the progress bar hid it
LINE_OF_ITS_OWN = "\r\x1b[K\x1b[?25h"


def run(arguments: list[str]) -> int:
    """Do what the command line asks for, and return the exit status; collective over all ranks.

    Args:
        arguments: the command line without the program's name; rank 0's counts.

    Returns:
        0 if every element is right, 1 if any is wrong, 2 if the request cannot be served, 3 if time ran out.
    """
    first = MPI.COMM_WORLD.rank == 0
    arguments = MPI.COMM_WORLD.bcast(arguments, root=0)
    options = parse(arguments, loud=first)
    world = MPI.COMM_WORLD.Dup()
    path = nullcontext() if options.path == "auto" else mpicoll.override(path=options.path)
    report = Report({}, sys.stdout if first else None, Results(options.json if first else None), options.mode)
    interruption = Interruption(partial(_interrupt, report), 0.0 if first else 2 * FORWARDED)
    try:
        with interruption, path, np.errstate(all="ignore"):
            status = _run(arguments, options, world, report)  # repeated in place, sums grow beyond every limit
    except RequestError as error:
        if first:
            print(f"mpicoll.bench: {error}", file=sys.stderr, flush=True)
        status = 2
    except Exception:
        report.interrupt(f"rank {world.rank} failed")
        raise
    world.Free()  # not after any other exception: the other ranks may still be in a call
    return status


def _run(arguments: list[str], options: Options, world: MPI.Intracomm, report: Report) -> int:
    if settings.timeout > 0 and options.mode in ("overhead", "breakdown"):
        raise RequestError(f"--{options.mode}: calls with a time limit go another way; unset MPICOLL_TIMEOUT")
    switched_off = "nccl" in options.baselines and without_nvls()
    bench = _prepared(arguments, options, world, report)
    todo = jobs(options, world.size, bench.memory.kind, report)
    _check_sizes(todo, world, bench.memory.total)
    report.total = sum(len(forms(job.case.call, options)) for job in todo)
    _begin_file(report, options, world)
    report.begin(facts.lines(report.header))
    if switched_off:
        report.say(f"# {NVLS}=0 was set here; set it yourself to measure NCCL with NVLS")
    bench.budget = Budget(world, options.budget, report.total)
    with Progress(report.total, world.rank == 0) as bench.progress:
        TABLES[options.mode](bench, bench.paced(todo))
    report.end()
    if report.verdict == "nothing":
        raise RequestError(report.nothing())
    return 1 if report.wrong else INTERRUPTED if report.interruption else 0


def _prepared(arguments: list[str], options: Options, world: MPI.Intracomm, report: Report) -> Bench:
    """Return what measures, before it is known how much there is to measure; collective."""
    memory = choose("numpy" if options.mode == "overhead" else options.buffers, world)
    comm = Communicator(world)
    header = report.header = facts.collect(arguments, world, comm, memory)
    made, refused = baselines.make(options.baselines, world, memory, context_of(comm).cuda_aware)
    header["baselines"] = {name: getattr(baseline, "version", "") for name, baseline in made.items()}
    report.baselines = tuple(made)
    for name, why in refused.items():
        report.refuse("every call", f"baseline {name}:", why)
    clock = Clock(world, bool(header["oversubscribed"]), memory.synchronize)
    budget = Budget(world, options.budget, 0)
    return Bench(options, world, memory, Mpicoll(comm), made, clock, budget, report, Progress(0, False))


def _interrupt(report: Report, signal: str) -> None:
    """End the report, on the terminal itself if there is one: a launcher that ends a job may pass nothing on."""
    screen = terminal(sys.stdout) if report.out else None
    if screen:
        report.out = screen.open("w", encoding="utf-8")
        report.say(LINE_OF_ITS_OWN)
    report.interrupt(signal)


def _begin_file(report: Report, options: Options, world: MPI.Intracomm) -> None:
    """Begin the file of results; where it cannot be written, all ranks raise RequestError."""
    why = ""
    try:
        report.results.begin(mode=options.mode, measurements=report.total, facts=report.header, options=asdict(options))
    except OSError as error:
        why = f"--json {options.json}: {error.strerror}"
    why = anywhere(world, why)
    if why:
        raise RequestError(why)


def _check_sizes(todo: list[Job], world: MPI.Intracomm, total: int) -> None:
    """Raise RequestError where a message is larger than the memory of every rank."""
    largest = max(job.case.nbytes for job in todo)
    most = max(world.allgather(total))
    if largest > most:
        raise RequestError(f"messages of {format_bytes(largest)} do not fit: no rank has more than {most >> 30}G")
