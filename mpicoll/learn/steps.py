"""The steps of a call, written down as they happen, and put into an order that a person can follow.

A scribe runs a blocking call's program in the executor's place.  On rank 1 of 4, in an allreduce by `ring`:

    round 0    sends block[0] from its input to rank 2
               receives block[3] from rank 0 into scratch[0]
               computes scratch[0] = scratch[0] + input[3]
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from mpicoll.learn.numbers import Row
from mpicoll.runtime.program.bound import START, WAIT, Bound
from mpicoll.schedule.collectives import COLLECTIVES, Collective
from mpicoll.schedule.ir import Reduce, Ref, block_ids
from mpicoll.schedule.program import Instruction, Launch, Program, Start, Wait
from mpicoll.simulate.actions import Sizes, of_program
from mpicoll.simulate.engine import simulate
from mpicoll.simulate.machine import UNIT


@dataclass(frozen=True)
class Note:
    """A message or local work of a rank, in words.

    Attributes:
        text: what was done.
        moves: it is a message.
        number: of the message, or of the local work, in the rank's program.
        wrote: pieces of the rank's output that it wrote, by their number.
    """

    text: str
    moves: bool
    number: int
    wrote: dict[int, Row] = field(default_factory=dict)


@dataclass
class Notebook:
    """Messages and local work of one rank in a call, in words.

    Attributes:
        name: the collective that is called.
        members: the number of each of its ranks among all.
        rank: whose notebook it is, a rank of the call.
        piece: numbers of a block's segment.
        program: the plan's schedule as it is written; once the call was watched, what was run.
        watched: each step was seen by itself; otherwise one kernel did them all.
        notes: what was done, in order.
    """

    name: str
    members: Sequence[int]
    rank: int
    piece: int
    program: Program
    watched: bool = False
    notes: list[Note] = field(default_factory=list)

    @property
    def row(self) -> Collective:
        """The collective's row."""
        return COLLECTIVES[self.name]

    def write(self, done: Iterable[Instruction], output: Row | None) -> None:
        """Write down instructions of the program that were carried out.

        Args:
            done: the instructions, in order.
            output: the rank's output after them, None where it has none or was not looked at.
        """
        for instruction in done:
            if isinstance(instruction, Launch):
                self._write_work(instruction.work, output)
            elif isinstance(instruction, Start | Wait):
                for number in instruction.transfers:
                    sends = self.program.transfers[number].sends
                    if sends == isinstance(instruction, Start):  # others are noted when they have come
                        self._write_message(number, None if sends else output)

    def _write_work(self, number: int, output: Row | None) -> None:
        """Write down local work by its number; `output` as in `write`."""
        work = self.program.works[number]
        done, segment = work.operation, work.segment
        target = self._cells(done.target)
        if isinstance(done, Reduce):
            text = f"computes {target} = {' + '.join(map(self._cells, done.sources))}"
        elif self.program.keys(done.target, segment) == self.program.keys(done.source, segment):
            return  # in place, nothing is to be copied
        else:
            text = f"copies {self._cells(done.source)} to {target}"
        if not self.row.idempotent:  # a barrier has no numbers
            wrote = self._wrote(done.target, segment, output)
            self.notes.append(Note(text + self._of_segment(segment), False, number, wrote))

    def _write_message(self, number: int, output: Row | None) -> None:
        """Write down a message by its number; `output` as in `write`."""
        transfer = self.program.transfers[number]
        ref, segment, peer = transfer.ref, transfer.segment, self.members[transfer.peer]
        what = self._carried(ref) + self._of_segment(segment)
        where = self._cells(ref) if ref.buffer == "scratch" else f"its {ref.buffer}"
        origin, place = ("", "") if self.row.idempotent else (f" from {where}", f" into {where}")
        text = f"sends {what}{origin} to rank {peer}" if transfer.sends else f"receives {what} from rank {peer}{place}"
        self.notes.append(Note(text, True, number, self._wrote(ref, segment, output)))

    def _of_segment(self, segment: int) -> str:
        return f" (segment {segment})" if self.program.segments > 1 else ""

    def _carried(self, ref: Ref) -> str:
        """Return the blocks that a message carries."""
        return (
            "an empty message"
            if self.row.idempotent
            else self._cells(Ref("block", block_ids(ref, self.program.schedule)))
        )

    def _cells(self, ref: Ref) -> str:
        """Return cells in words: output[0-2], or for blocks with sender and receiver output[1>0,1>2]."""
        if self.name != "alltoall" or ref.buffer == "scratch":
            return str(ref)
        pairs = [divmod(block, len(self.members)) for block in ref.cells]
        return f"{ref.buffer}[{','.join(f'{source}>{target}' for source, target in pairs)}]"

    def _wrote(self, ref: Ref, segment: int, output: Row | None) -> dict[int, Row]:
        """Return what is now in the cells of the output, by the numbers of their pieces."""
        if ref.buffer != "output" or output is None or self.row.idempotent:
            return {}
        places = [self._place(block, segment) for block in ref.cells]
        return {place: output[place * self.piece : (place + 1) * self.piece] for place in places}

    def _place(self, block: int, segment: int) -> int:
        """Return the number of a block's piece in the output; vectors are cut into segments first."""
        if self.row.free:
            return segment * self.program.schedule.blocks + block
        there = sorted(self.row.after(self.rank, len(self.members), 0, self.program.schedule.blocks))
        return there.index(block) * self.program.segments + segment


class Scribe:
    """Runs programs in the executor's place, and writes into a notebook what they do."""

    def __init__(self, book: Notebook, look: Callable[[], Row | None]) -> None:
        """Take the notebook, and what returns the rank's output as it is."""
        self.book, self.look = book, look

    def run(self, bound: Bound) -> None:
        """Run a program as its own method does."""
        book, watched = self.book, bound.program is not None
        book.program, book.watched = bound.program or book.program, watched
        todo = deque(book.program.instructions)
        for position, (kind, action) in enumerate(zip(bound.kinds, bound.actions, strict=True)):
            messages = watched and kind in (START, WAIT)
            if messages:
                book.write(_local_work(todo), self.look())
            bound.reached = position
            action()
            if messages:
                book.write([todo.popleft()], self.look())
        book.write(todo, self.look() if watched else None)


def _local_work(todo: deque[Instruction]) -> Iterator[Instruction]:
    """Take the instructions up to the next messages."""
    while todo and not isinstance(todo[0], Start | Wait):
        yield todo.popleft()


def by_round(books: Sequence[Notebook]) -> dict[int, list[list[Note]]]:
    """Return each rank's notes of each round, from 0 on; in round -1 is local work before the first message.

    The programs that were run are simulated, where a rank sends one message and receives one in a round.
    """
    actions = [of_program(book.program, Sizes(1.0)) for book in books]
    run = simulate(actions, UNIT.of_ranks(len(books)), UNIT.extra)
    when = {(work.rank, False, work.number): work.start for work in run.works}
    for message in run.messages():
        when[message.source, True, message.sent] = when[message.target, True, message.received] = message.end
    found: dict[int, list[list[Note]]] = {}
    for rank, book in enumerate(books):
        for note in book.notes:
            number = round(when[rank, note.moves, note.number]) - 1  # what ends at second 1 was in round 0
            found.setdefault(number, [[] for _ in books])[rank].append(note)
    return dict(sorted(found.items()))
