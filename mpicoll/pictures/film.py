"""A film: what every rank has of every block, at the start and after each round, and the messages between.

A round is the time of one message through a rank's port: the simulator runs the programs on the machine `UNIT`.
On several hosts a rank's port carries one message inside its host and one to other hosts at the same time.
What the messages carry is computed with the verifier's symbols.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from mpicoll.analysis.values import Values
from mpicoll.analysis.verify import initial_memory
from mpicoll.schedule.collectives import Collective
from mpicoll.schedule.ir import Local, Reduce, Ref, Schedule, block_ids
from mpicoll.schedule.planner import compile_program, stepwise_program
from mpicoll.schedule.program import TAGS, CellKey, Program
from mpicoll.simulate.actions import Sizes, of_program
from mpicoll.simulate.engine import simulate
from mpicoll.simulate.machine import UNIT
from mpicoll.simulate.network import two_ways
from mpicoll.simulate.result import Message

#: bytes per second that are no part of a round
FAST = 1e15
#: (block, segment)
Piece = tuple[int, int]
#: ranks whose input is in a value, as a bit mask
Ranks = int


@dataclass(frozen=True)
class Held:
    """Values that a rank has of a piece.

    Attributes:
        values: the ranks in each value that it has; not those that are part of another one.
        complete: the value that the collective demands is in its place in the output.
    """

    values: tuple[Ranks, ...] = ()
    complete: bool = False


@dataclass(frozen=True)
class Arrow:
    """A message: the pieces that it carries, each with the ranks that are in it."""

    source: int
    target: int
    pieces: tuple[tuple[Piece, Ranks], ...]


@dataclass(frozen=True)
class Frame:
    """A round: the messages that arrive in it, and what each rank has after it, by piece."""

    arrows: tuple[Arrow, ...]
    held: tuple[dict[Piece, Held], ...]


@dataclass(frozen=True)
class Film:
    """All rounds of an algorithm.

    Attributes:
        row: the collective.
        size: number of ranks.
        root: the root, 0 where there is none.
        blocks: number of blocks of the vector.
        segments: slices of every block.
        frames: the start, whose arrows are none, then each round.
        hosts: of each rank; all 0 where nothing is said of hosts.
    """

    row: Collective
    size: int
    root: int
    blocks: int
    segments: int
    frames: tuple[Frame, ...]
    hosts: tuple[int, ...]

    @property
    def rounds(self) -> int:
        """Number of rounds."""
        return len(self.frames) - 1

    @property
    def pieces(self) -> list[Piece]:
        """All pieces, in order."""
        return [(block, segment) for block in range(self.blocks) for segment in range(self.segments)]

    def wanted(self, rank: int) -> dict[int, Ranks]:
        """Return the blocks that a rank must have at the end, each with the ranks that must be in it."""
        after = self.row.after(rank, self.size, self.root, self.blocks)
        return {block: sum(1 << r for r in made_of) for block, made_of in after.items()}


def film(
    row: Collective, schedules: Sequence[Schedule], *, root: int = 0, segments: int = 1, hosts: Sequence[int] = ()
) -> Film:
    """Return the film of all ranks' schedules.

    Args:
        row: the collective.
        schedules: one for each rank, proven.
        root: the root, where the collective has one.
        segments: slices of every block; they travel as the planner orders them.
        hosts: of each rank, where there are several.

    Raises:
        ValueError: there are more segments than a program has in flight.
    """
    if segments > TAGS:
        raise ValueError(f"at most {TAGS} segments can be drawn, not {segments}")
    programs = [_program(s, segments, row.shared) for s in schedules]
    network = two_ways(hosts, alpha=1.0, bandwidth=FAST) if hosts else UNIT.of_ranks(len(programs))
    run = simulate([of_program(p, Sizes(1.0)) for p in programs], network, UNIT.extra)
    replay = _Replay(row, programs, root)
    messages, works = defaultdict(list), defaultdict(list)
    for message in run.messages():
        messages[round(message.end)].append(message)
    for work in run.works:
        works[round(work.start)].append(work)
    start = replay.held()
    for work in works[0]:
        replay.work(work.rank, work.number)
    frames = [Frame((), start if run.seconds else replay.held())]  # a rank alone ends where it starts
    for time in range(1, round(run.seconds) + 1):
        arrows = replay.deliver(messages[time])
        for work in works[time]:
            replay.work(work.rank, work.number)
        frames.append(Frame(arrows, replay.held()))
    blocks = schedules[0].blocks
    return Film(row, len(schedules), root, blocks, segments, tuple(frames), tuple(hosts) or (0,) * len(schedules))


def before_and_after(row: Collective, size: int, root: int, blocks: int) -> Film:
    """Return a film of two frames without messages: what each rank has before a collective, and must have after it.

    Args:
        row: the collective.
        size: number of ranks.
        root: the root, where the collective has one.
        blocks: number of blocks of the vector.
    """
    made = Film(row, size, root, blocks, 1, (), (0,) * size)
    start = tuple({(b, 0): Held((1 << r,)) for b in row.before(r, size, root, blocks)} for r in range(size))
    end = tuple({(b, 0): Held((ranks,)) for b, ranks in made.wanted(r).items()} for r in range(size))
    return replace(made, frames=(Frame((), start), Frame((), end)))


def _program(schedule: Schedule, segments: int, shared: bool) -> Program:
    """Return the program that is drawn: the steps as written, or the planner's order of their segments."""
    return stepwise_program(schedule, shared) if segments == 1 else compile_program(schedule, segments, 0, shared)


class _Replay:
    """The memory of all ranks, in symbols, as messages and local work change it."""

    def __init__(self, row: Collective, programs: list[Program], root: int) -> None:
        self.row, self.programs, self.root = row, programs, root
        self.values = Values(row.idempotent)
        size = len(programs)
        self.memory = [initial_memory(row, p, r, size, root, self.values) for r, p in enumerate(programs)]
        self.wanted = [row.after(r, size, root, programs[0].schedule.blocks) for r in range(size)]
        #: where the only copy of a block is that goes to one rank only
        self.place: dict[Piece, int] = {}
        if row.name == "alltoall":
            self.place = {(b, s): r for r, had in enumerate(self.memory) for _, s, b in had}

    def deliver(self, messages: list[Message]) -> tuple[Arrow, ...]:
        """Store what messages carry; return them as arrows, in the order of their ranks."""
        arrows: list[Arrow] = []
        stores: list[tuple[int, CellKey, int]] = []
        for message in messages:
            sender, receiver = self.programs[message.source], self.programs[message.target]
            sent, got = sender.transfers[message.sent], receiver.transfers[message.received]
            sources = [self.memory[message.source][key] for key in sender.keys(sent.ref, sent.segment)]
            stores += zip([message.target] * len(sources), receiver.keys(got.ref, got.segment), sources, strict=True)
            pieces = [(block, sent.segment) for block in block_ids(sent.ref, sender.schedule)]
            ranks = [self.values[value].ranks for value in sources]
            arrows.append(Arrow(message.source, message.target, tuple(zip(pieces, ranks, strict=True))))
            if self.place:
                self.place.update(dict.fromkeys(pieces, message.target))
        for rank, key, value in stores:
            self.memory[rank][key] = value
        return tuple(sorted(arrows, key=lambda arrow: (arrow.source, arrow.target)))

    def work(self, rank: int, number: int) -> None:
        """Do local work."""
        program, memory = self.programs[rank], self.memory[rank]
        one = program.works[number]
        columns = [[memory[key] for key in program.keys(ref, one.segment)] for ref in _read(one.operation)]
        results = [self.values.combine(list(operands)) for operands in zip(*columns, strict=True)]
        memory.update(zip(program.keys(one.operation.target, one.segment), results, strict=True))

    def held(self) -> tuple[dict[Piece, Held], ...]:
        """Return what each rank has now."""
        return tuple(self._held(rank) for rank in range(len(self.programs)))

    def _held(self, rank: int) -> dict[Piece, Held]:
        found: dict[Piece, list[int]] = defaultdict(list)
        done: set[Piece] = set()
        scratch, lanes = self.programs[rank].schedule.scratch, self.programs[rank].lanes
        assert lanes == self.programs[rank].segments, "each segment has a lane of its own"
        for key, value in self.memory[rank].items():
            piece = (scratch[key[2]] if key[0] == "scratch" else key[2], key[1])
            ranks = self.values[value].ranks
            if self.place and self.place[piece] != rank:
                continue
            found[piece].append(ranks)
            if self._is_complete(rank, key, ranks):
                done.add(piece)
        return {piece: Held(_largest(values), piece in done) for piece, values in found.items()}

    def _is_complete(self, rank: int, key: CellKey, ranks: Ranks) -> bool:
        wanted = self.wanted[rank].get(key[2]) if key[0] == "output" else None
        return wanted is not None and ranks == sum(1 << r for r in wanted)


def _read(operation: Local) -> Iterator[Ref]:
    yield from operation.sources if isinstance(operation, Reduce) else (operation.source,)


def _largest(values: list[Ranks]) -> tuple[Ranks, ...]:
    """Return the values of which no other one has all ranks and more, in ascending order."""
    kinds = set(values)
    return tuple(sorted(v for v in kinds if not any(v != other and v & other == v for other in kinds)))
