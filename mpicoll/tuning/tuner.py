"""The tuner: probes, then races of all that is worth a try, then more sizes where the winner changes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

from mpi4py import MPI

from mpicoll.analysis.cost import CostModel
from mpicoll.bench.contestants.contestant import Mpicoll, Way
from mpicoll.bench.errors import ShortageError
from mpicoll.bench.measure.arrays import Arrays
from mpicoll.bench.measure.backends import Backend, in_memory
from mpicoll.bench.measure.clock import Clock
from mpicoll.bench.measure.race import Goal, Runner, race
from mpicoll.bench.measure.visits import VISITS, Visits
from mpicoll.bench.output.rows import MeasuredCall, Record, quantity, summary
from mpicoll.bench.request.cases import CALLS, Case, make_case
from mpicoll.communicator import Communicator
from mpicoll.dispatch.facts import Facts
from mpicoll.dispatch.machine_facts import MachineFacts
from mpicoll.dispatch.measured import Timing
from mpicoll.dispatch.rules import Choice
from mpicoll.dispatch.table import Table
from mpicoll.dispatch.tuning import Tuning
from mpicoll.errors import UnsupportedError
from mpicoll.runtime.context.contexts import context_of
from mpicoll.schedule.topology import Topology
from mpicoll.tuning.choose import rules
from mpicoll.tuning.contenders import FAR, HOPELESS, PROBES, contenders, sizes
from mpicoll.tuning.fit import model_of
from mpicoll.tuning.gaps import bends, changes, disturbed
from mpicoll.tuning.pings import measured_link

#: half-width of an interval at which an algorithm's time is known well enough
PRECISE = 0.02
#: part of a visit's time for the sizes that are measured anyway; the rest is for those where the winner changes
PLANNED = 0.7
#: seconds of a probe
PROBE = 0.1
#: rounds of a race of which a time is written down: that of one that left before is no more than a bound
ROUNDS = 3

#: is told after each measurement how much is done, from 0 to 1, and what was measured
Tell = Callable[[float, str], None]


@dataclass
class Tuner:
    """Measures one communicator.

    Attributes:
        comm: the communicator.
        backend: where its arrays live.
        clock: takes the times.
        seconds: that all visits may take.
        tell: shows progress.
        now: seconds on some clock.
        timings: what was measured, by collective and message size.
        met: what each visit found, by the same.
        runners: what was found of every choice.
        plan: (call, message size in bytes) of what each visit measures.
        native: MPI's own collectives race, too.
    """

    comm: Communicator
    backend: Backend
    clock: Clock
    seconds: float
    tell: Tell = lambda part, what: None
    now: Callable[[], float] = time.monotonic
    timings: dict[tuple[str, int], Timing] = field(default_factory=dict)
    met: dict[tuple[str, int], Visits[Choice]] = field(default_factory=dict)
    runners: list[tuple[Case, Choice, Runner]] = field(default_factory=list)
    tuning: Tuning = field(default_factory=Tuning)
    plan: list[tuple[str, int]] = field(default_factory=list)
    native: bool = False

    def __post_init__(self) -> None:
        self.world = MPI.Intracomm(self.comm)
        self.table = Table("measured", self.machine, (), {}, ())
        self.start, self.visit = self.now(), 0

    def run(self, calls: Iterable[str], longest: int) -> Table:
        """Return the table; collective.

        Args:
            calls: names of methods, in lower case.
            longest: bytes of the longest message.
        """
        for _ in self.visits(calls, longest):
            pass
        return self.table

    def visits(self, calls: Iterable[str], longest: int) -> Iterator[None]:
        """Visit all sizes again and again, each time for a part of the seconds; arguments as in `run`.

        Another tuner can have its visit in between.  Sizes where the winner changes come in addition, but for the last
        visit, so that each is met twice at least.
        """
        names, used = list(calls), 0.0
        self.plan = [(name, n) for name in names for n in self._sizes(name, longest)]
        for visit in range(VISITS):
            self.visit, self.start = visit, self.now()
            if visit == 0:
                self._probe()
            last, seconds = visit + 1 == VISITS, max(self.seconds - used, 0.0) / (VISITS - visit)
            self._survey(self.start + seconds * (1 if last else PLANNED))
            self._fit()
            if last:
                self._leave_out(names)
            else:
                self._refine(names, self.start + seconds)
            self._fit()
            self._told(1.0, "" if last else names[-1])
            used += self.now() - self.start
            yield

    def _sizes(self, name: str, longest: int) -> list[int]:
        """Return a call's message sizes in bytes; none twice, though they are rounded to whole elements of ranks."""
        asked = sizes(longest) if CALLS[name].row.name != "barrier" else [0]
        return list(dict.fromkeys(self._case(name, nbytes).nbytes for nbytes in asked))

    def _case(self, name: str, nbytes: int) -> Case:
        return make_case(CALLS[name], nbytes, "float32", self.comm.size, "SUM", 0)

    def _survey(self, end: float) -> None:
        """Measure all sizes that are known, until a time; in the first visit all of them, however long that takes."""
        known = list(self.plan)
        for place, (name, nbytes) in enumerate(known):
            if self.visit and not self._left(end):
                return
            self._measure(name, nbytes, self._left(end) / (len(known) - place))
            self._told(PLANNED * (place + 1) / len(known), name)

    def _told(self, part: float, what: str) -> None:
        """Tell which part of this visit is done."""
        self.tell((self.visit + part) / VISITS, what)

    def records(self) -> Iterator[Record]:
        """Yield a row for each time that was measured, with its interval, for a file of results."""
        for case, choice, runner in self.runners:
            way = Way(choice.algorithm, choice.segments, choice.path, "raced")
            ratio = quantity(runner.ratio.median, "", runner.ratio.spread)
            call = MeasuredCall(case, way, False, str(choice), self.backend.memory)
            yield call.record({"mpicoll": summary(runner.seconds)}, {"ratio to the reference": ratio})

    def _left(self, end: float) -> float:
        """Return the seconds until a time, as rank 0 sees it."""
        return float(self.world.bcast(max(end - self.now(), 0.0), root=0))

    def _probe(self) -> None:
        """Measure what fixes the parameters of each path's model, and fit them; on several hosts level by level."""
        if self.topology.host_of:
            link = measured_link(self.world, self.topology, self.clock)
            self.table = replace(self.table, models=self._models_of_a_host(), link=link)
            self.tuning = Tuning((self.table,), self.machine)
            return
        for name, algorithm, nbytes in PROBES:
            for n in nbytes:
                self._measure(name, n, PROBE, algorithm)
        self._fit()
        self.timings.clear()  # the races measure them better
        self.met.clear()

    def _models_of_a_host(self) -> dict[str, CostModel]:
        """Return what ranks of the largest host find among themselves, while others do the same; collective."""
        host_of, groups = self.topology.host_of, self.topology.groups
        inside = MPI.Intracomm(self.world.Split(host_of[self.comm.rank], self.comm.rank))
        own, found = Communicator(inside), dict[str, CostModel]()
        if own.size > 1:
            clock = Clock(inside, self.clock.yielding, self.clock.synchronize)
            tuner = Tuner(own, self.backend, clock, self.seconds)
            tuner._probe()
            found = tuner.table.models
        own.Free()
        return dict(self.world.bcast(found, root=max(groups, key=len)[0]))

    def _measure(self, name: str, nbytes: int, seconds: float, only: str = "", hopeless: float = HOPELESS) -> None:
        """Race all that is worth a try at one size; or all paths of one algorithm.

        Args:
            name: of the call.
            nbytes: message size in bytes.
            seconds: that it may take.
            only: the algorithm.
            hopeless: as in `contenders`.
        """
        case = self._case(name, nbytes)
        key = case.call.row.name, case.nbytes
        visits = self.met.setdefault(key, Visits())
        try:
            arrays = in_memory(self.world, partial(Arrays, case, False, self.comm.rank, self.backend))
            in_memory(self.world, partial(arrays.load, 0))
            met = visits.found and not only
            choices = visits.left(visits.runners()) if met else self._choices(arrays, only, hopeless)
        except (ShortageError, UnsupportedError):
            return
        calls = [Mpicoll(self.comm).bind(arrays, str(choice)) for choice in choices]
        found = race(calls, self.clock, self.world, Goal(PRECISE, seconds), self.now)
        least = min(ROUNDS, max(one.ratio.number for one in found))  # a race may end before that
        visits.found.append({c: one for c, one in zip(choices, found, strict=True) if one.ratio.number >= least})
        times = {choice: one.estimate for choice, one in visits.runners().items()}
        facts = self._facts(arrays)
        self.timings[key] = Timing(*key, self.comm.size, facts.memory, facts.gpus, times)
        self.runners += [(case, choice, one) for choice, one in zip(choices, found, strict=True)]
        self.tuning = Tuning((replace(self.table, timings=tuple(self.timings.values())),), self.machine)

    def _choices(self, arrays: Arrays, only: str, hopeless: float) -> list[Choice]:
        """Return what is measured, of which each can serve."""
        facts = self._facts(arrays)
        if only:
            return [Choice(only, 1, path) for path in facts.paths]
        found = contenders(facts, self.tuning, hopeless, native=self.native)
        return list(self.world.bcast(found, root=0))

    def _facts(self, arrays: Arrays) -> Facts:
        plan = self.comm.Get_plan(arrays.case.call.method, *arrays.arguments)
        return plan.key.facts

    def _fit(self) -> None:
        """Fit the model of each path to what was measured, and predict with it from now on."""
        self.table = self._table()
        self.tuning = Tuning((self.table,), self.machine)

    def _table(self) -> Table:
        timings = list(self.timings.values())
        paths = {choice.path for timing in timings for choice in timing.times} - {""}
        known = dict(self.table.models)
        if not self.topology.host_of:  # there the times are those of two levels, and a model is of one
            models = {path: model_of(timings, path, self.tuning.model(path), "measured") for path in sorted(paths)}
            known |= {path: model for path, model in models.items() if model}
        names, topology = sorted({timing.collective for timing in timings}), self.topology
        found = [rule for name in names for rule in rules(self._of(name), topology)]
        return Table("measured", self.machine, tuple(found), known, tuple(timings), self.table.link)

    def _of(self, collective: str) -> list[Timing]:
        """Return a collective's timings by ascending size."""
        return [self.timings[key] for key in sorted(self.timings) if key[0] == collective]

    @property
    def machine(self) -> MachineFacts:
        """The machine that is measured."""
        return context_of(self.comm).machine

    @property
    def topology(self) -> Topology:
        """Where its ranks are."""
        return context_of(self.comm).topology

    def _refine(self, names: list[str], end: float) -> None:
        """Measure the sizes that are missing, the first one first, until a time."""
        tried = {(False, *one) for one in self.plan}
        while True:
            mine = [one for one in self._missing(names) if one not in tried] if self.world.rank == 0 else []
            found, left = self.world.bcast(mine, root=0), self._left(end)
            if not found or left <= 0:
                return
            again, name, nbytes = found[0]
            tried.add(found[0])
            if again:
                self.met.pop((CALLS[name].row.name, nbytes), None)
            else:
                self.plan.append((name, nbytes))
            self._measure(name, nbytes, max(left / len(found), 0.05), hopeless=HOPELESS if again else FAR)
            self._told(1 - left / max(end - self.start, 1e-9), name)

    def _missing(self, names: list[str]) -> list[tuple[bool, str, int]]:
        """Return (measured before, call, size in bytes): disturbed ones, the widest gap, then the sharpest bend."""
        of = {name: self._of(CALLS[name].row.name) for name in names}
        again = [(True, name, nbytes) for name in names for nbytes in disturbed(of[name])]
        wide = [(ratio, name, nbytes) for name in names for ratio, nbytes in changes(of[name])]
        bent = [(far, name, nbytes) for name in names for far, nbytes in bends(of[name], self.tuning)]
        new = sorted(wide, reverse=True) + sorted(bent, reverse=True)
        return again + [(False, name, self._case(name, nbytes).nbytes) for _, name, nbytes in new]

    def _leave_out(self, names: list[str]) -> None:
        """Forget the times of disturbed sizes for the table: those around them say more."""
        for name in (CALLS[name].row.name for name in names):
            for nbytes in list(disturbed(self._of(name))):
                del self.timings[name, nbytes]
