"""The run: which measurements, each of them, and the exit status."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

import mpicoll
from mpicoll.algorithms import registry
from mpicoll.bench import facts
from mpicoll.bench.cases import CALLS, Call, Case, make_case
from mpicoll.bench.clock import Clock
from mpicoll.bench.data import REDUCTIONS, dtype_named, kind
from mpicoll.bench.measure import Budget, measure
from mpicoll.bench.memory import Memory, choose
from mpicoll.bench.options import Options, RequestError, parse, sizes
from mpicoll.bench.overlap import HEAD, Overlap, overlap
from mpicoll.bench.progress import Progress
from mpicoll.bench.report import Measurement, Report
from mpicoll.bench.subject import Mpicoll, Way
from mpicoll.bench.trial import Trial
from mpicoll.communicator import Communicator
from mpicoll.dispatch.rules import parse_choice
from mpicoll.errors import UnsupportedError

#: largest message size where none is given
LARGEST = {"numpy": 4 << 20, "cupy": 256 << 20}


@dataclass(frozen=True)
class Job:
    """One line of the table: a case and what `algorithm=` of its calls is."""

    case: Case
    algorithm: str | None


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
    memory = choose(options.buffers, world)
    comm = Communicator(world)
    report = Report(facts.collect(arguments, world, comm, memory), sys.stdout if world.rank == 0 else None)
    jobs = _jobs(options, world.size, LARGEST[memory.kind], report)
    number = sum(len(_forms(job.case.call, options)) for job in jobs)
    clock = Clock(world, bool(report.header["oversubscribed"]), memory.synchronize)
    budget = Budget(world, options.budget, number)
    report.begin(facts.lines(report.header))
    if options.compute is not None:
        _overlaps(
            options, jobs, Bench(options, world, memory, Mpicoll(comm), clock, budget, report, Progress(0, False))
        )
        return 0
    with Progress(number, world.rank == 0) as progress:
        bench = Bench(options, world, memory, Mpicoll(comm), clock, budget, report, progress)
        for job in jobs:
            bench.do(job)
    report.end(time.monotonic() - start)
    if options.json and world.rank == 0:
        with options.json.open("w", encoding="utf-8") as out:
            report.write(out, asdict(options))
    return 1 if report.wrong else 0


def _overlaps(options: Options, jobs: list[Job], bench: Bench) -> None:
    """Measure how much of each call is hidden behind computation, and print it."""
    out = sys.stdout if bench.world.rank == 0 else None
    rows = []
    if out:
        print(HEAD, file=out, flush=True)
    for job in jobs:
        trial = Trial(job.case, _forms(job.case.call, options)[0], bench.world.rank, bench.memory)
        trial.load(0)
        way = bench.way(job.case.call.method, trial.arguments, job.algorithm)
        start = partial(
            getattr(bench.subject.comm, f"I{job.case.call.method.lower()}"), *trial.arguments, algorithm=job.algorithm
        )
        times = overlap(start, bench.clock, bench.memory, options.compute or 0.0, options.iterations or 10)
        rows.append(Overlap(job.case.call.name, job.case.nbytes, str(way), *times))
        if out:
            print(rows[-1], file=out, flush=True)
    if options.json and bench.world.rank == 0:
        found = {"facts": bench.report.header, "rows": [asdict(row) | {"percent": row.percent} for row in rows]}
        options.json.write_text(json.dumps(found, indent=1), encoding="utf-8")


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


def _jobs(options: Options, size: int, largest: int, report: Report) -> list[Job]:
    """Return what to measure; raise RequestError for what can be seen not to work beforehand."""
    if options.roots and max(options.roots) >= size:
        raise RequestError(f"root {max(options.roots)} is out of range for {size} ranks")
    largest = max(largest, options.smallest) if options.largest is None else options.largest
    nbytes = sizes(options.smallest, largest, options.factor)
    jobs: dict[Job, None] = {}  # in order, each once: small sizes may come to the same count
    for call in (CALLS[name] for name in options.calls):
        algorithms = list(_algorithms(call, options.algorithms, size, report))
        for dtype, redop in _types(call, options, report):
            for root in _roots(call, options, size):
                cases = [make_case(call, n, dtype, size, redop, root) for n in nbytes]
                jobs |= dict.fromkeys(Job(case, algorithm) for algorithm in algorithms for case in cases)
    return list(jobs)


def _algorithms(call: Call, names: tuple[str, ...], size: int, report: Report) -> Iterator[str | None]:
    """Return what `algorithm=` shall be, one after the other."""
    known = not call.local
    for name in names:
        if name == "auto":
            yield None
        elif name == "all":
            for card in registry.known(call.row.name):
                why = card.refuses(size, counts_known=known)
                if why:
                    report.refuse(call.name, card.name, why)
                else:
                    yield card.name
        else:
            try:
                registry.require(call.row.name, parse_choice(name).algorithm, size, counts_known=known)
            except (ValueError, UnsupportedError) as error:
                raise RequestError(str(error)) from None
            yield name


def _types(call: Call, options: Options, report: Report) -> list[tuple[str, str]]:
    """Return the dtypes with the operators that are defined for them."""
    if not call.row.reducing:
        return [(dtype, "") for dtype in options.dtypes]
    found = []
    for dtype in options.dtypes:
        for redop in options.redops:
            if kind(dtype_named(dtype)) in REDUCTIONS[redop][1]:
                found.append((dtype, redop))
            else:
                report.refuse("every reduction", redop, f"is not defined for {dtype}")
    if not found:
        redops, dtypes = ", ".join(options.redops), ", ".join(options.dtypes)
        raise RequestError(f"{call.name}: {redops} is not defined for {dtypes}")
    return found


def _roots(call: Call, options: Options, size: int) -> tuple[int, ...]:
    if not call.row.rooted:
        return (0,)
    return tuple(range(size)) if options.roots is None else options.roots


def _forms(call: Call, options: Options) -> tuple[bool, ...]:
    """Return the forms to measure; a call with one form is measured whatever is asked for."""
    return tuple(form for form in call.forms if form in options.forms) or call.forms


@dataclass
class Bench:
    """Does jobs, all ranks together."""

    options: Options
    world: MPI.Intracomm
    memory: Memory
    subject: Mpicoll
    clock: Clock
    budget: Budget
    report: Report
    progress: Progress

    def do(self, job: Job) -> None:
        """Measure and validate a case in its forms, and print its line."""
        done = []
        for in_place in _forms(job.case.call, self.options):
            self.progress.step(f"{job.case.call.name} {job.case.nbytes} B")
            self.budget.begin()
            done.append(self._measure(job, in_place))
        self.progress.clear()
        self.report.add(done)

    def _measure(self, job: Job, in_place: bool) -> Measurement:
        method, options = job.case.call.method, self.options
        trial = Trial(job.case, in_place, self.world.rank, self.memory)
        way = self.way(method, trial.arguments, job.algorithm)
        call = self.subject.bind(method, trial.arguments, job.algorithm)
        wrong = self._validate(trial, call, way, 0)
        seconds = measure(call, self.clock, self.budget, iterations=options.iterations, warmup=options.warmup)
        wrong += self._validate(trial, call, way, 1)
        return Measurement(job.case, way, in_place, seconds, wrong)

    def way(self, method: str, arguments: tuple[Any, ...], algorithm: str | None) -> Way:
        """Return how the call will be carried out; if it cannot be on one rank, all ranks raise."""
        way, why = Way(""), ""
        try:
            way = self.subject.way(method, arguments, algorithm)
        except (ValueError, TypeError, UnsupportedError) as error:
            why = str(error)
        wanted = self.options.path
        if not why and wanted != "auto" and arguments and way.path != wanted:
            aware = self.report.header["aware_reason"]
            why = f"path {wanted} cannot serve {self.memory.kind} arrays here ({aware})"
        for rank, reason in enumerate(self.world.allgather(why)):
            if reason:
                raise RequestError(f"rank {rank}: {reason}")
        return way

    def _validate(self, trial: Trial, call: Callable[[], object], way: Way, iteration: int) -> int:
        """Make a call on fresh numbers and return the wrong elements of all ranks."""
        trial.load(iteration)
        self.memory.synchronize()
        call()
        self.memory.synchronize()
        found = self.world.allgather(trial.wrong())
        for rank, (number, words) in enumerate(found):
            if number:
                form = "in place" if trial.in_place else "out of place"
                what = f"{trial.case.call.name}, {way}, {form}, call {iteration}, rank {rank}"
                self.report.complain(f"{what}: {number} wrong, {words}")
        return sum(number for number, _ in found)
