"""A run's parts, and its jobs with their arrays: what the tables share."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import Any, TypeVar

from mpi4py import MPI

from mpicoll.bench.contestants import baselines
from mpicoll.bench.contestants.contestant import Contestant, Mpicoll, Way
from mpicoll.bench.errors import RefusedError, ShortageError
from mpicoll.bench.measure.arrays import Arrays
from mpicoll.bench.measure.backends import Backend, in_memory
from mpicoll.bench.measure.budget import Budget
from mpicoll.bench.measure.clock import Clock, rest
from mpicoll.bench.measure.steady import Steadiness
from mpicoll.bench.output.columns import Column, Columns, line_width
from mpicoll.bench.output.report import Report
from mpicoll.bench.output.rows import MeasuredCall
from mpicoll.bench.request.jobs import Job
from mpicoll.bench.request.options import Options
from mpicoll.bench.tables.call_columns import CallColumns, CallLines, CallRow
from mpicoll.communicator import Communicator
from mpicoll.errors import UnsupportedError
from mpicoll.runtime.context.contexts import context_of
from mpicoll.runtime.mpi.waiter import cores

R = TypeVar("R")


@dataclass
class Bench:
    """A run's parts; all ranks do the same jobs together.

    Attributes:
        options: what is asked for.
        world: all ranks; a communicator of mpi4py's own.
        backend: where this rank's arrays live.
        contestant: mpicoll, which is measured.
        baselines: by name, what is measured in turn with it.
        clock: takes the times.
        budget: says how often a call is timed.
        report: prints and writes what is measured.
        calls: the first columns of the tables.
        steady: how fast the machine itself is.
        visit: number of the visit to all measurements, from 1 on.
        met: what earlier visits found, by measurement.
    """

    options: Options
    world: MPI.Intracomm
    backend: Backend
    contestant: Mpicoll
    baselines: dict[str, Contestant]
    clock: Clock
    budget: Budget
    report: Report
    calls: CallColumns
    steady: Steadiness = field(default_factory=Steadiness)
    visit: int = 1
    met: dict[Hashable, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, options: Options, world: MPI.Intracomm, backend: Backend, report: Report) -> Bench:
        """Return the parts of a run without baselines, before it is known how much there is to measure; collective.

        Args:
            options: what is asked for.
            world: all ranks; a communicator of mpi4py's own.
            backend: where this rank's arrays live.
            report: prints and writes.
        """
        clock = Clock(world, crowded(world), backend.synchronize, options.sync)
        budget, calls = Budget(world, options.budget, 0), CallColumns((), options, backend.device < 0)
        return cls(options, world, backend, Mpicoll(Communicator(world)), {}, clock, budget, report, calls)

    def on_first(self, number: int) -> Bench | None:
        """Return the same for the first so many ranks, with baselines, on these ranks; collective over all."""
        mine, found = self.world.rank < number, replace(self, met={})
        if number < self.world.size:
            world = MPI.Intracomm(self.world.Split(0 if mine else MPI.UNDEFINED))
            if not mine:
                return None
            found = replace(Bench.of(self.options, world, self.backend, self.report), steady=self.steady)
        aware = context_of(found.contestant.comm).cuda_aware
        found.baselines, refused = baselines.make(self.options.baselines, found.world, self.backend, aware)
        for name, why in refused.items():
            self.report.refuse("every call", f"baseline {name}:", why)
        return found

    def leave(self, part: Bench | None) -> None:
        """End what the first ranks have measured, while the others sleep; collective over all."""
        rest(self.world)
        if part and part.world is not self.world:
            part.world.Free()

    def paced(self, jobs: list[Job]) -> Iterator[Job]:
        """Yield jobs, case by case, until the budget is spent; collective.

        A case's jobs are those that are compared. They are next to each other, so that what changes slowly changes for
        all, and in random order, so that none always follows the same one.  Cases keep their order: the table is
        printed while it is measured, and can be read.
        """
        cells = [list(found) for _, found in groupby(jobs, key=lambda job: job.case)]
        order = random.Random(self.options.seed)
        self.steady.look(self.world)
        for number, cell in enumerate(cells):
            if self.budget.spent():
                left = sum(len(job.forms) for cell in cells[number:] for job in cell)
                self.report.interruption = f"the budget of {self.options.budget:g} s is spent, {left} are left out"
                break
            if number == len(cells) // 2:
                self.steady.look(self.world)
            yield from order.sample(cell, len(cell)) if self.options.shuffle else cell
        self.steady.look(self.world)

    def measured(self, jobs: Iterable[Job], measure: Callable[[Job, Arrays, Way], R]) -> Iterator[R]:
        """Yield what is measured of jobs in their forms; the refused are left out.

        Args:
            jobs: one after the other.
            measure: measures a job's calls; its arrays are loaded.
        """
        for job in jobs:
            for in_place in job.forms:
                self.budget.begin()
                with self.leaving_out(job, in_place):
                    arrays = self.arrays(job, in_place)
                    in_memory(self.world, partial(arrays.load, 0))
                    found = measure(job, arrays, self.way(arrays, job.algorithm))
                    yield found

    def arrays(self, job: Job, in_place: bool) -> Arrays:
        """Return a job's arrays, allocated."""
        return in_memory(self.world, partial(Arrays, job.case, in_place, self.world.rank, self.backend))

    def called(self, job: Job, way: Way, in_place: bool) -> MeasuredCall:
        """Return a job's call in one form, for its row."""
        return MeasuredCall(job.case, way, in_place, job.algorithm or "auto", self.backend.memory)

    def head(self, *columns: Column) -> None:
        """Print the head of a table of calls, as wide as the terminal."""
        wide = Columns(*self.calls.columns, *columns)
        shown = wide if self.options.wide else wide.fitted(line_width())
        said = [f"# {', '.join(self.calls.said)}"] if self.calls.said else []
        said += [f"# not shown: {', '.join(shown.left_out)} (--wide)"] if shown.left_out else []
        self.report.head(shown, *said, "#")

    def line(self, row: CallRow, *cells: str) -> None:
        """Print a row of a table of calls: the call, and other cells."""
        self.report.line(*self.calls.cells(row.call), *cells)

    def add(self, row: CallLines) -> None:
        """Write down what was measured of a call, and print its lines."""
        self.report.keep(row)
        for cells in row.cells():
            self.line(row, *cells)

    @contextmanager
    def leaving_out(self, job: Job, in_place: bool) -> Iterator[None]:
        """Report what is refused within, and go on after it."""
        try:
            yield
        except RefusedError as error:
            size = f"{job.case.nbytes} B, {form_name(in_place)}:"
            name = size if isinstance(error, ShortageError) else f"{job.algorithm or 'auto'}:"
            self.report.refuse(job.case.call.name, name, str(error))

    def way(self, arrays: Arrays, algorithm: str | None) -> Way:
        """Return the way of the call; if one rank has none, all ranks raise RefusedError."""
        way, why = way_of(self.contestant, arrays, algorithm)
        wanted = self.options.path
        if not why and wanted != "auto" and arrays.arguments and way.path != wanted:
            why = f"path {wanted} cannot serve {self.backend.kind} arrays here ({self._why_not(wanted)})"
        reasons = self.world.allgather(why)
        rank, reason = next(((rank, reason) for rank, reason in enumerate(reasons) if reason), (0, ""))
        if reason:
            reason = reason.removeprefix(f"{arrays.case.call.row.name}: ")
            raise RefusedError(reason if all(reasons) else f"rank {rank}: {reason}")
        return way

    def _why_not(self, path: str) -> str:
        """Return the reason why a path does not serve."""
        kept = context_of(self.contestant.comm).attached.get(path)
        return kept if isinstance(kept, str) else str(self.report.header["aware_reason"])


def crowded(world: MPI.Intracomm) -> bool:
    """Tell whether some host has more ranks than cores; collective."""
    found = world.allgather((MPI.Get_processor_name(), cores()))
    ranks = Counter(host for host, _ in found)
    return any(ranks[host] > number for host, number in found)


def form_name(in_place: bool) -> str:
    """Return the name of a form."""
    return "in place" if in_place else "out of place"


def way_of(contestant: Contestant, arrays: Arrays, algorithm: str | None) -> tuple[Way, str]:
    """Return (way of a call, "") or (an empty way, why there is none)."""
    try:
        return contestant.way(arrays, algorithm), ""
    except (ValueError, TypeError, UnsupportedError) as error:
        return Way(""), str(error)
