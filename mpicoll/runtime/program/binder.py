"""The binder: a program's instructions, packed for the addresses of one call."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from mpi4py import MPI

from mpicoll.runtime.arguments.operators import Operator
from mpicoll.runtime.mpi.waiter import Waiter
from mpicoll.runtime.program.bound import LAUNCH, ORDER, START, SYNC, WAIT, Bound
from mpicoll.runtime.program.layout import cut
from mpicoll.runtime.program.local_work import Action, LocalWork, Run
from mpicoll.runtime.program.placement import Placement, Span, located
from mpicoll.runtime.program.wrapper import Wrapper
from mpicoll.schedule.program import TAGS, Instruction, Launch, Program, Start, Sync, Transfer, Wait, tag_of
from mpicoll.schedule.segment_waits import Edges, finished_early


@dataclass
class Binder:
    """Binds programs to addresses.

    Attributes:
        comm: private communicator for the messages.
        memory: does local work.
        waiter: waits for messages.
        lane: place of the tags; calls in flight at the same time have different ones.
    """

    comm: MPI.Intracomm
    memory: LocalWork
    waiter: Waiter
    lane: int = 0

    def bind(
        self,
        bound: Bound,
        placement: Placement,
        bases: dict[str, int],
        dtype: np.dtype,
        op: Operator | None,
        wrapper: Wrapper,
    ) -> None:
        """Append a program's instructions to a bound program.

        Args:
            bound: where they are appended.
            placement: of the program in its buffers.
            bases: addresses at which "input", "output" and "scratch" start.
            dtype: of the elements.
            op: the operator, None where there is none.
            wrapper: what goes around the program and its segments.
        """
        program = finished_early(placement.program) if wrapper.by_segment else placement.program
        edges = Edges.of(program) if wrapper.by_segment else Edges({}, {})
        bound.program = program
        runs = [located(span, bases) for span in placement.messages]
        bound.nbytes = [nbytes for _, nbytes in runs]
        each = zip(program.transfers, runs, strict=True)
        bound.messages = [[self._request(t, program.lanes, piece) for piece in cut(run)] for t, run in each]
        bound.requests = [request for message in bound.messages for request in message]
        synced_later = _synced_later(program)
        wrapper.first(bound)
        for place, instruction in enumerate(program.instructions):
            for segment in edges.begin.get(place, []):
                wrapper.begin(bound, segment)
            if isinstance(instruction, Launch):
                bound.add(LAUNCH, *self._work(placement.works[instruction.work], bases, dtype, op))
            self._add(bound, instruction, synced_later)
            for segment in edges.end.get(place, []):
                wrapper.end(bound, segment)
        wrapper.last(bound)

    def _add(self, bound: Bound, instruction: Instruction, synced_later: set[int]) -> None:
        """Append what does not depend on where the data are."""
        match instruction:
            case Start(transfers):
                bound.last_start = len(bound.actions)
                bound.add(START, _starter([bound.messages[t] for t in transfers]))
            case Wait(transfers):
                bound.waits[len(bound.actions)] = transfers
                requests = [request for t in transfers for request in bound.messages[t]]
                bound.add(WAIT, self.waiter.waiter(requests), poll=self.waiter.poll(requests))
            case Launch(work) if work in synced_later:
                bound.add(ORDER, self.memory.launched(work))
            case Sync(work):
                last = work not in synced_later
                bound.add(SYNC, self.memory.sync(work, last), poll=self.memory.poll(work, last))

    def _request(self, transfer: Transfer, lanes: int, run: Run) -> MPI.Prequest:
        address, nbytes = run
        tag = self.lane * TAGS + tag_of(transfer, lanes)
        buffer = [MPI.buffer.fromaddress(address, nbytes), nbytes, MPI.BYTE] if nbytes else [None, 0, MPI.BYTE]
        make = self.comm.Send_init if transfer.sends else self.comm.Recv_init
        return make(buffer, transfer.peer, tag)

    def _work(
        self, rows: tuple[tuple[Span, ...], ...], bases: dict[str, int], dtype: np.dtype, op: Operator | None
    ) -> list[Action]:
        """Return the actions of one work of a program: of its rows, and else as in `bind`."""
        placed = [[located(span, bases) for span in row] for row in rows]
        if all(len(row) == 2 for row in rows):
            return [self.memory.copy(to, origin) for to, origin in placed if to[0] != origin[0]]
        if op is None:
            return []  # a barrier's tokens have no elements
        return [self.memory.reduce(op, dtype, to, origins) for to, *origins in placed]


def _synced_later(program: Program) -> set[int]:
    """Return the works that a Sync waits for after others were launched."""
    found, latest = set(), -1
    for instruction in program.instructions:
        if isinstance(instruction, Launch):
            latest = instruction.work
        elif isinstance(instruction, Sync) and instruction.work != latest:
            found.add(instruction.work)
    return found


def _starter(messages: list[list[MPI.Prequest]]) -> Action:
    """Return an action that starts messages; pieces of one come in order, which MPI's Startall would not promise."""
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
