"""The vocabulary of schedules: references to blocks, the four verbs, steps.

A *block* is one rank's part of a collective's vector, named by its id (an integer, the
same on all ranks).  A schedule refers to blocks in three buffers: `input` and `output`
(where a cell *is* the block with its id) and `scratch` (numbered cells, each declared
with the id of the block that it is sized for).  Bytes, dtypes and addresses are bound
when a schedule runs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain


@dataclass(frozen=True, slots=True)
class Ref:
    """Cells of one buffer, in the order in which a message carries them.

    Several cells that follow each other are held as a range, whatever they are given as.  So 65,536 blocks take
    no more memory than two, and equal cells are equal references.  `str(out([0, 1, 2, 5]))` is "output[0-2,5]".
    """

    buffer: str
    cells: tuple[int, ...] | range

    def __post_init__(self) -> None:
        """Bring the cells into the one form that they have."""
        if len(self.cells) != 1 or isinstance(self.cells, range):
            object.__setattr__(self, "cells", _compact(self.cells))

    def __len__(self) -> int:
        return len(self.cells)

    def __iter__(self) -> Iterator[Ref]:
        return (Ref(self.buffer, (cell,)) for cell in self.cells)

    def __getitem__(self, which: int | slice) -> Ref:
        got = self.cells[which]
        return _one(self.buffer, got) if isinstance(got, int) else Ref(self.buffer, got)

    def at(self, places: Sequence[int]) -> Ref:
        """Return a reference to the cells at some places, in their order."""
        if isinstance(places, range) and places.step == 1 and places.start >= 0 and places.stop <= len(self.cells):
            return Ref(self.buffer, self.cells[places.start : places.stop])
        return Ref(self.buffer, tuple([self.cells[place] for place in places]))

    def __add__(self, other: Ref) -> Ref:
        if other.buffer != self.buffer:
            raise ValueError(f"cannot join cells of {self.buffer} and {other.buffer}")
        return Ref(self.buffer, (*self.cells, *other.cells))

    def __str__(self) -> str:
        return f"{self.buffer}[{ranges(self.cells)}]"


@lru_cache(maxsize=1 << 16, typed=True)  # True is no cell, though it equals 1
def _one(buffer: str, cell: int) -> Ref:
    """Return a reference to one cell, the same object each time: schedules of many ranks are made of few cells."""
    return Ref(buffer, (cell,))


def inp(ids: int | Iterable[int]) -> Ref:
    """Refer to blocks of this rank's input."""
    return _one("input", ids) if isinstance(ids, int) else Ref("input", _ids(ids))


def out(ids: int | Iterable[int]) -> Ref:
    """Refer to blocks of this rank's output."""
    return _one("output", ids) if isinstance(ids, int) else Ref("output", _ids(ids))


def joined(parts: Iterable[Ref]) -> Ref:
    """Return a reference to the cells of several in one buffer, one after the other; empty ones may be of any."""
    some = [part for part in parts if part.cells]
    return Ref(some[0].buffer if some else "scratch", tuple(chain.from_iterable([part.cells for part in some])))


class Scratch:
    """Hands out scratch cells while an algorithm is being written."""

    def __init__(self) -> None:
        """Start with no cells."""
        self.ids: list[int] = []

    def take(self, ids: int | Iterable[int]) -> Ref:
        """Return new cells, next to each other, sized for the blocks with these ids."""
        wanted = _ids(ids)
        first = len(self.ids)
        self.ids += wanted
        return _one("scratch", first) if len(wanted) == 1 else Ref("scratch", range(first, len(self.ids)))


@dataclass(frozen=True, slots=True)
class Send:
    """Send the cells, in order, as one message to a peer."""

    source: Ref
    peer: int

    def __str__(self) -> str:
        return f"send {self.source} to {self.peer}"


@dataclass(frozen=True, slots=True)
class Recv:
    """Receive one message from a peer into the cells, in order."""

    target: Ref
    peer: int

    def __str__(self) -> str:
        return f"recv {self.target} from {self.peer}"


@dataclass(frozen=True, slots=True)
class Reduce:
    """Combine the sources, in operand order, into the target (which may be one of them)."""

    target: Ref
    sources: tuple[Ref, ...]

    def __str__(self) -> str:
        return f"{self.target} = {' + '.join(map(str, self.sources))}"


@dataclass(frozen=True, slots=True)
class Copy:
    """Copy cells to cells, one to one."""

    target: Ref
    source: Ref

    def __str__(self) -> str:
        return f"{self.target} = {self.source}"


Message = Send | Recv
Local = Reduce | Copy

# tuples: isinstance takes three times as long with a union
_MESSAGES = (Send, Recv)
_OPERATIONS = (Send, Recv, Reduce, Copy)


@dataclass(frozen=True, slots=True)
class Step:
    """Messages that may be in flight together, then local work in order."""

    messages: tuple[Message, ...]
    local: tuple[Local, ...]

    def __str__(self) -> str:
        return "; ".join(map(str, (*self.messages, *self.local))) or "nothing"


def step(*operations: Message | Local | Iterable[Message | Local]) -> Step:
    """Make a step of operations and iterables of operations, messages before local work."""
    messages: list[Message] = []
    local: list[Local] = []
    for item in operations:
        for one in (item,) if isinstance(item, _OPERATIONS) else item:
            if isinstance(one, _MESSAGES):
                messages.append(one)
            else:
                local.append(one)
    return Step(tuple(messages), tuple(local))


@dataclass(frozen=True)
class Schedule:
    """One rank's part of an algorithm.

    Attributes:
        steps: what the rank does, in order; empty steps are dropped.
        blocks: number of blocks of the collective's vector.
        scratch: for each scratch cell the id of the block that it is sized for.
        window: if not 0, a step starts only when all messages of the step `window`
            steps earlier are complete (bounds the messages in flight).
        outside: first step of what hosts exchange, and the step behind it: all messages of other steps stay inside
            hosts.  None where nothing is said of it.
    """

    steps: tuple[Step, ...]
    blocks: int
    scratch: tuple[int, ...] = field(default=())
    window: int = 0
    outside: tuple[int, int] | None = None
    _hash: int | None = field(default=None, init=False, repr=False, compare=False)

    def __hash__(self) -> int:
        """Return a hash that is computed once: schedules are long, and looked up for each new size."""
        if self._hash is None:
            object.__setattr__(self, "_hash", hash((self.steps, self.blocks, self.scratch, self.window)))
        assert self._hash is not None
        return self._hash

    @staticmethod
    def of(
        steps: Iterable[Step],
        blocks: int,
        scratch: Scratch | None = None,
        window: int = 0,
        outside: tuple[int, int] | None = None,
    ) -> Schedule:
        """Return a schedule of the steps.

        Args:
            steps: what the rank does; empty ones are dropped.
            blocks: number of blocks of the vector.
            scratch: the allocator that the steps used, None if they need none.
            window: see the attributes.
            outside: see the attributes; counted with the empty steps.
        """
        given = tuple(steps)
        kept = [place for place, s in enumerate(given) if s.messages or s.local]
        if outside is not None:
            outside = bisect_left(kept, outside[0]), bisect_left(kept, outside[1])
        return Schedule(tuple(given[k] for k in kept), blocks, tuple(scratch.ids) if scratch else (), window, outside)

    def __str__(self) -> str:
        return "\n".join(f"step {number}: {one}" for number, one in enumerate(self.steps))


def block_ids(ref: Ref, schedule: Schedule) -> tuple[int, ...]:
    """Return the ids of the blocks that the cells are sized for."""
    if ref.buffer == "scratch":
        return tuple(schedule.scratch[cell] for cell in ref.cells)
    return tuple(ref.cells)


def _ids(ids: int | Iterable[int]) -> tuple[int, ...] | range:
    if isinstance(ids, int):
        return (ids,)
    return ids if isinstance(ids, range) else tuple(ids)


def _compact(cells: tuple[int, ...] | range) -> tuple[int, ...] | range:
    """Return consecutive cells as a range, others as a tuple."""
    many = len(cells)
    if isinstance(cells, range):
        return cells if many > 1 and cells.step == 1 else tuple(cells)
    if many < 2 or cells[-1] - cells[0] != many - 1:
        return cells
    found = range(cells[0], cells[0] + many)
    return found if tuple(found) == cells else cells


def runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return the first and the last number of each run of numbers that follow each other."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    return found


def ranges(numbers: Iterable[int]) -> str:
    """Write 0,1,2,5 as 0-2,5."""
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs(numbers))
