"""Schedules inside schedules: an algorithm on some of the ranks, on some of the blocks.

An allgather of 2 ranks with blocks 0 and 1 becomes one of ranks 4 and 6 with blocks [0, 1, 2] and [3, 4]: whoever
sent cell 0 to rank 1 sends cells 0, 1 and 2 to rank 6.  Lists may be empty; what moves nothing is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from mpicoll.schedule.ir import Copy, Local, Message, Recv, Reduce, Ref, Schedule, Scratch, Send, Step, joined, step

#: returns the outer cells of inner ones
Moved = Callable[[Ref], Ref]


@dataclass(frozen=True)
class Region:
    """The ranks and blocks of an outer schedule on which an inner one works.

    Attributes:
        ranks: outer rank of each inner one.
        blocks: ids of the outer blocks of each inner one.
        inputs: outer cells of each block of the inner input, as many as it has outer blocks.
        outputs: the same of the inner output.
    """

    ranks: Sequence[int]
    blocks: Sequence[Sequence[int]]
    inputs: Sequence[Ref]
    outputs: Sequence[Ref]


def embed(inner: Schedule, region: Region, tmp: Scratch) -> list[Step]:
    """Return the steps of an inner schedule as steps of an outer one.

    Args:
        inner: of one of its ranks.
        region: where it is.
        tmp: gives scratch of the outer schedule.
    """
    none = Ref("scratch", ())
    scratch = [tmp.take(ids) if (ids := region.blocks[block]) else none for block in inner.scratch]
    cells = {"input": region.inputs, "output": region.outputs, "scratch": scratch}

    def moved(ref: Ref) -> Ref:
        return joined(cells[ref.buffer][cell] for cell in ref.cells)

    return [step(_messages(one, region.ranks, moved), _work(one, moved)) for one in inner.steps]


def _messages(one: Step, ranks: Sequence[int], moved: Moved) -> list[Message]:
    """Return the messages of a step that move something."""
    found: list[Message] = []
    for message in one.messages:
        ref = moved(message.source if isinstance(message, Send) else message.target)
        if ref.cells:
            kind = Send if isinstance(message, Send) else Recv
            found.append(kind(ref, ranks[message.peer]))
    return found


def _work(one: Step, moved: Moved) -> list[Local]:
    """Return the local work of a step that changes something."""
    found: list[Local] = []
    for work in one.local:
        target = moved(work.target)
        if not target.cells:
            continue
        if isinstance(work, Reduce):
            found.append(Reduce(target, tuple(moved(source) for source in work.sources)))
        elif (source := moved(work.source)) != target:
            found.append(Copy(target, source))
    return found


def beside(*parts: Sequence[Step]) -> list[Step]:
    """Return the steps of parts that have nothing to do with each other, the first ones together, and so on."""
    empty = Step((), ())
    return [
        Step(tuple(m for one in together for m in one.messages), tuple(w for one in together for w in one.local))
        for together in zip_longest(*parts, fillvalue=empty)
    ]
