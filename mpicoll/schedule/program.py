"""Programs: what one rank executes, instruction by instruction; `planner.py` makes them.

**Tags.** The messages between two ranks in one direction are matched by tag, and among equal tags
in the order in which each side starts them.  `tag_of` gives every lane tags of its own, and
a message its number among them, modulo their count.  That is right for any number of segments
and of messages, by this argument:

1. Both ranks have the same lanes and segments.  A lane runs its segments one after the other,
   and a segment's steps one after the other.  A step's receives start with the step, or, if
   they are early, with the step before: in every segment alike.  So in a lane each rank
   starts these messages in ascending order of (segment, number).
2. Messages of two lanes are started in different orders on two ranks, but never have equal tags.
3. `Startall` has no order.  So a `Start` never holds two messages with equal tags between two
   ranks in one direction: the planner begins another `Start` for the second.

By 1 and 3 the k-th send with a tag and the k-th receive with it are the same message; by 2 no
other lane comes between.  With 4 lanes message 1030 of segment 9 has tag 1 * 1024 + 6.
"""

from __future__ import annotations

from dataclasses import dataclass

from mpicoll.schedule.ir import Local, Ref, Schedule

#: one cell of one segment, or of one lane where the cell is scratch
CellKey = tuple[str, int, int]

#: tags of one program's messages
TAGS = 4096


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
    """Instructions of one rank, in order; every dependency is already in the order.

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

    def keys(self, ref: Ref, segment: int) -> list[CellKey]:
        """Return the cells' identities, equal where memory is the same."""
        return cell_keys(ref, segment, self.lanes, self.aliased)


def cell_keys(ref: Ref, segment: int, lanes: int, aliased: bool) -> list[CellKey]:
    """Return the identity of each cell of a segment, equal where memory is the same.

    Args:
        ref: the cells.
        segment: their segment.
        lanes: segments in flight.
        aliased: input and output are the same memory.
    """
    if ref.buffer == "scratch":
        return [("scratch", segment % lanes, cell) for cell in ref.cells]
    buffer = "output" if aliased else ref.buffer
    return [(buffer, segment, cell) for cell in ref.cells]


def tag_of(transfer: Transfer, lanes: int) -> int:
    """Return a message's tag, at least 0 and below TAGS; see this module for why it suffices."""
    width = TAGS // lanes
    return transfer.segment % lanes * width + transfer.number % width
