"""Runs all ranks' programs on symbols: every send synchronous, every hazard an error.

Messages are matched as MPI matches them: by tag, and among equal tags in the order of their start.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from mpicoll.analysis.values import Values
from mpicoll.errors import ScheduleError
from mpicoll.schedule.ir import Reduce, Ref, block_ids
from mpicoll.schedule.program import CellKey, Launch, Program, Start, Sync, Wait, Work, tag_of


@dataclass
class Rank:
    """One rank: its memory, what is pending on it, and how far its program has come."""

    number: int
    program: Program
    memory: dict[CellKey, int]
    position: int = 0
    receiving: dict[CellKey, int] = field(default_factory=dict)
    sending: dict[CellKey, set[int]] = field(default_factory=lambda: defaultdict(set))
    read_by: dict[CellKey, int] = field(default_factory=dict)
    written_by: dict[CellKey, int] = field(default_factory=dict)
    scratch_works: dict[int, tuple[int, int]] = field(default_factory=dict)
    synced: int = -1
    done: set[int] = field(default_factory=set)
    cells: list[list[CellKey]] = field(init=False)

    def __post_init__(self) -> None:
        """Find the cells of each message, which are asked for several times."""
        self.cells = [self.program.keys(t.ref, t.segment) for t in self.program.transfers]

    def fail(self, step: int, what: str) -> ScheduleError:
        """Make an error that says where."""
        return ScheduleError(f"rank {self.number}, step {step}: {what}")


#: (sender, receiver, tag)
Name = tuple[int, int, int]

#: called after each instruction of a rank
RankObserver = Callable[[Rank], None]


def run(
    programs: list[Program], memories: list[dict[CellKey, int]], values: Values, observe: RankObserver | None = None
) -> list[Rank]:
    """Run the programs to their end; raises ScheduleError on any race, mismatch or deadlock.

    Args:
        programs: of all ranks.
        memories: what each rank's cells hold at first; changed.
        values: makes new values.
        observe: is called after each instruction of a rank.
    """
    machine = _Machine([Rank(r, p, m) for r, (p, m) in enumerate(zip(programs, memories, strict=True))], values)
    ready = deque(machine.ranks)
    while ready:
        rank = ready.popleft()
        while machine.advance(rank):
            if observe:
                observe(rank)
        ready += machine.woken
        machine.woken.clear()
    machine.check_finished()
    return machine.ranks


class _Machine:
    def __init__(self, ranks: list[Rank], values: Values) -> None:
        self.ranks, self.values = ranks, values
        #: messages that one side has started and the other has not, in order
        self.posted: dict[Name, deque[tuple[Rank, int]]] = defaultdict(deque)
        self.woken: list[Rank] = []

    def advance(self, rank: Rank) -> bool:
        """Do one instruction; False if it has to wait or there is none."""
        instructions = rank.program.instructions
        if rank.position >= len(instructions):
            return False
        match instructions[rank.position]:
            case Start(transfers):
                self._start(rank, transfers)
            case Wait(transfers):
                if not rank.done.issuperset(transfers):
                    return False
                self._complete(rank, transfers)
            case Launch(work):
                self._launch(rank, work)
            case Sync(work):
                rank.synced = max(rank.synced, work)
        rank.position += 1
        return True

    def check_finished(self) -> None:
        """Raise if a rank is stuck, or ended before its messages did."""
        for rank in self.ranks:
            transfers = rank.program.transfers
            if rank.position < len(rank.program.instructions):
                stuck = rank.program.instructions[rank.position]
                assert isinstance(stuck, Wait)
                t = transfers[min(set(stuck.transfers) - rank.done)]
                verb = f"sends {t.ref} to" if t.sends else f"receives {t.ref} from"
                raise rank.fail(t.step, f"deadlock: {verb} rank {t.peer}, which never matches it")
            pending = {*rank.receiving.values(), *(t for started in rank.sending.values() for t in started)}
            if pending:
                t = transfers[min(pending)]
                raise rank.fail(t.step, f"ends while its message with rank {t.peer} is on its way")

    def _start(self, rank: Rank, transfers: tuple[int, ...]) -> None:
        named: dict[Name, int] = {}
        for t in transfers:
            transfer = rank.program.transfers[t]
            self._check_start(rank, t)
            self._mark_start(rank, t)
            pair = (rank.number, transfer.peer) if transfer.sends else (transfer.peer, rank.number)
            if named.setdefault((*pair, tag_of(transfer, rank.program.lanes)), t) != t:
                raise rank.fail(transfer.step, f"starts two messages with rank {transfer.peer} at once by one tag")
        for name, t in named.items():
            self._post(rank, t, name)

    def _complete(self, rank: Rank, transfers: tuple[int, ...]) -> None:
        for t in transfers:
            sends = rank.program.transfers[t].sends
            for key in rank.cells[t]:
                if sends:
                    rank.sending[key].discard(t)
                else:
                    rank.receiving.pop(key, None)

    def _check_start(self, rank: Rank, t: int) -> None:
        transfer = rank.program.transfers[t]
        if not transfer.sends and transfer.ref.buffer == "scratch":
            self._check_lane(rank, transfer.segment, transfer.step, by_message=True)
        for key in rank.cells[t]:
            wrong = self._hazard(rank, key, transfer.sends)
            if wrong:
                raise rank.fail(transfer.step, wrong.format(f"{key[0]}[{key[2]}]"))

    def _hazard(self, rank: Rank, key: CellKey, sends: bool) -> str:
        """Return the reason why a message of a cell must not start now, with {} for the cell; "" if it may."""
        if key in rank.receiving:
            return "race: {} is still being received"
        if rank.written_by.get(key, -1) > rank.synced:
            return "race: {} is still being computed"
        if sends:
            return "" if key in rank.memory else "sends {} before it has a value"
        if rank.read_by.get(key, -1) > rank.synced:
            return "race: {} is still being read by a reduction"
        return self._protected(rank, key)

    def _check_lane(self, rank: Rank, segment: int, step: int, by_message: bool) -> None:
        """Check that one segment has a lane's scratch at a time: cells of different segments overlap there.

        Args:
            rank: of the machine.
            segment: that is about to use the lane.
            step: of the instruction, for messages.
            by_message: a message uses it, not local work.
        """
        program, lane = rank.program, segment % rank.program.lanes
        if program.lanes >= program.segments:
            return
        pending = [t for k, t in rank.receiving.items() if k[:2] == ("scratch", lane)]
        pending += [t for k, started in rank.sending.items() if k[:2] == ("scratch", lane) for t in started]
        if any(program.transfers[t].segment != segment for t in pending):
            raise rank.fail(step, f"race: scratch of lane {lane} is still in use by a message of another segment")
        work, owner = rank.scratch_works.get(lane, (-1, segment))
        if by_message and owner != segment and work > rank.synced:
            raise rank.fail(step, f"race: scratch of lane {lane} is still in use by work of another segment")

    def _protected(self, rank: Rank, key: CellKey) -> str:
        """Return the reason why a cell must not be written now, with {} for the cell; "" if it may."""
        if key[0] == "input":
            return "writes {}"
        return "race: {} is still being sent" if rank.sending.get(key) else ""

    def _mark_start(self, rank: Rank, t: int) -> None:
        sends = rank.program.transfers[t].sends
        for key in rank.cells[t]:
            if sends:
                rank.sending[key].add(t)
            else:
                rank.receiving[key] = t

    def _post(self, rank: Rank, t: int, name: Name) -> None:
        waiting = self.posted[name]
        if not waiting or waiting[0][0] is rank:
            waiting.append((rank, t))
            return
        other = waiting.popleft()
        sender, receiver = ((rank, t), other) if rank.program.transfers[t].sends else (other, (rank, t))
        self._deliver(*sender, *receiver)

    def _deliver(self, sender: Rank, s: int, receiver: Rank, r: int) -> None:
        sent, got = sender.program.transfers[s], receiver.program.transfers[r]
        if (sent.segment, sent.number) != (got.segment, got.number):
            raise receiver.fail(
                got.step,
                f"receives message {sent.number} of segment {sent.segment} of rank {sender.number} "
                f"as message {got.number} of segment {got.segment}, which has the same tag",
            )
        ids, expected = block_ids(sent.ref, sender.program.schedule), block_ids(got.ref, receiver.program.schedule)
        if ids != expected:
            raise receiver.fail(got.step, f"expects blocks {list(expected)}, rank {sender.number} sends {list(ids)}")
        for key, source, block in zip(receiver.cells[r], sender.cells[s], ids, strict=True):
            self._store(receiver, key, sender.memory[source], block, got.step)
        for rank, t in ((sender, s), (receiver, r)):
            rank.done.add(t)
            self.woken.append(rank)

    def _store(self, rank: Rank, key: CellKey, value: int, block: int, step: int) -> None:
        if self.values[value].block != block:
            raise rank.fail(step, f"puts block {self.values[value].block} into {key[0]}[{key[2]}]")
        rank.memory[key] = value

    def _launch(self, rank: Rank, number: int) -> None:
        work = rank.program.works[number]
        operation = work.operation
        sources = operation.sources if isinstance(operation, Reduce) else (operation.source,)
        columns = [self._read(rank, ref, work, number) for ref in sources]
        targets = rank.program.keys(operation.target, work.segment)
        ids = block_ids(operation.target, rank.program.schedule)
        if any(len(column) != len(targets) for column in columns):
            raise rank.fail(work.step, f"{operation}: sources and target differ in length")
        if any(ref.buffer == "scratch" for ref in (*sources, operation.target)):
            rank.scratch_works[work.segment % rank.program.lanes] = number, work.segment
        results = []
        for operands in zip(*columns, strict=True):
            try:
                results.append(self.values.combine(list(operands)))
            except ValueError as error:
                raise rank.fail(work.step, f"{operation}: {error}") from None
        if operation.target.buffer == "scratch":
            self._check_lane(rank, work.segment, work.step, by_message=False)
        for key, value, block in zip(targets, results, ids, strict=True):
            wrong = "race: {} is still being received" if key in rank.receiving else self._protected(rank, key)
            if wrong:
                raise rank.fail(work.step, wrong.format(f"{key[0]}[{key[2]}]"))
            self._store(rank, key, value, block, work.step)
            rank.written_by[key] = number

    def _read(self, rank: Rank, ref: Ref, work: Work, number: int) -> list[int]:
        column = []
        for key in rank.program.keys(ref, work.segment):
            if key in rank.receiving:
                raise rank.fail(work.step, f"race: {key[0]}[{key[2]}] is still being received")
            if key not in rank.memory:
                raise rank.fail(work.step, f"uses {key[0]}[{key[2]}] before it has a value")
            rank.read_by[key] = number
            column.append(rank.memory[key])
        return column
