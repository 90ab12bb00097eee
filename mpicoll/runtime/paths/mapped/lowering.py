"""Lowering: a schedule as the straight-line program of one thread, for the path mapped.

On the path mapped a collective is one kernel.  Each thread follows the whole schedule for its own elements of
every block.  So a cell of the schedule is a value in registers, a Send stores it into the peer's inbox, and a
Recv spins on the own one.  Nothing waits but a `Get` for its message and an `Await` for its credit.

The allreduce of two ranks by `one_shot`, on rank 0:

    Load(0, input 0), Put(0, peer 1), Combine(sum 0, value 0), Get(1, peer 1), Combine(sum 0, value 1),
    Total(2, sum 0), Store(output 0, 2)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from mpicoll.schedule.ir import Local, Recv, Reduce, Ref, Schedule, Send, Step

#: (buffer, number) of a cell
Cell = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Load:
    """Read the elements of a cell of the input or output."""

    value: int
    cell: Cell


@dataclass(frozen=True, slots=True)
class Store:
    """Write the elements of a cell of the output."""

    cell: Cell
    value: int


@dataclass(frozen=True, slots=True)
class Put:
    """Store a value into a peer's inbox, at a place counted over the cells sent to that peer."""

    value: int
    peer: int
    place: int
    cell: Cell


@dataclass(frozen=True, slots=True)
class Get:
    """Wait for a value in the own inbox, at a place counted over the cells that come from that peer."""

    value: int
    peer: int
    place: int
    cell: Cell


@dataclass(frozen=True, slots=True)
class Combine:
    """Combine a value, as the next operand, with a sum; the first one begins it."""

    sum: int
    value: int


@dataclass(frozen=True, slots=True)
class Total:
    """Take a sum, rounded, as a value."""

    value: int
    sum: int


@dataclass(frozen=True, slots=True)
class Await:
    """Wait until a peer has read what was put two waves ago.

    There is nothing to wait for where none of these cells, which are put to it, goes on in this wave.
    """

    peer: int
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Credit:
    """Tell a peer that all of this wave was read from the inbox."""

    peer: int


Instruction = Load | Store | Put | Get | Combine | Total | Await | Credit


@dataclass(frozen=True)
class Lowered:
    """One rank's program.

    Attributes:
        instructions: in order.
        cells: all cells that they name, each once.
        values: number of values.
        sums: number of sums.
    """

    instructions: tuple[Instruction, ...]
    cells: tuple[Cell, ...]
    values: int
    sums: int


def lower(
    schedule: Schedule,
    aliased: bool,
    awaited: frozenset[int] = frozenset(),
    credited: frozenset[int] = frozenset(),
    early: bool = True,
    stored: bool = False,
) -> Lowered:
    """Lower one rank's schedule.

    Args:
        schedule: what the rank does.
        aliased: input and output are the same memory.
        awaited: peers that give credit for what is put into their inbox.
        credited: peers to which credit is given for what comes from them.
        early: load all that a step reads at its beginning, so that only the first load is waited
            for; else right before it is used, so that few values are held.
        stored: scratch is memory: of a schedule that goes on where another one ends.
    """
    lowering = _Lowering(aliased, ("input", "output", "scratch") if stored else ("input", "output"))
    for one in schedule.steps:
        lowering.step(one, early)
    return lowering.program(awaited, credited)


def reads_first(lowered: Lowered, run_of: Callable[[Cell], tuple[int, int]]) -> bool:
    """Tell whether a program reads the input before it writes the output over it, each thread for itself.

    Args:
        lowered: the program, of input and output that are not `aliased`.
        run_of: returns (start, bytes) of a cell, both buffers starting at the same place.
    """
    written: list[tuple[int, int]] = []
    stored = [run_of(one.cell) for one in lowered.instructions if isinstance(one, Store)]
    for one in lowered.instructions:
        if isinstance(one, Store):
            written.append(run_of(one.cell))
        if isinstance(one, Load) and one.cell[0] == "input":
            run = run_of(one.cell)
            across = [other for other in stored if other[0] != run[0]]  # another thread may write those
            if _meets(run, written) or _meets(run, across):
                return False
    return True


def _meets(run: tuple[int, int], others: list[tuple[int, int]]) -> bool:
    """Tell whether a run of memory overlaps any of others."""
    return any(run[0] < start + nbytes and start < run[0] + run[1] for start, nbytes in others)


class _Lowering:
    """Follows which value every cell holds.

    What a step receives is waited for where it is used first, or at the end: a put never has to
    wait for a message that it does not depend on, and operands are combined as they come.
    """

    def __init__(self, aliased: bool, memory: tuple[str, ...]) -> None:
        self.aliased, self.memory = aliased, memory
        self.instructions: list[Instruction] = []
        self.held: dict[Cell, int] = {}
        self.written: dict[Cell, int] = {}
        self.coming: dict[int, Get] = {}
        self.values = self.sums = 0
        self.sent: Counter[int] = Counter()
        self.received: Counter[int] = Counter()

    def step(self, one: Step, early: bool) -> None:
        """Put, note what will come, and do the local work."""
        for cell in self._read_from_memory(one) if early else ():
            self._use(cell)
        for message in one.messages:
            if isinstance(message, Send):
                self._put(message)
        for message in one.messages:
            if isinstance(message, Recv):
                self._get(message)
        for operation in one.local:
            self._local(operation)

    def program(self, awaited: frozenset[int], credited: frozenset[int]) -> Lowered:
        """Store every cell in memory right after it is written last, and add the credits."""
        for value in tuple(self.coming):
            self._await(value)
        stored: dict[int, list[Store]] = {}
        for place, position in self.written.items():
            if place[0] in self.memory:
                stored.setdefault(position, []).append(Store(place, self.held[place]))
        first = self._cells_put(awaited)
        last = {i.peer: n for n, i in enumerate(self.instructions) if isinstance(i, Get)}
        done: list[Instruction] = []
        for position, instruction in enumerate(self.instructions):
            if isinstance(instruction, Put) and instruction.peer in first:
                done.append(Await(instruction.peer, first.pop(instruction.peer)))
            done += [instruction, *stored.get(position, ())]
            if isinstance(instruction, Get) and instruction.peer in credited and last[instruction.peer] == position:
                done.append(Credit(instruction.peer))
        cells = dict.fromkeys(i.cell for i in done if isinstance(i, Load | Store | Put | Get))
        return Lowered(tuple(done), tuple(cells), self.values, self.sums)

    def _cells_put(self, peers: frozenset[int]) -> dict[int, tuple[Cell, ...]]:
        """Return the cells that are put to each of the peers."""
        puts = [i for i in self.instructions if isinstance(i, Put)]
        return {peer: tuple(dict.fromkeys(i.cell for i in puts if i.peer == peer)) for peer in peers}

    def _use(self, cell: Cell) -> int:
        """Return the value of a cell, loading it or waiting for it if that was not done before."""
        place = self._place(cell)
        if place not in self.held:
            self.held[place] = self._new()
            self.instructions.append(Load(self.held[place], cell))
        self._await(self.held[place])
        return self.held[place]

    def _await(self, value: int) -> None:
        """Wait for a value that is to come; a cell that still holds it is written here."""
        if value not in self.coming:
            return
        self.instructions.append(self.coming.pop(value))
        for place, held in self.held.items():
            if held == value:
                self.written[place] = len(self.instructions) - 1

    def _put(self, message: Send) -> None:
        for cell in self._cells(message.source):
            self.instructions.append(Put(self._use(cell), message.peer, self.sent[message.peer], cell))
            self.sent[message.peer] += 1

    def _get(self, message: Recv) -> None:
        for cell in self._cells(message.target):
            self.held[self._place(cell)] = value = self._new()
            self.coming[value] = Get(value, message.peer, self.received[message.peer], cell)
            self.received[message.peer] += 1

    def _local(self, operation: Local) -> None:
        sources = operation.sources if isinstance(operation, Reduce) else (operation.source,)
        columns = [self._cells(ref) for ref in sources]
        for k, cell in enumerate(self._cells(operation.target)):
            operands = [column[k] for column in columns]
            result = self._combined(operands) if len(operands) > 1 else self._use(operands[0])
            self.held[self._place(cell)] = result
            self.written[self._place(cell)] = len(self.instructions) - 1

    def _combined(self, operands: list[Cell]) -> int:
        """Return the combination of cells, in order."""
        total = self.sums
        self.sums += 1
        for cell in operands:
            value = self._use(cell)
            self.instructions.append(Combine(total, value))
        result = self._new()
        self.instructions.append(Total(result, total))
        return result

    def _read_from_memory(self, one: Step) -> list[Cell]:
        """Return the cells that a step reads and nobody has written, in the order in which they are wanted."""
        receives = [m.target for m in one.messages if isinstance(m, Recv)]
        written = {self._place(cell) for ref in receives for cell in self._cells(ref)} | self.held.keys()
        cells = [cell for ref in _read(one) for cell in self._cells(ref)]
        return [cell for cell in cells if self._place(cell) not in written and cell[0] in self.memory]

    def _new(self) -> int:
        self.values += 1
        return self.values - 1

    def _cells(self, ref: Ref) -> list[Cell]:
        return [(ref.buffer, number) for number in ref.cells]

    def _place(self, cell: Cell) -> Cell:
        """Return the cell that stands for all cells in the same memory."""
        return ("output", cell[1]) if self.aliased and cell[0] == "input" else cell


def _read(one: Step) -> list[Ref]:
    """Return the references that a step reads, in the order in which they are wanted."""
    refs = [m.source for m in one.messages if isinstance(m, Send)]
    for operation in one.local:
        refs += operation.sources if isinstance(operation, Reduce) else (operation.source,)
    return refs
