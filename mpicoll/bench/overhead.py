"""`--overhead`: the library's own cost for each repeated call and each message, on the host.

Four ways of the same messages are timed in turn: the blocking call; the persistent messages of its program,
started and waited for by hand in the same order with mpi4py alone; the nonblocking call with its Wait; Start
and Wait of the persistent call.  Then the blocking call alone, on each rank for itself, with an empty program:
what is left is the look-up of what was decided, and the way from the method to the program.

    extra        blocking - by hand
    per call     the call with an empty program
    per message  (extra - per call) / messages, of the rank with the most; it includes copies and reductions
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from mpicoll.bench.inside import ByHand, Inside, nothing, running
from mpicoll.bench.jobs import Job
from mpicoll.bench.measure import measure

if TYPE_CHECKING:
    from mpicoll.bench.bench import Bench

#: seconds that the design allows the library itself
PER_CALL, PER_MESSAGE = 10e-6, 3e-6
#: timed calls where their number is not given
ITERATIONS = 500
#: loops, and calls in each of them, that time the empty program
LOOPS, CALLS = 20, 50

_WAYS = ("blocking", "by hand", "nonblock.", "persist.", "extra", "per call", "per msg.")
HEAD = (
    f"# budget: {PER_CALL * 1e6:g} us a repeated call over its messages, {PER_MESSAGE * 1e6:g} us a message",
    "#",
    f"{'# call':<21} {'size':>6}  {'algorithm':<28} {'messages':>8}" + "".join(f"{way:>11}" for way in _WAYS),
    f"{'#':<21} {'(B)':>6}  {'':<28} {'':>8}" + f"{'(us)':>11}" * len(_WAYS),
)


@dataclass(frozen=True)
class Overhead:
    """One call; seconds, medians over its repetitions of the slowest rank's.

    Attributes:
        call: its name.
        nbytes: message size.
        algorithm: how it was carried out.
        messages: of the rank with the most.
        blocking: the blocking call.
        by_hand: its messages alone.
        nonblocking: the nonblocking call and its Wait.
        persistent: Start and Wait of the persistent call.
        per_call: the blocking call with an empty program.
    """

    call: str
    nbytes: int
    algorithm: str
    messages: int
    blocking: float
    by_hand: float
    nonblocking: float
    persistent: float
    per_call: float

    @property
    def extra(self) -> float:
        """What the library adds to the messages."""
        return self.blocking - self.by_hand

    @property
    def per_message(self) -> float:
        """What it adds to each message."""
        return (self.extra - self.per_call) / max(self.messages, 1)

    @property
    def within(self) -> bool:
        """It is within the budget."""
        return self.per_call <= PER_CALL and self.per_message <= PER_MESSAGE

    def record(self) -> dict[str, Any]:
        """Return it for the file."""
        times = {name: value for name, value in asdict(self).items() if isinstance(value, float)}
        times |= {"extra": self.extra, "per_message": self.per_message}
        micro = {f"{name}_us": round(value * 1e6, 3) for name, value in times.items()}
        facts = {"call": self.call, "bytes": self.nbytes, "algorithm": self.algorithm, "messages": self.messages}
        return {**facts, **micro, "within_budget": self.within}

    def __str__(self) -> str:
        times = self.blocking, self.by_hand, self.nonblocking, self.persistent, self.extra, self.per_call
        cells = "".join(f"{seconds * 1e6:>11.2f}" for seconds in (*times, self.per_message))
        start = f"{self.call:<21} {self.nbytes:>6}  {self.algorithm:<28} {self.messages:>8}"
        return start + cells + ("" if self.within else "  beyond the budget")


def rows(bench: Bench, jobs: list[Job]) -> Iterator[Overhead]:
    """Measure each job; collective."""
    for job, trial in bench.trials(jobs):
        case = job.case
        way = bench.way(trial, job.algorithm)
        blocking = bench.subject.bind(trial, job.algorithm)
        blocking()
        blocking()
        comm, method = bench.subject.comm, case.call.method
        inside = Inside.of(comm, trial, job.algorithm, bench.memory)
        by_hand = ByHand(inside, bench.world)
        start = partial(getattr(comm, f"I{method.lower()}"), *trial.arguments, algorithm=job.algorithm)
        request = getattr(comm, f"{method}_init")(*trial.arguments, algorithm=job.algorithm)
        ways: list[Callable[[], object]] = [blocking, by_hand, partial(_begun, start), partial(_restarted, request)]
        iterations = bench.options.iterations or ITERATIONS
        seconds = measure(ways, bench.clock, bench.budget, iterations=iterations, warmup=bench.options.warmup)
        by_hand.free()
        request.Free()
        with running(nothing, comm):
            per_call = max(bench.world.allgather(_alone(blocking)))
        messages = max(bench.world.allgather(len(inside.bound.requests)))
        call, hand, nonblocking, persistent = map(_median, seconds)
        times = call, hand, nonblocking, persistent, per_call
        yield Overhead(case.call.name, case.nbytes, str(way), messages, *times)


def _median(seconds: Any) -> float:
    return float(np.median(seconds))


def _begun(start: Callable[[], Any]) -> None:
    start().Wait()


def _restarted(request: Any) -> None:
    request.Start()
    request.Wait()


def _alone(call: Callable[[], object]) -> float:
    """Return the seconds of a call that waits for nobody."""
    times = np.empty(LOOPS)
    for number in range(LOOPS):
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        times[number] = (time.perf_counter() - start) / CALLS
    return _median(times)
