"""The table of times: each of its lines is measured and validated here, on all ranks together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from mpi4py import MPI

from mpicoll.bench.clock import Clock
from mpicoll.bench.jobs import Job, forms
from mpicoll.bench.measure import PATIENCE, Budget, measure
from mpicoll.bench.memory import Memory, ShortageError, in_memory
from mpicoll.bench.options import Options
from mpicoll.bench.progress import Progress
from mpicoll.bench.report import Measurement, Report
from mpicoll.bench.subject import Mpicoll, RefusedError, Subject, Way, anywhere
from mpicoll.bench.trial import Trial
from mpicoll.errors import UnsupportedError
from mpicoll.runtime.context.contexts import context_of

Call = Callable[[], object]


@dataclass
class Bench:
    """Does jobs, all ranks together."""

    options: Options
    world: MPI.Intracomm
    memory: Memory
    subject: Mpicoll
    baselines: dict[str, Subject]
    clock: Clock
    budget: Budget
    report: Report
    progress: Progress

    def paced(self, jobs: list[Job]) -> Iterator[Job]:
        """Yield jobs until the run has taken far more than its budget."""
        for job in jobs:
            if self.budget.overrun():
                self.report.interruption = f"{PATIENCE} times the budget of {self.options.budget:g} s is spent"
                return
            yield job

    def do(self, job: Job) -> None:
        """Measure and validate a case in its forms, and print its line."""
        done = []
        for in_place in forms(job.case.call, self.options):
            self.step(job)
            self.budget.begin()
            with self._leaving_out(job, in_place):
                done.append(self._measure(job, in_place))
                self.report.keep(done[-1])
        self.progress.clear()
        if done:
            self.report.line(done)

    def step(self, job: Job) -> None:
        """Show what comes now."""
        self.progress.step(f"{job.case.call.name} {job.case.nbytes} B")

    def trials(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Trial, Way]]:
        """Yield jobs in their forms with their arrays, and how they are carried out; the refused are left out."""
        for job in jobs:
            for in_place in forms(job.case.call, self.options):
                self.step(job)
                with self._leaving_out(job, in_place):
                    trial = self._trial(job, in_place)
                    in_memory(self.world, partial(trial.load, 0))
                    way = self.way(trial, job.algorithm)
                    self.progress.clear()
                    yield job, trial, way

    def _trial(self, job: Job, in_place: bool) -> Trial:
        """Allocate a job's arrays."""
        return in_memory(self.world, partial(Trial, job.case, in_place, self.world.rank, self.memory))

    @contextmanager
    def _leaving_out(self, job: Job, in_place: bool) -> Iterator[None]:
        """Report what is refused within, and go on behind."""
        try:
            yield
        except RefusedError as error:
            self.progress.clear()
            size = f"{job.case.nbytes} B, {_form(in_place)}:"
            name = size if isinstance(error, ShortageError) else f"{job.algorithm or 'auto'}:"
            self.report.refuse(job.case.call.name, name, str(error))

    def _measure(self, job: Job, in_place: bool) -> Measurement:
        options, trial = self.options, self._trial(job, in_place)
        way = self.way(trial, job.algorithm)
        call = self.subject.bind(trial, job.algorithm)
        wrong = self._validate(trial, call, str(way), 0)
        self.report.wrong += wrong
        others = self._others(trial)
        seconds, *of_others = measure(
            [call, *others.values()], self.clock, self.budget, iterations=options.iterations, warmup=options.warmup
        )
        after = self._validate(trial, call, str(way), 1)
        self.report.wrong += after
        return Measurement(job.case, way, in_place, seconds, wrong + after, dict(zip(others, of_others, strict=True)))

    def way(self, trial: Trial, algorithm: str | None) -> Way:
        """Return how the call will be carried out; if it cannot be on one rank, all ranks raise RefusedError."""
        way, why = _way(self.subject, trial, algorithm)
        wanted = self.options.path
        if not why and wanted != "auto" and trial.arguments and way.path != wanted:
            why = f"path {wanted} cannot serve {self.memory.kind} arrays here ({self._why_not(wanted)})"
        reasons = self.world.allgather(why)
        rank, reason = next(((rank, reason) for rank, reason in enumerate(reasons) if reason), (0, ""))
        if reason:
            reason = reason.removeprefix(f"{trial.case.call.row.name}: ")
            raise RefusedError(reason if all(reasons) else f"rank {rank}: {reason}")
        return way

    def _why_not(self, path: str) -> str:
        """Return what was found out about a path that does not serve."""
        peers = getattr(context_of(self.subject.comm), "peers", None)
        return peers if path == "mapped" and isinstance(peers, str) else str(self.report.header["aware_reason"])

    def _others(self, trial: Trial) -> dict[str, Call]:
        """Return the baselines' calls, those that can serve and are right."""
        found = {}
        for name, baseline in self.baselines.items():
            why = anywhere(self.world, _way(baseline, trial, None)[1])
            if not why:
                what = f"{_form(trial.in_place)}, {trial.case.nbytes} B of {trial.case.dtype}"
                try:
                    call = in_memory(self.world, partial(baseline.bind, trial, None))
                except ShortageError as error:
                    why = f"{what}: {error}"
                else:
                    if not baseline.exact or not self._validate(trial, call, name, 0):
                        found[name] = call
                        continue
                    why = f"wrong results, {what}"
            self.report.refuse(trial.case.call.name, f"baseline {name}:", why)
        return found

    def _validate(self, trial: Trial, call: Call, way: str, iteration: int) -> int:
        """Make a call on fresh numbers and return the wrong elements of all ranks."""
        in_memory(self.world, partial(trial.load, iteration))
        self.memory.synchronize()
        call()
        self.memory.synchronize()
        found = self.world.allgather(in_memory(self.world, trial.wrong))
        for rank, (number, words) in enumerate(found):
            if number:
                what = f"{trial.case.call.name}, {way}, {_form(trial.in_place)}, call {iteration}, rank {rank}"
                self.report.complain(f"{what}: {number} wrong, {words}")
        return sum(number for number, _ in found)


def times(bench: Bench, jobs: Iterable[Job]) -> None:
    """Make the table of times."""
    bench.report.head()
    for job in jobs:
        bench.do(job)


def _form(in_place: bool) -> str:
    return "in place" if in_place else "out of place"


def _way(subject: Subject, trial: Trial, algorithm: str | None) -> tuple[Way, str]:
    """Return how a call would be carried out, or why it cannot be."""
    try:
        return subject.way(trial, algorithm), ""
    except (ValueError, TypeError, UnsupportedError) as error:
        return Way(""), str(error)
