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
from typing import Any

import numpy as np
from mpi4py import MPI

from mpicoll.communicator import Communicator
from mpicoll.runtime.call.hot import HotCalls
from mpicoll.runtime.program.bound import Bound
from mpicoll.schedule.program import Program, Start, Wait

#: parts of a call's time; those of instructions are start, wait, launch and sync
KINDS = ("plan", "start", "wait", "launch", "sync", "rest")

Runner = Callable[[Bound], None]


@contextmanager
def running(run: Runner, comm: Communicator) -> Iterator[None]:
    """Let blocking calls of a communicator run their programs by this function.

    Calls with a time limit go another way, past it.
    """
    # TODO(interface): for these three statements, `runners.append(run)`
    right, steps = Bound.run, HotCalls.steps
    Bound.run = lambda self: run(self)  # type: ignore[method-assign]
    HotCalls.steps = staticmethod(lambda bound: [bound.run])  # type: ignore[method-assign]
    comm._hot.calls.clear()
    try:
        yield
    finally:
        # TODO(interface): for this statement, `runners.pop()`
        Bound.run, HotCalls.steps = right, staticmethod(steps)  # type: ignore[method-assign]
        comm._hot.calls.clear()


def kinds_of(bound: Bound) -> list[str]:
    """Return the kind of each instruction of a program."""
    # TODO(interface): `return bound.kinds`, and no `_kind` and `_holds_messages`
    return [_kind(bound, at) for at in range(len(bound.calls))]


def _kind(bound: Bound, at: int) -> str:
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


def nothing(bound: Bound) -> None:
    """Run no program: what is left of a call is the library's own cost."""


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
        now, times = time.perf_counter, [0.0] * len(bound.calls)
        self.runs.append((bound, times))
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
        for bound, times in self.runs:
            for kind, seconds in zip(kinds_of(bound), times, strict=True):
                sums[kind] += seconds
        return sums


def program_of(call: Callable[[], object], comm: Communicator) -> Bound:
    """Return the program that a blocking call runs, from one more call; collective."""
    watch = Stopwatch()
    with running(watch.run, comm):
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
