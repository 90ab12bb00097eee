"""The planner's product: a schedule cut into segments and flattened to a list of instructions.

A *segment* is an independent run of the whole schedule on one slice of every block, so
segments share nothing but scratch.  Up to `lanes` segments are in flight: lane l runs
segments l, l + lanes, ... one after the other.  Instructions are ordered so that while
one segment's reduction runs, the messages of the others move; what an operation must
wait for is derived from the cells that it reads and writes.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from mpicoll.schedule.ir import Local, Recv, Reduce, Ref, Schedule, Send, Step

#: one cell of one segment, or of one lane where the cell is scratch
Key = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class Transfer:
    """One message of one segment; `number` counts the messages between this pair of ranks."""

    sends: bool
    ref: Ref
    peer: int
    segment: int
    number: int
    step: int


@dataclass(frozen=True, slots=True)
class Work:
    """Local work of one segment."""

    operation: Local
    segment: int
    step: int


@dataclass(frozen=True, slots=True)
class Start:
    """Start messages (indices into the program's transfers)."""

    transfers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait until messages are complete."""

    transfers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Launch:
    """Enqueue local work (an index into the program's works) on the stream."""

    work: int


@dataclass(frozen=True, slots=True)
class Sync:
    """Wait until this work, and all launched before it, is complete on the device."""

    work: int


Instruction = Start | Wait | Launch | Sync


@dataclass(frozen=True)
class Program:
    """What one rank executes, in order; every dependency is already in the order.

    Attributes:
        schedule: where it came from.
        segments: slices of every block.
        lanes: segments in flight; scratch exists once for each lane.
        aliased: input and output blocks with the same id are the same memory.
    """

    schedule: Schedule
    segments: int
    lanes: int
    aliased: bool
    transfers: tuple[Transfer, ...]
    works: tuple[Work, ...]
    instructions: tuple[Instruction, ...]

    def keys(self, ref: Ref, segment: int) -> list[Key]:
        """Return the cells' identities, equal where memory is the same."""
        return cell_keys(ref, segment, self.lanes, self.aliased)


def cell_keys(ref: Ref, segment: int, lanes: int, aliased: bool) -> list[Key]:
    """Return the identity of each cell of a segment, equal where memory is the same."""
    if ref.buffer == "scratch":
        return [("scratch", segment % lanes, cell) for cell in ref.cells]
    buffer = "output" if aliased else ref.buffer
    return [(buffer, segment, cell) for cell in ref.cells]


def compile_program(schedule: Schedule, segments: int = 1, lanes: int = 0, aliased: bool = False) -> Program:
    """Flatten a schedule for pipelined execution.

    Args:
        schedule: one rank's schedule.
        segments: number of slices of every block, at least 1.
        lanes: segments in flight; 0 means all of them.
        aliased: input and output are the same memory.
    """
    lanes = min(lanes or segments, segments)
    emit = _Emitter(schedule, segments, lanes, aliased)
    steps = schedule.steps
    rounds = -(-segments // lanes)
    for lane in range(lanes):
        emit.begin(0, lane)
    for place in range(rounds * len(steps)):
        for lane in range(lanes):
            emit.finish(place, lane)
            if lane:  # one lane later than its own step ended: the reduction has had time to run
                emit.begin(place + 1, lane - 1)
        emit.begin(place + 1, lanes - 1)
    return emit.program()


def stepwise_program(schedule: Schedule, aliased: bool = False) -> Program:
    """Flatten a schedule as its author wrote it: each step's messages, then its local work."""
    emit = _Emitter(schedule, 1, 1, aliased)
    for place, one in enumerate(schedule.steps):
        emit.begin(place, 0)
        emit.wait(list(range(len(emit.transfers))))
        emit.finish(place, 0)
        if one.local:
            emit.sync(len(emit.works) - 1)
    return emit.program()


@dataclass
class _Cell:
    """What is pending on a cell: the message or work that writes it, those that read it."""

    writer: int | None = None
    writer_is_work: bool = False
    sends: list[int] = field(default_factory=list)
    read_by: int = -1

    def messages(self, writes: bool) -> list[int]:
        """Return the messages that must be complete before the cell is read, or written."""
        written = [] if self.writer is None or self.writer_is_work else [self.writer]
        return written + self.sends if writes else written

    def work(self, writes: bool) -> int:
        """Return the work that must be complete before MPI reads the cell, or writes it; -1 for none."""
        written = self.writer if self.writer is not None and self.writer_is_work else -1
        return max(written, self.read_by) if writes else written


class _Emitter:
    """Appends instructions, each preceded by the waits that its cells demand."""

    def __init__(self, schedule: Schedule, segments: int, lanes: int, aliased: bool) -> None:
        self.schedule, self.segments, self.lanes, self.aliased = schedule, segments, lanes, aliased
        self.transfers: list[Transfer] = []
        self.works: list[Work] = []
        self.instructions: list[Instruction] = []
        self.cells: dict[Key, _Cell] = defaultdict(_Cell)
        self.waited: set[int] = set()
        self.synced = -1
        self.of_step: dict[tuple[int, int], list[int]] = {}
        self.numbers = _message_numbers(schedule.steps)

    def begin(self, place: int, lane: int) -> None:
        """Start the messages of a lane's place-th step."""
        segment, index = self._locate(place, lane)
        if segment >= self.segments:
            return
        one, numbers = self.schedule.steps[index], self.numbers[index]
        window = self.schedule.window
        if window and index >= window:
            self.wait(self.of_step[segment, index - window])
        first = len(self.transfers)
        for message, number in zip(one.messages, numbers, strict=True):
            sends = isinstance(message, Send)
            ref = message.source if isinstance(message, Send) else message.target
            self.transfers.append(Transfer(sends, ref, message.peer, segment, number, index))
        new = list(range(first, len(self.transfers)))
        new.sort(key=lambda t: self.transfers[t].sends)  # receives first: they cost the peer less when early
        self.of_step[segment, index] = new
        self._start(new)

    def finish(self, place: int, lane: int) -> None:
        """Do the local work of a lane's place-th step, waiting for the messages that it needs."""
        segment, index = self._locate(place, lane)
        if segment >= self.segments:
            return
        for operation in self.schedule.steps[index].local:
            self._launch(operation, segment, index)

    def wait(self, transfers: list[int]) -> None:
        """Wait for those of the messages that nothing waited for yet."""
        new = tuple(dict.fromkeys(t for t in transfers if t not in self.waited))
        if new:
            self.waited.update(new)
            self.instructions.append(Wait(new))

    def sync(self, work: int) -> None:
        """Make sure that the work is complete on the device."""
        if work > self.synced:
            self.synced = work
            self.instructions.append(Sync(work))

    def program(self) -> Program:
        """Return the program, which ends when all messages are complete."""
        self.wait(list(range(len(self.transfers))))
        return Program(
            self.schedule,
            self.segments,
            self.lanes,
            self.aliased,
            tuple(self.transfers),
            tuple(self.works),
            tuple(self.instructions),
        )

    def _locate(self, place: int, lane: int) -> tuple[int, int]:
        if not self.schedule.steps:
            return self.segments, 0
        turn, index = divmod(place, len(self.schedule.steps))
        return turn * self.lanes + lane, index

    def _keys(self, ref: Ref, segment: int) -> list[Key]:
        return cell_keys(ref, segment, self.lanes, self.aliased)

    def _start(self, transfers: list[int]) -> None:
        waits: list[int] = []
        work = -1
        for t in transfers:
            transfer = self.transfers[t]
            for key in self._keys(transfer.ref, transfer.segment):
                cell = self.cells[key]
                waits += cell.messages(writes=not transfer.sends)
                work = max(work, cell.work(writes=not transfer.sends))
        self.wait(waits)
        self.sync(work)
        for t in transfers:
            transfer = self.transfers[t]
            for key in self._keys(transfer.ref, transfer.segment):
                if transfer.sends:
                    self.cells[key].sends.append(t)
                else:
                    self.cells[key] = _Cell(writer=t)
        if transfers:
            self.instructions.append(Start(tuple(transfers)))

    def _launch(self, operation: Local, segment: int, index: int) -> None:
        sources = operation.sources if isinstance(operation, Reduce) else (operation.source,)
        reads = [key for ref in sources for key in self._keys(ref, segment)]
        writes = self._keys(operation.target, segment)
        waits: list[int] = []
        for key in reads:
            waits += self.cells[key].messages(writes=False)
        for key in writes:
            waits += self.cells[key].messages(writes=True)
        self.wait(waits)
        work = len(self.works)
        self.works.append(Work(operation, segment, index))
        for key in reads:
            self.cells[key].read_by = work
        for key in writes:
            self.cells[key] = _Cell(writer=work, writer_is_work=True, read_by=work)
        self.instructions.append(Launch(work))


def _message_numbers(steps: tuple[Step, ...]) -> list[tuple[int, ...]]:
    """Number each message among those between the same two ranks in the same direction."""
    count: dict[tuple[bool, int], int] = defaultdict(int)
    numbers = []
    for one in steps:
        of_step = []
        for message in one.messages:
            direction = (isinstance(message, Recv), message.peer)
            of_step.append(count[direction])
            count[direction] += 1
        numbers.append(tuple(of_step))
    return numbers
