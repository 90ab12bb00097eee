"""Space: into how many blocks a vector is cut, and how many blocks of scratch a rank needs.

A plan must know both on all ranks alike, and without their schedules, of which there are as many as
ranks.  So a card declares them as expressions in the number of ranks, and verification counts in the schedules:

    ring's allreduce on 4 ranks       blocks "p"    4 blocks of the vector
                                      scratch "p-1" 3 of them as scratch, 3/4 of the vector
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mpicoll.algorithms.expression import compiled, evaluate, of_ranks
from mpicoll.schedule.collectives import Collective
from mpicoll.schedule.ir import Ref, Schedule
from mpicoll.schedule.pack import consecutive, packed_cells


@dataclass(frozen=True)
class Space:
    """Numbers of blocks.

    Attributes:
        blocks: those of the vector.
        scratch: most scratch of a rank, messages that are packed included.
        packed: the same where blocks are cut into segments, so that messages of several blocks are packed.
    """

    blocks: int
    scratch: int
    packed: int


def declared(what: str, text: str, size: int) -> int:
    """Return the number of blocks that an expression declares for a number of ranks, rounded up, at least 0."""
    return max(math.ceil(exact(what, text, size)), 0)


def exact(what: str, text: str, size: int) -> float:
    """Return the value of a declaration; raises ValueError where it is no finite number."""
    try:
        value = evaluate(compiled(what, text), of_ranks(size))
    except ArithmeticError as error:
        raise ValueError(f"{what} {text!r} with p={size}: {error}") from None
    if isinstance(value, complex) or not math.isfinite(value):
        raise ValueError(f"{what} {text!r} with p={size} is {value!r}, no number of blocks")
    return float(value)


def counted(row: Collective, schedules: Sequence[Schedule]) -> Space:
    """Return the space that the schedules of all ranks need."""
    scratch, packed = (max(_scratch(row, s, segmented) for s in schedules) for segmented in (False, True))
    return Space(schedules[0].blocks, scratch, packed)


def _scratch(row: Collective, schedule: Schedule, segmented: bool) -> int:
    """Return the scratch cells of a rank; segments of several blocks lie apart, unless the vector is cut freely."""

    def contiguous(ref: Ref) -> bool:
        return len(ref) == 1 or (consecutive(ref) and (row.free or not segmented or ref.buffer == "scratch"))

    return len(schedule.scratch) + packed_cells(schedule, contiguous)
