"""The run: what is asked for is put together, done and written; and the exit status."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import asdict, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from mpi4py import MPI

import mpicoll
from mpicoll.bench.contestants.nccl import NVLS, without_nvls
from mpicoll.bench.errors import RequestError, anywhere
from mpicoll.bench.interruption import FORWARDED, Interruption
from mpicoll.bench.measure.backends import choose
from mpicoll.bench.measure.budget import Budget
from mpicoll.bench.measure.clock import rest
from mpicoll.bench.measure.visits import VISITS
from mpicoll.bench.output import environment
from mpicoll.bench.output.earlier import earlier
from mpicoll.bench.output.report import Closing, Report, silent
from mpicoll.bench.output.results import Results
from mpicoll.bench.request.jobs import Job, jobs
from mpicoll.bench.request.options import Options, parse
from mpicoll.bench.tables import breakdown, guidelines, overhead, overlap, patterns, regret, times, winners
from mpicoll.bench.tables.bench import Bench
from mpicoll.bench.tables.call_columns import CallColumns
from mpicoll.settings import format_bytes, settings

#: what makes the table of each mode
TABLES: dict[str, Callable[[Bench, Iterable[Job]], None]] = {
    "times": times.table,
    "overlap": overlap.table,
    "overhead": overhead.table,
    "breakdown": breakdown.table,
    "guidelines": guidelines.table,
    "regret": regret.table,
}
#: what is said at the end of each mode
CLOSINGS: dict[str, Closing] = {
    "times": winners.lines,
    "guidelines": guidelines.summed_up,
    "regret": regret.summed_up,
}
#: exit status of a run that its budget ended
INTERRUPTED = 3
#: exit status of a run in which a guideline is violated
VIOLATED = 4
#: options of how times are taken, for the header
METHOD = ("sync", "iterations", "width", "budget", "shuffle", "seed")
#: seeds that are drawn are below it, and short to type
MOST_SEED = 10_000


def run(arguments: list[str]) -> int:
    """Do what the command line asks for, and return the exit status; collective over all ranks.

    Args:
        arguments: the command line without the program's name; rank 0's counts.

    Returns:
        0 if nothing is the matter, 2 if the request cannot be served, 1 if any element is wrong, or else 4 if a
        guideline is violated, or else 3 if time ran out.
    """
    arguments = MPI.COMM_WORLD.bcast(arguments, root=0)
    options = parse(arguments, loud=MPI.COMM_WORLD.rank == 0)
    if options.seed is None:
        options = replace(options, seed=MPI.COMM_WORLD.bcast(secrets.randbelow(MOST_SEED), root=0))
    return conduct(options, partial(_run, arguments, options))


def conduct(options: Options, work: Callable[[MPI.Intracomm, Report], int]) -> int:
    """Do the work of a run with a report, and return the exit status; a signal ends both. Collective over all ranks.

    Args:
        options: what is asked for.
        work: takes all ranks and the report, and returns the exit status; a RequestError of all ranks is status 2.
    """
    first, world = MPI.COMM_WORLD.rank == 0, MPI.COMM_WORLD.Dup()
    path = nullcontext() if options.path == "auto" else mpicoll.override(path=options.path)
    report = Report({}, sys.stdout if first else None, Results(options.json if first else None), options.mode)
    report.closing = CLOSINGS.get(options.mode, silent) if first else silent
    interruption = Interruption(report.interrupt, 0.0 if first else 2 * FORWARDED)
    try:
        with interruption, path, np.errstate(all="ignore"):
            status = work(world, report)  # repeated in place, sums grow beyond every limit
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
    if max(options.ranks, default=0) > world.size:
        raise RequestError(f"--ranks {options.ranks[-1]}: there are {world.size} ranks")
    switched_off = {"nccl", "torch", "nccl-symmetric"} & set(options.baselines) and without_nvls()
    bench = prepared(arguments, options, world, report)
    report.header["method"] = _method(options)
    todo = {n: jobs(options, n, bench.backend.kind, report.refuse) for n in options.ranks or (world.size,)}
    if not any(todo.values()):
        raise RequestError(report.nothing())
    every = [job for found in todo.values() for job in found]
    _check_sizes(every, world, bench.backend.total)
    parts = {number: bench.on_first(number) for number, found in todo.items() if found}
    report.header["baselines"] = _versions(parts.values())
    on_device = options.mode == "overhead" and bench.backend.device >= 0  # where only the patterns are measured
    report.total = 0 if on_device else sum(len(job.forms) for job in every)
    begin_file(report, options, world)
    known = f", {report.measured} of them in {options.json} before" if report.measured else ""
    report.begin([*environment.lines(report.header), f"# {report.total} measurements{known}"])
    if switched_off:
        report.say(f"# {NVLS}=0 was set here; set it yourself to measure NCCL with NVLS")
    todo = {number: report.earlier.left(found) for number, found in todo.items()}
    left = sum(len(job.forms) for found in todo.values() for job in found)
    left += sum(not report.earlier.patterns(nbytes, n) for n in parts for nbytes in patterns.sizes(options))
    visits = VISITS if options.mode == "regret" else 1
    bench.budget = Budget(world, options.budget, visits * left)
    bench.calls = CallColumns(every, options, bench.backend.device < 0)
    _measure_all(bench, parts, todo, visits)
    report.notes += [bench.steady.warning] if bench.steady.warning else []
    return ended(report, world)


def _method(options: Options) -> dict[str, Any]:
    """Return how times are taken, for the header; other modes than that of times have numbers of calls of their own."""
    own = {} if options.mode in ("times", "regret") else {"width": None}
    return {name: getattr(options, name) for name in METHOD} | own


def _measure_all(bench: Bench, parts: dict[int, Bench | None], todo: dict[int, list[Job]], visits: int) -> None:
    """Measure each number of ranks, in so many visits; arguments as in `_measure`, by number of ranks."""
    for visit, number in product(range(1, visits + 1), parts):
        if not bench.world.bcast(bench.report.interruption, root=0):
            _measure(bench, parts[number], todo[number], visit)
    for part in parts.values():
        _leave(bench, part)


def _measure(bench: Bench, part: Bench | None, todo: list[Job], visit: int) -> None:
    """Measure the jobs of a number of ranks, while the other ranks sleep; collective.

    Args:
        bench: the run on all ranks.
        part: the same on those that take part; None on another one.
        todo: the jobs.
        visit: number of the visit to them.
    """
    if part:
        bench.budget.world = part.world
        part.budget, part.calls, part.visit = bench.budget, bench.calls, visit
        TABLES[part.options.mode](part, part.paced(todo))
    rest(bench.world)


def _leave(bench: Bench, part: Bench | None) -> None:
    """Write what is not yet written of a number of ranks, and free it; arguments as in `_measure`."""
    if part:
        regret.write_rest(part)
    bench.leave(part)


def _versions(parts: Iterable[Bench | None]) -> dict[str, str]:
    """Return the versions of baselines, by name; those of rank 0, which takes part in all."""
    return {name: getattr(one, "version", "") for part in parts if part for name, one in part.baselines.items()}


def ended(report: Report, world: MPI.Intracomm) -> int:
    """End the report, and return the exit status, the same on all ranks; collective.

    Args:
        report: of which rank 0's counts, which takes part in all that is measured.
        world: all ranks.

    Raises:
        RequestError: nothing was measured.
    """
    report.end()
    if world.bcast(report.verdict == "nothing", root=0):
        raise RequestError(report.nothing())
    return int(world.bcast(_status(report), root=0))


def _status(report: Report) -> int:
    if report.wrong or report.violations:
        return 1 if report.wrong else VIOLATED
    return INTERRUPTED if report.interruption else 0


def prepared(arguments: list[str], options: Options, world: MPI.Intracomm, report: Report) -> Bench:
    """Return the parts of a run, before it is known how much there is to measure; collective.

    Args:
        arguments: the command line.
        options: the same, read.
        world: all ranks; a communicator of mpi4py's own.
        report: prints and writes.
    """
    backend = choose(options.buffers, world)
    bench = Bench.of(options, world, backend, report)
    report.header = environment.collect(arguments, world, bench.contestant.comm, backend)
    return bench


def begin_file(report: Report, options: Options, world: MPI.Intracomm) -> None:
    """Begin the files of results, or go on with an earlier run's; where none can be, all ranks raise RequestError."""
    why = ""
    try:
        if world.rank == 0:
            _begin_files(report, options)
    except RequestError as error:
        why = str(error)
    except OSError as error:
        named = options.csv and error.filename == str(options.csv)
        why = f"{f'--csv {options.csv}' if named else f'--json {options.json}'}: {error.strerror}"
    why = anywhere(world, why)
    if why:
        raise RequestError(why)
    report.earlier = world.bcast(report.earlier, root=0)
    report.wrong += report.earlier.wrong
    report.violations += report.earlier.violations


def _begin_files(report: Report, options: Options) -> None:
    given = asdict(options)
    if options.resume and options.json and options.json.exists():
        report.earlier = earlier(options.json, options.mode, given, report.header)
        report.results.go_on()
    else:
        report.results.begin(mode=options.mode, measurements=report.total, facts=report.header, options=given)
    if options.csv:
        options.csv.open("w").close()
        report.csv = options.csv


def _check_sizes(todo: list[Job], world: MPI.Intracomm, total: int) -> None:
    """Raise RequestError where a message is larger than the memory of every rank."""
    largest = max(job.case.nbytes for job in todo)
    most = max(world.allgather(total))
    if largest > most:
        raise RequestError(f"messages of {format_bytes(largest)} do not fit: no rank has more than {most >> 30}G")
