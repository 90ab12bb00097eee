"""The planner: cuts a schedule into segments and flattens it to a program.

A *segment* is an independent run of the whole schedule on one slice of every block, so
segments share nothing but scratch.  Up to `lanes` segments are in flight: lane l runs
segments l, l + lanes, ... one after the other.  Instructions are ordered so that while
one segment's reduction runs, the messages of the others move; what an operation must
wait for is derived from the cells that it reads and writes.

The order cannot deadlock where the steps as written do not, even if every send waits for its receive.
There, the end of a step needs that the peer of each message has begun a step of its own,
and so has ended the step before that one: steps can be numbered so that each end needs
only ends with lower numbers.  Here, a rank that waits at (place, lane) waits for messages of that place or
an earlier one.  The peer that has not started such a message is itself waiting, at a place before
the one that starts it, in whatever lane: its number is lower.  Numbers cannot fall for ever.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from mpicoll.schedule.ir import Local, Message, Recv, Reduce, Ref, Schedule, Send, Step
from mpicoll.schedule.program import (
    TAGS,
    CellKey,
    Instruction,
    Launch,
    Program,
    Start,
    Sync,
    Transfer,
    Wait,
    Work,
    cell_keys,
    tag_of,
)


def compile_program(schedule: Schedule, segments: int = 1, lanes: int = 0, aliased: bool = False) -> Program:
    """Flatten a schedule for pipelined execution.

    Args:
        schedule: one rank's schedule.
        segments: number of slices of every block, at least 1.
        lanes: segments in flight; 0 means all of them, and at most TAGS are.
        aliased: input and output are the same memory.
    """
    lanes = min(lanes or segments, segments, TAGS)
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
    """Flatten a schedule as its author wrote it: each step's messages, then its local work.

    Everything is waited for at once, so that the order is the same in place.
    """
    transfers: list[Transfer] = []
    works: list[Work] = []
    order: list[Instruction] = []
    for index, (one, numbers) in enumerate(zip(schedule.steps, _message_numbers(schedule.steps), strict=True)):
        first = len(transfers)
        transfers += (_transfer(m, 0, number, index) for m, number in zip(one.messages, numbers, strict=True))
        started = range(first, len(transfers))
        order += map(Start, _apart(transfers, started, 1))
        if started:
            order.append(Wait(tuple(started)))
        for operation in one.local:
            order.append(Launch(len(works)))
            works.append(Work(operation, 0, index))
        if one.local:
            order.append(Sync(len(works) - 1))
    return Program(schedule, 1, 1, aliased, tuple(transfers), tuple(works), tuple(order))


@dataclass
class _Cell:
    """Pending work on a cell: the message or work that writes it, those that read it."""

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
        self.cells: dict[CellKey, _Cell] = defaultdict(_Cell)
        self.waited: set[int] = set()
        self.synced = -1
        self.scratch_work: dict[int, int] = {}
        self.of_step: dict[tuple[int, int], list[int]] = defaultdict(list)
        self.added: set[tuple[int, int, bool]] = set()
        self.numbers = _message_numbers(schedule.steps)
        self.early = _early_receives(schedule, aliased)

    def begin(self, place: int, lane: int) -> None:
        """Start the messages of a lane's place-th step, and the next step's receives if they are safe now."""
        segment, index = self._locate(place, lane)
        if segment >= self.segments:
            return
        if index == 0 and segment >= self.lanes:
            self._take_over(segment - self.lanes)
        window = self.schedule.window
        if window and index >= window:
            self.wait(self.of_step[segment, index - window])
        ready = self._add(segment, index, sends=False)
        if self.early[index]:
            ready += self._add(segment, index + 1, sends=False)  # a receive costs the peer less when early
        self._start(ready + self._add(segment, index, sends=True))

    def _take_over(self, previous: int) -> None:
        """Wait until the segment that had the lane before has no more use for its scratch.

        Cells of segments of unequal lengths overlap in a lane, so their names do not tell who needs what.
        """
        steps = range(len(self.schedule.steps))
        mine = [t for step in steps for t in self.of_step[previous, step]]
        self.wait([t for t in mine if self.transfers[t].ref.buffer == "scratch"])
        self.sync(self.scratch_work.get(previous, -1))

    def _add(self, segment: int, index: int, sends: bool) -> list[int]:
        """Note the sends or receives of a step, unless that was done before; returns the new ones."""
        if (segment, index, sends) in self.added:
            return []
        self.added.add((segment, index, sends))
        new = []
        for message, number in zip(self.schedule.steps[index].messages, self.numbers[index], strict=True):
            if isinstance(message, Send) == sends:
                new.append(len(self.transfers))
                self.transfers.append(_transfer(message, segment, number, index))
        self.of_step[segment, index] += new
        return new

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

    def _keys(self, ref: Ref, segment: int) -> list[CellKey]:
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
        self.instructions += map(Start, _apart(self.transfers, transfers, self.lanes))

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
        if any(ref.buffer == "scratch" for ref in (*sources, operation.target)):
            self.scratch_work[segment] = work
        for key in reads:
            self.cells[key].read_by = work
        for key in writes:
            self.cells[key] = _Cell(writer=work, writer_is_work=True, read_by=work)
        self.instructions.append(Launch(work))


def _transfer(message: Message, segment: int, number: int, index: int) -> Transfer:
    ref = message.source if isinstance(message, Send) else message.target
    return Transfer(isinstance(message, Send), ref, message.peer, segment, number, index)


def _apart(transfers: list[Transfer], started: Iterable[int], lanes: int) -> Iterator[tuple[int, ...]]:
    """Yield messages in runs of which none has two with equal tags between two ranks in one direction."""
    run: list[int] = []
    names: set[tuple[bool, int, int]] = set()
    for t in started:
        transfer = transfers[t]
        name = transfer.sends, transfer.peer, tag_of(transfer, lanes)
        if name in names:
            yield tuple(run)
            run, names = [], set()
        run.append(t)
        names.add(name)
    if run:
        yield tuple(run)


def _early_receives(schedule: Schedule, aliased: bool) -> list[bool]:
    """Tell for each step whether the next one receives only into cells that nothing has used by then."""
    used: set[CellKey] = set()
    early = []
    for one, following in zip(schedule.steps, (*schedule.steps[1:], Step((), ())), strict=False):
        used.update(key for ref in _refs(one) for key in cell_keys(ref, 0, 1, aliased))
        receives = [m.target for m in following.messages if isinstance(m, Recv)]
        targets = {key for ref in receives for key in cell_keys(ref, 0, 1, aliased)}
        early.append(bool(targets) and not targets & used and not schedule.window)
    return early


def _refs(one: Step) -> list[Ref]:
    """Return everything that a step reads or writes."""
    refs = [m.source if isinstance(m, Send) else m.target for m in one.messages]
    for operation in one.local:
        refs += [operation.target, *(operation.sources if isinstance(operation, Reduce) else (operation.source,))]
    return refs


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
