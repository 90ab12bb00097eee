"""The inside of a blocking call: its bound program, what each of its instructions is, and its messages."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from mpi4py import MPI

from mpicoll.bench.trial import Trial
from mpicoll.communicator import Communicator
from mpicoll.dispatch.plan import Plan
from mpicoll.runtime.arguments.operands import Operands
from mpicoll.runtime.call import conductor
from mpicoll.runtime.context.contexts import context_of
from mpicoll.runtime.program.bound import Bound
from mpicoll.runtime.program.layout import Layout, Shape
from mpicoll.schedule.program import Program, Start, Wait

#: what a call's time goes into
KINDS = ("plan", "start", "wait", "launch", "sync", "rest")


@dataclass(frozen=True)
class Inside:
    """A call and the program that it runs.

    Attributes:
        operands: what its arguments mean.
        plan: what is chosen.
        bound: the program that every repetition of the call runs.
    """

    operands: Operands
    plan: Plan
    bound: Bound

    @classmethod
    def of(cls, comm: Communicator, trial: Trial, algorithm: str | None) -> Inside:
        """Look a call up as the call itself does; it has been made before."""
        method, arguments = trial.case.call.method, trial.arguments
        known, bound = conductor.look_up(context_of(comm), (method, arguments, algorithm, None, comm._rules))
        return cls(known.operands, known.plan, bound)


class Nothing:
    """Runs no program: what is left of a call is the library's own cost."""

    def run(self, bound: Bound) -> None:
        """Do nothing."""


class Stopwatch:
    """Runs programs and takes the time of every instruction.

    Attributes:
        first: when the first instruction began; None before.
    """

    def __init__(self) -> None:
        """Start with no times."""
        self.reset()

    def reset(self) -> None:
        """Forget all times."""
        self.first: float | None = None
        self._runs: list[tuple[Bound, list[float]]] = []

    def run(self, bound: Bound) -> None:
        """Run a program as its own method does."""
        now, times = time.perf_counter, [0.0] * len(bound.actions)
        self._runs.append((bound, times))
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
        for bound, times in self._runs:
            for position, seconds in enumerate(times):
                kind = bound.kinds[position]
                sums[kind if kind in KINDS else "launch"] += seconds
        return sums


class ByHand:
    """The messages of a call's program, between other arrays, as one would write them with mpi4py alone."""

    def __init__(self, inside: Inside, world: MPI.Intracomm) -> None:
        """Make the messages; `world` has the same ranks, and nothing else in flight."""
        program = inside.bound.program
        assert program is not None
        sizes = _sizes(inside, program, world)
        self.arrays = [np.zeros(size, "u1") for size in sizes]
        self.requests = []
        for transfer, array in zip(program.transfers, self.arrays, strict=True):
            make = world.Send_init if transfer.sends else world.Recv_init
            tag = transfer.number * program.segments + transfer.segment
            self.requests.append(make([array, MPI.BYTE], transfer.peer, tag))
        self.steps = list(self._steps(program))

    def _steps(self, program: Program) -> Iterator[tuple[Callable[[list[MPI.Prequest]], object], list[MPI.Prequest]]]:
        """Yield what is started and waited for, in the program's order."""
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


def _sizes(inside: Inside, program: Program, world: MPI.Intracomm) -> list[int]:
    """Return the bytes of each message."""
    operands = inside.operands
    shape = Shape.of(operands, world.rank, world.size)
    layout = Layout(shape, program.schedule, program.segments, program.lanes, operands.dtype.itemsize)
    nowhere = dict.fromkeys(("input", "output", "scratch"), 0)
    return [sum(n for _, n in layout.runs(t.ref, t.segment, nowhere)) for t in program.transfers]
