"""The table of times: each of its lines is measured and validated here, on all ranks together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from mpi4py import MPI

from mpicoll.bench.clock import Clock
from mpicoll.bench.jobs import Job, forms
from mpicoll.bench.measure import Budget, measure
from mpicoll.bench.memory import Memory, ShortageError, in_memory
from mpicoll.bench.options import Options, RequestError
from mpicoll.bench.progress import Progress
from mpicoll.bench.report import Measurement, Report
from mpicoll.bench.subject import Mpicoll, Subject, Way, anywhere
from mpicoll.bench.trial import Trial
from mpicoll.errors import UnsupportedError
from mpicoll.runtime.channels import channel_of

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

    def do(self, job: Job) -> None:
        """Measure and validate a case in its forms, and print its line."""
        done = []
        for in_place in forms(job.case.call, self.options):
            self.progress.step(f"{job.case.call.name} {job.case.nbytes} B")
            self.budget.begin()
            try:
                done.append(self._measure(job, in_place))
            except ShortageError as error:
                self._leave_out(job, in_place, error)
        self.progress.clear()
        if done:
            self.report.add(done)

    def trials(self, jobs: list[Job], every_form: bool = False) -> Iterator[tuple[Job, Trial]]:
        """Yield jobs, in one form or in all, with their arrays; those for which memory is too little are left out."""
        for job in jobs:
            for in_place in forms(job.case.call, self.options)[: None if every_form else 1]:
                try:
                    trial = self._trial(job, in_place)
                    in_memory(self.world, partial(trial.load, 0))
                except ShortageError as error:
                    self._leave_out(job, in_place, error)
                else:
                    yield job, trial

    def _trial(self, job: Job, in_place: bool) -> Trial:
        """Allocate a job's arrays."""
        return in_memory(self.world, partial(Trial, job.case, in_place, self.world.rank, self.memory))

    def _leave_out(self, job: Job, in_place: bool, why: ShortageError) -> None:
        self.progress.clear()
        self.report.refuse(job.case.call.name, f"{job.case.nbytes} B, {_form(in_place)}:", str(why))

    def _measure(self, job: Job, in_place: bool) -> Measurement:
        options, trial = self.options, self._trial(job, in_place)
        way = self.way(trial, job.algorithm)
        call = self.subject.bind(trial, job.algorithm)
        wrong = self._validate(trial, call, str(way), 0)
        try:
            others = self._others(trial)
            seconds, *of_others = measure(
                [call, *others.values()], self.clock, self.budget, iterations=options.iterations, warmup=options.warmup
            )
            wrong += self._validate(trial, call, str(way), 1)
        except ShortageError:
            self.report.wrong_unmeasured += wrong
            raise
        return Measurement(job.case, way, in_place, seconds, wrong, dict(zip(others, of_others, strict=True)))

    def way(self, trial: Trial, algorithm: str | None) -> Way:
        """Return how the call will be carried out; if it cannot be on one rank, all ranks raise."""
        way, why = _way(self.subject, trial, algorithm)
        wanted = self.options.path
        if not why and wanted != "auto" and trial.arguments and way.path != wanted:
            why = f"path {wanted} cannot serve {self.memory.kind} arrays here ({self._why_not(wanted)})"
        for rank, reason in enumerate(self.world.allgather(why)):
            if reason:
                raise RequestError(f"rank {rank}: {reason}")
        return way

    def _why_not(self, path: str) -> str:
        """Return what was found out about a path that does not serve."""
        peers = getattr(channel_of(self.subject.comm), "peers", None)
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


def _form(in_place: bool) -> str:
    return "in place" if in_place else "out of place"


def _way(subject: Subject, trial: Trial, algorithm: str | None) -> tuple[Way, str]:
    """Return how a call would be carried out, or why it cannot be."""
    try:
        return subject.way(trial, algorithm), ""
    except (ValueError, TypeError, UnsupportedError) as error:
        return Way(""), str(error)
