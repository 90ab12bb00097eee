"""The instrument: what a blocking call's program consists of, and how long each of its instructions takes.

A program is a list of callables with everything packed, such as that of an allreduce on 2 ranks:

    position   0        1       2
    kind       start    wait    launch      (the last one adds the received numbers on the host)
    seconds    1.2e-6   8.0e-6  1.5e-6
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from mpi4py import MPI

from mpicoll.runtime.program.bound import Bound, observed
from mpicoll.schedule.program import Program, Start, Wait

#: parts of a call's time; those of instructions are start, wait, launch and sync
KINDS = ("plan", "start", "wait", "launch", "sync", "rest")


@contextmanager
def emptied(bound: Bound) -> Iterator[None]:
    """Let a program do nothing within a with block: what is left of a call is the library's own cost."""
    actions = list(bound.actions)
    bound.actions.clear()
    try:
        yield
    finally:
        bound.actions.extend(actions)


class Stopwatch:
    """Runs programs and takes the time of every instruction.

    Attributes:
        first: when the first instruction began, in seconds; None before.
        runs: each program that was run, and the seconds of its instructions.
    """

    def __init__(self) -> None:
        """Start with no times."""
        self.reset()

    def reset(self) -> None:
        """Forget all times."""
        self.first: float | None = None
        self.runs: list[tuple[Bound, list[float]]] = []

    def run(self, bound: Bound) -> None:
        """Run a program as its own method does."""
        now, times = time.perf_counter, [0.0] * len(bound.actions)
        self.runs.append((bound, times))
        if self.first is None:
            self.first = now()
        for position, action in enumerate(bound.actions):
            bound.reached = position
            start = now()
            action()
            times[position] = now() - start

    def spent(self) -> dict[str, float]:
        """Return the seconds by kind; told apart only now, when no time is taken."""
        sums = dict.fromkeys(KINDS, 0.0)
        for bound, times in self.runs:
            for kind, seconds in zip(bound.kinds, times, strict=True):
                sums[kind if kind in KINDS else "launch"] += seconds
        return sums


def program_of(call: Callable[[], object]) -> Bound:
    """Return the program that a blocking call runs, from one more call; collective."""
    watch = Stopwatch()
    with observed(watch):
        call()
    ((bound, _),) = watch.runs
    return bound


class ByHand:
    """The messages of a program, between other arrays, as one would write them with mpi4py alone."""

    def __init__(self, bound: Bound, world: MPI.Intracomm) -> None:
        """Make the messages; `world` has the same ranks, and nothing else in flight."""
        program = bound.program
        assert program is not None
        self.arrays = [np.zeros(nbytes, "u1") for nbytes in bound.nbytes]
        self.requests = []
        for transfer, array in zip(program.transfers, self.arrays, strict=True):
            make = world.Send_init if transfer.sends else world.Recv_init
            tag = transfer.number * program.segments + transfer.segment
            self.requests.append(make([array, MPI.BYTE], transfer.peer, tag))
        self.steps = list(self._steps(program))

    def _steps(self, program: Program) -> Iterator[tuple[Callable[[list[MPI.Prequest]], object], list[MPI.Prequest]]]:
        """Yield the messages that are started and waited for, in the program's order."""
        for instruction in program.instructions:
            if isinstance(instruction, Start | Wait):
                verb = MPI.Prequest.Startall if isinstance(instruction, Start) else MPI.Request.Waitall
                yield verb, [self.requests[t] for t in instruction.transfers]

    def __call__(self) -> None:
        for verb, requests in self.steps:
            verb(requests)

    def free(self) -> None:
        """Free the messages."""
        for request in self.requests:
            request.Free()
