"""A run's parts, and its jobs with their arrays: what the tables share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from mpi4py import MPI

from mpicoll.bench.contestants.contestant import Contestant, Mpicoll, Way
from mpicoll.bench.errors import RefusedError, ShortageError
from mpicoll.bench.measure.arrays import Arrays
from mpicoll.bench.measure.backends import Backend, in_memory
from mpicoll.bench.measure.budget import Budget
from mpicoll.bench.measure.clock import Clock
from mpicoll.bench.output.report import Report
from mpicoll.bench.output.rows import MeasuredCall
from mpicoll.bench.request.jobs import Job
from mpicoll.bench.request.options import PATIENCE, Options
from mpicoll.errors import UnsupportedError
from mpicoll.runtime.context.contexts import context_of


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
    """

    options: Options
    world: MPI.Intracomm
    backend: Backend
    contestant: Mpicoll
    baselines: dict[str, Contestant]
    clock: Clock
    budget: Budget
    report: Report

    def paced(self, jobs: list[Job]) -> Iterator[Job]:
        """Yield jobs until the run has taken far more than its budget."""
        for job in jobs:
            if self.budget.overrun():
                self.report.interruption = f"{PATIENCE} times the budget of {self.options.budget:g} s is spent"
                return
            yield job

    def prepared(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Arrays, Way]]:
        """Yield jobs in their forms with their arrays, and how they are carried out; the refused are left out."""
        for job in jobs:
            for in_place in job.forms:
                with self.leaving_out(job, in_place):
                    arrays = self.arrays(job, in_place)
                    in_memory(self.world, partial(arrays.load, 0))
                    way = self.way(arrays, job.algorithm)
                    yield job, arrays, way

    def arrays(self, job: Job, in_place: bool) -> Arrays:
        """Return a job's arrays, allocated."""
        return in_memory(self.world, partial(Arrays, job.case, in_place, self.world.rank, self.backend))

    def called(self, job: Job, way: Way, in_place: bool) -> MeasuredCall:
        """Return a job's call in one form, for its row."""
        memory = "host" if self.backend.kind == "numpy" else "device"
        return MeasuredCall(job.case, way, in_place, job.algorithm or "auto", memory)

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


def form_name(in_place: bool) -> str:
    """Return the name of a form."""
    return "in place" if in_place else "out of place"


def way_of(contestant: Contestant, arrays: Arrays, algorithm: str | None) -> tuple[Way, str]:
    """Return (way of a call, "") or (an empty way, why there is none)."""
    try:
        return contestant.way(arrays, algorithm), ""
    except (ValueError, TypeError, UnsupportedError) as error:
        return Way(""), str(error)
