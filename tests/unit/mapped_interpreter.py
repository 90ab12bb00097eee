"""The mapped path without a GPU: all ranks' lowered programs over inboxes, interleaved as chance has it.

It follows the rules of `mapped.cu` tile by tile: slots, two waves in turn, the parity of the call,
flags that name call and wave, tokens, credits.  The inboxes are memory, which a message that comes too
early spoils.  What an element holds may be anything that has a sum: tuples, whose sum tells who was
combined and in which order, or numbers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from mpicoll.runtime.paths.mapped.credits import unheard
from mpicoll.runtime.paths.mapped.lowering import Await, Combine, Credit, Get, Load, Lowered, Put, Store, Total, lower
from mpicoll.schedule.ir import Send


class SpoiledError(Exception):
    """Ranks wait for ever, or have a wrong result."""


@dataclass(frozen=True)
class Rules:
    """What keeps inboxes from being overwritten too early; each can be broken to see that it is needed."""

    protocol: str = "lines"
    calls: int = 2
    waves: int = 2
    tokens: bool = True


@dataclass
class Call:
    """One collective call.

    Attributes:
        programs: of all ranks.
        memory: of all ranks, for each cell of input and output its tiles.
        lengths: tiles of each block.
        blocks: of all ranks, the block that each cell is of.
        slots: tiles of a wave.
    """

    programs: list[Lowered]
    memory: list[dict[Any, list[Any]]]
    lengths: list[int]
    blocks: list[dict[Any, int]]
    slots: int = 1

    def reaches(self, rank: int, cell: Any, tile: int) -> bool:
        """Tell whether there is anything of a cell in a tile."""
        return tile < self.lengths[self.blocks[rank][cell]]

    def tiles(self, rank: int) -> int:
        """Return the tiles of the longest cell that a rank's program names."""
        return max((self.lengths[self.blocks[rank][cell]] for cell in self.programs[rank].cells), default=0)


def programs_of(
    schedules: list[Any], aliased: set[int], even: bool = True, early: bool = True, stored: bool = False
) -> list[Lowered]:
    """Lower all ranks' schedules, with credit where the library gives it."""
    silent = unheard(schedules)
    if not even:
        silent = frozenset(
            (r, m.peer) for r, s in enumerate(schedules) for o in s.steps for m in o.messages if isinstance(m, Send)
        )
    return [
        lower(
            schedule,
            rank in aliased,
            frozenset(receiver for sender, receiver in silent if sender == rank),
            frozenset(sender for sender, receiver in silent if receiver == rank),
            early,
            stored,
        )
        for rank, schedule in enumerate(schedules)
    ]


def blocks_of(schedule: Any) -> dict[Any, int]:
    """Return the block that each cell of a schedule is of."""
    cells = {(buffer, block): block for buffer in ("input", "output") for block in range(schedule.blocks)}
    return cells | {("scratch", cell): block for cell, block in enumerate(schedule.scratch)}


class Inboxes:
    """All that ranks write into each other's memory: words by name and address."""

    def __init__(self) -> None:
        self.words: dict[str, dict[Any, Any]] = defaultdict(dict)

    def write(self, kind: str, address: tuple[int, ...], word: Any) -> None:
        self.words[kind][address] = word

    def read(self, kind: str, address: tuple[int, ...]) -> Any:
        return self.words[kind].get(address)


@dataclass
class Rank:
    """One rank: its calls one after the other, each by several warps at the same time."""

    number: int
    size: int
    calls: list[Call]
    inboxes: Any
    rules: Rules = Rules()
    epoch: int = 0
    warps: list[Iterator[bool]] = field(default_factory=list)

    @property
    def done(self) -> bool:
        return not self.warps and self.epoch == len(self.calls)

    def start(self) -> None:
        """Launch the next call, as soon as the last one is over."""
        if self.warps or self.done:
            return
        call, self.epoch = self.calls[self.epoch], self.epoch + 1
        warps = min(max(call.tiles(self.number), 1), call.slots)
        self.warps = [self._warp(call, self.epoch, slot) for slot in range(warps)]

    def advance(self, warp: int, most: int) -> bool:
        """Let a warp do so much, or until it waits; tell whether it did anything."""
        for done in range(most):
            try:
                if not next(self.warps[warp]):
                    return done > 0
            except StopIteration:
                del self.warps[warp]
                return True
        return True

    def _warp(self, call: Call, epoch: int, slot: int) -> Iterator[bool]:
        others = [q for q in range(self.size) if q != self.number]
        if slot == 0:
            for peer in others:
                self.inboxes.write("token", (peer, self.number), epoch)
                yield True
        for wave, tile in enumerate(range(slot, call.tiles(self.number), call.slots)):
            yield from _Tile(self, call, epoch, wave, tile, slot).run()
        for peer in others if slot == 0 and self.rules.tokens else ():
            while (self.inboxes.read("token", (self.number, peer)) or 0) < epoch:
                yield False


@dataclass
class _Tile:
    """A warp's work on one tile of every block."""

    rank: Rank
    call: Call
    epoch: int
    wave: int
    tile: int
    slot: int
    values: dict[int, Any] = field(default_factory=dict)
    sums: dict[int, Any] = field(default_factory=dict)
    unsealed: list[Put] = field(default_factory=list)

    def run(self) -> Iterator[bool]:
        """Do it; each turn is one access to memory that others see, False where it has to wait."""
        for one in self.call.programs[self.rank.number].instructions:
            if not isinstance(one, Put | Await | Load):
                yield from self._seal()
            yield from self._one(one)
        yield from self._seal()

    def _one(self, one: Any) -> Iterator[bool]:
        match one:
            case Put():
                yield from self._put(one)
            case Get():
                yield from self._get(one)
            case Await(peer):
                yield from self._await(one, peer)
            case Credit(peer) if self.tile + 2 * self.call.slots < self.call.tiles(self.rank.number):
                yield True
                self.rank.inboxes.write("credit", (peer, self.rank.number, self.slot), self._mark(self.wave))
            case Credit():
                pass  # no later wave of this call waits for it
            case _:
                self._own(one)

    def _own(self, one: Any) -> None:
        """Do what no other rank sees."""
        match one:
            case Load(value, cell):
                self.values[value] = self._memory(cell)[self.tile] if self._reaches(cell) else None
            case Store(cell, value):
                if self._reaches(cell):
                    self._memory(cell)[self.tile] = self.values[value]
            case Combine(total, value):
                known, added = self.sums.get(total), self.values[value]
                self.sums[total] = added if known is None else known + added
            case Total(value, total):
                self.values[value] = self.sums[total]

    def _put(self, put: Put) -> Iterator[bool]:
        self.unsealed.append(put)
        if self._reaches(put.cell):
            yield True
            value, lines = self.values[put.value], self.rank.rules.protocol == "lines"
            word = (value, self._mark(self.wave)) if lines else value
            self.rank.inboxes.write("data", self._address(put.peer, self.rank.number, put.place), word)

    def _seal(self) -> Iterator[bool]:
        for put in self.unsealed:
            if self.rank.rules.protocol == "slices" and self._reaches(put.cell):
                yield True
                address = (put.peer, self.rank.number, put.place, self.slot)
                self.rank.inboxes.write("flag", address, self._mark(self.wave))
        self.unsealed.clear()

    def _get(self, get: Get) -> Iterator[bool]:
        self.values[get.value] = None
        if not self._reaches(get.cell):
            return
        mine, inboxes = self.rank.number, self.rank.inboxes
        address = self._address(mine, get.peer, get.place)
        if self.rank.rules.protocol == "lines":
            while (word := inboxes.read("data", address)) is None or word[1] != self._mark(self.wave):
                yield False
            self.values[get.value] = word[0]
            return
        while (inboxes.read("flag", (mine, get.peer, get.place, self.slot)) or 0) < self._mark(self.wave):
            yield False
        yield True
        self.values[get.value] = inboxes.read("data", address)

    def _await(self, one: Await, peer: int) -> Iterator[bool]:
        """Wait for the credit of two waves ago, if there is anything to put."""
        if self.wave < 2 or not any(map(self._reaches, one.cells)):
            return
        address = (self.rank.number, peer, self.slot)
        while (self.rank.inboxes.read("credit", address) or 0) < self._mark(self.wave - 2):
            yield False

    def _mark(self, wave: int) -> int:
        return self.epoch << 32 | wave + 1

    def _address(self, owner: int, source: int, place: int) -> tuple[int, ...]:
        rules, call = self.rank.rules, self.call
        return owner, source, self.epoch % rules.calls, self.wave % rules.waves, place * call.slots + self.slot

    def _reaches(self, cell: Any) -> bool:
        return self.call.reaches(self.rank.number, cell, self.tile)

    def _memory(self, cell: Any) -> list[Any]:
        return self.call.memory[self.rank.number][cell]


def run_interleaved(calls: list[Call], size: int, random: Any, rules: Rules = Rules()) -> None:
    """Run all ranks; how fast each is, and which warp comes next, is drawn.

    Raises:
        SpoiledError: all wait.
    """
    inboxes = Inboxes()
    ranks = [Rank(number, size, calls, inboxes, rules) for number in range(size)]
    speeds = [random.choice((1, 4, 1000)) for _ in ranks]
    idle = 0
    while not all(rank.done for rank in ranks):
        moved = False
        if random.random() < 0.05:
            speeds[random.randrange(size)] = random.choice((1, 4, 1000))
        for rank in random.sample(ranks, size):
            rank.start()
            for warp in random.sample(range(len(rank.warps)), len(rank.warps))[::-1]:
                moved |= warp < len(rank.warps) and rank.advance(warp, speeds[rank.number])
            moved |= not rank.warps and not rank.done
        idle = 0 if moved else idle + 1
        if idle > 1:  # what a warp does last before it waits is no turn of its own
            waiting = [f"rank {r.number} in call {r.epoch}" for r in ranks if not r.done]
            raise SpoiledError(f"all wait: {', '.join(waiting)}")


def memory_of(
    row: Any, schedule: Any, rank: int, size: int, root: int, call: int, aliased: bool, lengths: list[int]
) -> dict[Any, list[Any]]:
    """Return a rank's input and output: the tiles of each block, each a tuple of one (rank, block, tile, call).

    Only the blocks that are there: those before the call and those after it.
    """
    before = row.before(rank, size, root, schedule.blocks)
    mine = {b: [((rank, b, tile, call),) for tile in range(lengths[b])] for b in before}
    output = {b: [None] * lengths[b] for b in row.after(rank, size, root, schedule.blocks)}
    if aliased:
        output |= {b: mine[b] for b in output if b in mine}
    return {("input", b): tiles for b, tiles in mine.items()} | {("output", b): tiles for b, tiles in output.items()}
