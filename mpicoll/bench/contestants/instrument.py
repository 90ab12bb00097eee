"""The inside of a blocking call: its bound program, what each of its instructions is, and its messages."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI

from mpicoll.bench.measure.arrays import Arrays
from mpicoll.bench.measure.backends import Backend
from mpicoll.communicator import Communicator
from mpicoll.dispatch.plan import Plan
from mpicoll.runtime import execute
from mpicoll.runtime.bound import Bound
from mpicoll.runtime.calls import read_call
from mpicoll.runtime.channels import channel_of
from mpicoll.runtime.hot import HotCalls
from mpicoll.runtime.layout import Layout, Shape
from mpicoll.runtime.operands import Operands
from mpicoll.schedule.program import Program, Start, Wait

#: what a call's time goes into
KINDS = ("plan", "start", "wait", "launch", "sync", "rest")


@dataclass(frozen=True)
class BoundCall:
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
    def of(cls, comm: Communicator, arrays: Arrays, algorithm: str | None, backend: Backend) -> BoundCall:
        """Look a call up as the call itself does; it has been made before."""
        method, arguments = arrays.case.call.method, arrays.arguments
        channel = channel_of(comm)
        plan = comm.Get_plan(method, *arguments, algorithm=algorithm)
        operands = read_call(method, channel.rank, channel.size, arguments, {})
        stream = backend.stream_pointer if operands.device >= 0 else 0
        return cls(operands, plan, execute.bind(plan, operands, channel, stream, channel.slot(0)))


@contextmanager
def running(run: Callable[[Bound], None], comm: Communicator) -> Iterator[None]:
    """Let a communicator's blocking calls run their programs by this function.

    It stands in for the method, not for one program's instructions, since a call whose arguments are packed
    binds a new program each time.  Calls with a time limit go another way, past it.
    """
    right, steps = Bound.run, HotCalls.steps

    def instead(self: Bound) -> None:
        run(self)

    Bound.run = instead  # type: ignore[method-assign]
    HotCalls.steps = staticmethod(lambda bound: [bound.run])  # type: ignore[method-assign]
    comm._hot.calls.clear()
    try:
        yield
    finally:
        Bound.run, HotCalls.steps = right, staticmethod(steps)  # type: ignore[method-assign]
        comm._hot.calls.clear()


def nothing(bound: Bound) -> None:
    """Run no program: what is left of a call is the library's own cost."""


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
        now, times = time.perf_counter, [0.0] * len(bound.calls)
        self._runs.append((bound, times))
        if self.first is None:
            self.first = now()
        for position, call in enumerate(bound.calls):
            bound.reached = position
            start = now()
            call()
            times[position] = now() - start

    def spent(self) -> dict[str, float]:
        """Return the seconds by kind; told apart only now, when no time is taken."""
        sums = dict.fromkeys(KINDS, 0.0)
        for bound, times in self._runs:
            for position, seconds in enumerate(times):
                sums[kind_of(bound, position)] += seconds
        return sums


def kind_of(bound: Bound, at: int) -> str:
    """Return the kind of the instruction at a position.

    What could be waited for but is no message is on the device; what holds messages and does not wait starts them.
    """
    if at in bound.waits:
        return "wait"
    if bound.polls[at] is not None:
        return "sync"
    return "start" if _holds_messages(bound.calls[at]) else "launch"


def _holds_messages(call: Any) -> bool:
    cells = getattr(call, "__closure__", None) or ()
    held = [getattr(call, "__self__", None), *(cell.cell_contents for cell in cells)]
    lists = [one if isinstance(one, list) else [one] for one in held]
    return any(isinstance(one, MPI.Prequest) for found in lists for one in found)


class ByHand:
    """The messages of a call's program, between other arrays, as one would write them with mpi4py alone."""

    def __init__(self, inside: BoundCall, world: MPI.Intracomm) -> None:
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


def _sizes(inside: BoundCall, program: Program, world: MPI.Intracomm) -> list[int]:
    """Return the bytes of each message."""
    operands = inside.operands
    shape = Shape.of(operands, world.rank, world.size)
    layout = Layout(shape, program.schedule, program.segments, program.lanes, operands.dtype.itemsize)
    nowhere = dict.fromkeys(("input", "output", "scratch"), 0)
    return [sum(n for _, n in layout.runs(t.ref, t.segment, nowhere)) for t in program.transfers]
