"""Bound programs: every instruction a callable with everything packed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from mpi4py import MPI

from mpicoll.runtime.arguments.operators import Operator
from mpicoll.runtime.host.work import Call, Host
from mpicoll.runtime.mpi.waiter import Waiter
from mpicoll.runtime.program.layout import Layout, Run, cut
from mpicoll.schedule.ir import Reduce, block_ids
from mpicoll.schedule.program import TAGS, Instruction, Launch, Program, Start, Sync, Transfer, Wait, tag_of
from mpicoll.schedule.segment_waits import Edges, finished_early

#: seconds that the messages of a call that raised may take to arrive
SETTLE = 1.0

Poll = Callable[[], bool]


@dataclass
class Bound:
    """A program bound to addresses: run it as often as the same memory comes again.

    Attributes:
        calls: what to call, in order.
        polls: for each call, whether it would return at once; None where it always does.
        waits: position of each call that waits for messages, and their indices.
        program: where they are described.
        requests: all persistent requests, to be freed.
        messages: requests of each message, several where it is longer than MPI can count.
        nbytes: bytes of each message.
        alive: false once freed.
        reached: position of the call that runs, or ran last.
        last_start: position of the last call that starts messages.
        name: call and algorithm, with {} for the call's number.
        device: number of the device whose streams and events the calls use, -1 for none.
        mark: marks the end of what was launched and returns what tells whether it is reached; None where
            the program itself ends only then.
        limited: a time limit was in force when it was bound.
        keep: lives as long as the program, such as the operator by whose identity it is known.
    """

    calls: list[Call] = field(default_factory=list)
    polls: list[Poll | None] = field(default_factory=list)
    waits: dict[int, tuple[int, ...]] = field(default_factory=dict)
    program: Program | None = None
    requests: list[MPI.Prequest] = field(default_factory=list)
    alive: bool = True
    reached: int = 0
    last_start: int = -1
    name: str = ""
    device: int = -1
    mark: Callable[[], Poll] | None = None
    limited: bool = False
    keep: object = None
    nbytes: list[int] = field(default_factory=list)
    messages: list[list[MPI.Prequest]] = field(default_factory=list)

    def add(self, *calls: Call | None, poll: Poll | None = None) -> None:
        """Append calls; `poll` belongs to each of them."""
        for call in calls:
            if call is not None:
                self.calls.append(call)
                self.polls.append(poll)

    def run(self) -> None:
        """Run the program to its end."""
        position = 0
        try:
            for position, call in enumerate(self.calls):  # noqa: B007  (wanted where a call raises)
                call()
        finally:
            self.reached = position

    def pending(self, position: int) -> str:
        """Say which message the call at a position waits for."""
        if self.program is None or position not in self.waits:
            return "waiting for the device"
        late = [t for t in self.waits[position] if not all(map(_is_complete, self.messages[t]))]
        transfer = self.program.transfers[late[0] if late else self.waits[position][0]]
        steps = len(self.program.schedule.steps)
        blocks = ",".join(map(str, block_ids(transfer.ref, self.program.schedule)))
        verb = "to send block {} to" if transfer.sends else "for block {} from"
        return f"step {transfer.step + 1} of {steps}: waiting {verb.format(blocks)} rank {transfer.peer}"

    def pending_bytes(self, position: int) -> int:
        """Return the bytes of the messages for which the call at a position waits."""
        return sum(self.nbytes[t] for t in self.waits.get(position, ()))

    def settled(self, position: int) -> bool:
        """After an error at a position: tell whether all messages were sent and received all the same."""
        self.alive = False
        if position <= self.last_start:
            return False
        end = time.monotonic() + SETTLE
        while not all([_is_complete(request) for request in self.requests]):
            if time.monotonic() > end:
                return False
        return True

    def free(self) -> None:
        """Free the requests; the program cannot run any more."""
        for request in self.requests:
            request.Free()
        self.alive = False
        self.requests.clear()
        self.messages.clear()
        self.calls.clear()
        self.polls.clear()


def _is_complete(request: MPI.Prequest) -> bool:
    """Tell whether a message has ended, well or not."""
    try:
        return request.Get_status()
    except MPI.Exception:  # it was too long; that is told where it is waited for
        return True


class Around:
    """What is bound around a program and around its segments: here, nothing.

    Attributes:
        by_segment: something comes before or behind a segment, whose last messages are waited for early then.
    """

    by_segment = False

    def first(self, bound: Bound) -> None:
        """Add what comes before the program."""

    def begin(self, bound: Bound, segment: int) -> None:
        """Add what comes before the first instruction of a segment."""

    def end(self, bound: Bound, segment: int) -> None:
        """Add what comes behind the last instruction that writes a segment's output, if any does."""

    def last(self, bound: Bound) -> None:
        """Add what comes behind the program."""


@dataclass
class Binder:
    """Binds programs to addresses.

    Attributes:
        comm: private communicator for the messages.
        memory: does local work.
        waiter: waits for messages.
        slot: tag slot; calls in flight at the same time have different ones.
    """

    comm: MPI.Intracomm
    memory: Host  # or runtime.device.Device, which has the same methods
    waiter: Waiter
    slot: int = 0

    def bind(
        self,
        bound: Bound,
        program: Program,
        layout: Layout,
        bases: dict[str, int],
        dtype: np.dtype,
        op: Operator | None,
        around: Around,
    ) -> None:
        """Append the program, bound to where input, output and scratch start, and what goes around it."""
        program = finished_early(program) if around.by_segment else program
        edges = Edges.of(program) if around.by_segment else Edges({}, {})
        bound.program = program
        runs = [self._run(t, layout, bases) for t in program.transfers]
        bound.nbytes = [nbytes for _, nbytes in runs]
        each = zip(program.transfers, runs, strict=True)
        bound.messages = [[self._request(t, program.lanes, piece) for piece in cut(run)] for t, run in each]
        bound.requests = [request for message in bound.messages for request in message]
        synced_later = _synced_later(program)
        around.first(bound)
        for place, instruction in enumerate(program.instructions):
            for segment in edges.begin.get(place, []):
                around.begin(bound, segment)
            if isinstance(instruction, Launch):
                bound.add(*self._work(program, instruction.work, layout, bases, dtype, op))
            self._add(bound, instruction, synced_later)
            for segment in edges.end.get(place, []):
                around.end(bound, segment)
        around.last(bound)

    def _add(self, bound: Bound, instruction: Instruction, synced_later: set[int]) -> None:
        """Append what does not depend on where the data are."""
        match instruction:
            case Start(transfers):
                bound.last_start = len(bound.calls)
                bound.add(_starter([bound.messages[t] for t in transfers]))
            case Wait(transfers):
                bound.waits[len(bound.calls)] = transfers
                requests = [request for t in transfers for request in bound.messages[t]]
                bound.add(self.waiter.waiter(requests), poll=self.waiter.poll(requests))
            case Launch(work) if work in synced_later:
                bound.add(self.memory.launched(work))
            case Sync(work):
                last = work not in synced_later
                bound.add(self.memory.sync(work, last), poll=self.memory.poll(work, last))

    def _run(self, transfer: Transfer, layout: Layout, bases: dict[str, int]) -> Run:
        """Return the memory of a message."""
        runs = layout.runs(transfer.ref, transfer.segment, bases)
        if len(runs) > 1:
            raise AssertionError(f"message of {transfer.ref} is not contiguous: {runs}")
        return runs[0] if runs else (0, 0)

    def _request(self, transfer: Transfer, lanes: int, run: Run) -> MPI.Prequest:
        address, nbytes = run
        tag = self.slot * TAGS + tag_of(transfer, lanes)
        buffer = [MPI.buffer.fromaddress(address, nbytes), nbytes, MPI.BYTE] if nbytes else [None, 0, MPI.BYTE]
        make = self.comm.Send_init if transfer.sends else self.comm.Recv_init
        return make(buffer, transfer.peer, tag)

    def _work(
        self, program: Program, number: int, layout: Layout, bases: dict[str, int], dtype: np.dtype, op: Operator | None
    ) -> list[Call]:
        work = program.works[number]
        operation = work.operation
        target = layout.runs(operation.target, work.segment, bases)
        sources = operation.sources if isinstance(operation, Reduce) else (operation.source,)
        columns = [layout.runs(ref, work.segment, bases) for ref in sources]
        cut = pieces(target, *columns)
        if len(sources) == 1:
            return [self.memory.copy(to, origin) for to, origin in cut if to[0] != origin[0]]
        if op is None:
            return []  # a barrier's tokens have no elements
        return [self.memory.reduce(op, dtype, to, list(origins)) for to, *origins in cut]


def pieces(*columns: list[Run]) -> list[tuple[Run, ...]]:
    """Cut columns of runs of the same total length so that pieces line up."""
    places = [0] * len(columns)
    used = [0] * len(columns)
    cut: list[tuple[Run, ...]] = []
    while places[0] < len(columns[0]):
        left = [column[place][1] - u for column, place, u in zip(columns, places, used, strict=True)]
        length = min(left)
        cut.append(
            tuple((column[place][0] + u, length) for column, place, u in zip(columns, places, used, strict=True))
        )
        for k in range(len(columns)):
            used[k] += length
            if left[k] == length:
                places[k], used[k] = places[k] + 1, 0
    return cut


def _synced_later(program: Program) -> set[int]:
    """Return the works that a Sync waits for after others were launched behind them."""
    found, latest = set(), -1
    for instruction in program.instructions:
        if isinstance(instruction, Launch):
            latest = instruction.work
        elif isinstance(instruction, Sync) and instruction.work != latest:
            found.add(instruction.work)
    return found


def _starter(messages: list[list[MPI.Prequest]]) -> Call:
    """Return a call that starts messages; pieces of one come in order, which MPI's Startall would not promise."""
    requests = [request for message in messages for request in message]
    if len(requests) == 1:
        return requests[0].Start
    if len(requests) == len(messages):
        start = MPI.Prequest.Startall
        return lambda: start(requests)

    def start_in_order() -> None:
        for request in requests:
            request.Start()

    return start_in_order
