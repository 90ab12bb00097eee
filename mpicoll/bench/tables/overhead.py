"""`--overhead`: the library's own cost for each repeated call and each message, on the host; then `patterns.py`.

Four ways of the same messages are timed in turn: the blocking call; the persistent messages of its program,
started and waited for by hand in the same order with mpi4py alone; the nonblocking call with its Wait; Start
and Wait of the persistent call.  Then the blocking call alone, on each rank for itself, with an empty program:
what is left is the look-up of what was decided, and the way from the method to the program.

    extra        blocking - by hand
    per call     the call with an empty program
    per message  (extra - per call) / messages, of the rank with the most; it includes copies and reductions

Behind a difference is its spread, from the quartiles of the times; one that is not above it is not printed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from mpicoll.bench.contestants.contestant import Way
from mpicoll.bench.contestants.instrument import ByHand, emptied, program_of
from mpicoll.bench.measure.arrays import Arrays
from mpicoll.bench.measure.budget import measure
from mpicoll.bench.measure.clock import loops
from mpicoll.bench.measure.statistics import Statistics, cost, figure, noise
from mpicoll.bench.output.columns import Column, micro
from mpicoll.bench.output.rows import MeasuredCall, Record, quantity, summary
from mpicoll.bench.request.jobs import Job
from mpicoll.bench.tables import patterns
from mpicoll.bench.tables.bench import Bench

#: seconds that the design allows the library itself
PER_CALL, PER_MESSAGE = 10e-6, 3e-6
#: timed calls where their number is not given: as many as fit into the budget, between these
FEWEST, ITERATIONS = 10, 500
#: loops, and calls in each of them, that time the empty program
LOOPS, CALLS = 20, 50

BUDGET = (
    f"# too long: above {PER_CALL * 1e6:g} us a repeated call over its messages, {PER_MESSAGE * 1e6:g} us a message"
)
COLUMNS = (
    Column("msgs.", "", 5, spare=4),
    Column("blocking", "(us)", 8),
    Column("by hand", "(us)", 8, spare=2),
    Column("nonblock.", "(us)", 8, spare=3),
    Column("persist.", "(us)", 8, spare=3),
    Column("per call", "(us)", 8),
    Column("extra", "(us)", 19, spare=5),
    Column("per message", "(us)", 19),
    Column("", "", 8, "left"),
)


@dataclass(frozen=True)
class Overhead:
    """One call; its times are the slowest rank's.

    Attributes:
        call: what was measured.
        messages: of the rank with the most.
        blocking: the blocking call.
        by_hand: its messages alone.
        nonblocking: the nonblocking call and its Wait.
        persistent: Start and Wait of the persistent call.
        per_call: the blocking call with an empty program.
    """

    call: MeasuredCall
    messages: int
    blocking: Statistics
    by_hand: Statistics
    nonblocking: Statistics
    persistent: Statistics
    per_call: Statistics

    @property
    def extra(self) -> tuple[float, float]:
        """Seconds (difference, spread) that the library adds to the messages; nothing can be less than none."""
        return cost(self.blocking.median - self.by_hand.median, noise(self.blocking, self.by_hand))

    @property
    def per_message(self) -> tuple[float, float]:
        """Seconds (difference, spread) that the library adds to each message."""
        number = max(self.messages, 1)
        spread = noise(self.blocking, self.by_hand, self.per_call)
        more = self.blocking.median - self.by_hand.median - self.per_call.median
        return cost(more / number, spread / number)

    @property
    def within(self) -> bool:
        """Nothing above its noise is beyond the budget."""
        each, spread = self.per_message
        return self.per_call.median <= PER_CALL and not max(PER_MESSAGE, spread) < each

    def record(self) -> Record:
        """Return it for the file; a difference below its noise is None."""
        names = ("blocking", "by_hand", "nonblocking", "persistent", "per_call")
        times = {name.replace("_", " "): summary(getattr(self, name)) for name in names}
        differences = {"extra": self.extra, "per message": self.per_message}
        figures = {name: quantity(value * 1e6, "us", spread * 1e6) for name, (value, spread) in differences.items()}
        return self.call.record(times, {"messages": quantity(self.messages, ""), **figures})

    def cells(self) -> Iterator[tuple[str, ...]]:
        """Yield its cells."""
        times = self.blocking, self.by_hand, self.nonblocking, self.persistent, self.per_call
        yield (
            str(self.messages),
            *(micro(one.median) for one in times),
            *(figure(value * 1e6, spread * 1e6) for value, spread in (self.extra, self.per_message)),
            "" if self.within else "too long",
        )


def table(bench: Bench, jobs: Iterable[Job]) -> None:
    """Measure each job, on the host, and the patterns of an allreduce if that is among them; collective."""
    if bench.backend.device < 0:
        bench.report.say(BUDGET)
        bench.head(*COLUMNS)
        for row in bench.measured(jobs, partial(_measured, bench)):
            bench.add(row)
    if patterns.sizes(bench.options) and not bench.report.interruption:
        patterns.table(bench)


def _measured(bench: Bench, job: Job, arrays: Arrays, way: Way) -> Overhead:
    blocking = bench.contestant.bind(arrays, job.algorithm)
    comm, method = bench.contestant.comm, job.case.call.method
    blocking()
    bound = program_of(blocking)
    by_hand = ByHand(bound, bench.world)
    start = partial(getattr(comm, f"I{method.lower()}"), *arrays.arguments, algorithm=job.algorithm)
    request = getattr(comm, f"{method}_init")(*arrays.arguments, algorithm=job.algorithm)
    ways: list[Callable[[], object]] = [blocking, by_hand, partial(_begun, start), partial(_restarted, request)]
    begun = time.monotonic()
    for one in ways:
        one()
    each = time.monotonic() - begun
    iterations = bench.options.iterations or bench.budget.number(each, FEWEST, ITERATIONS)
    seconds = measure(ways, bench.clock, bench.budget, iterations=iterations, warmup=bench.options.warmup)
    by_hand.free()
    request.Free()
    with emptied(bound):
        alone = Statistics.of(loops(blocking, LOOPS, CALLS))
        per_call = max(bench.world.allgather(alone), key=lambda one: one.median)
    messages = max(bench.world.allgather(len(bound.requests)))
    call, hand, nonblocking, persistent = map(Statistics.of, seconds)
    measured = bench.called(job, way, arrays.in_place)
    return Overhead(measured, messages, call, hand, nonblocking, persistent, per_call)


def _begun(start: Callable[[], Any]) -> None:
    start().Wait()


def _restarted(request: Any) -> None:
    request.Start()
    request.Wait()
