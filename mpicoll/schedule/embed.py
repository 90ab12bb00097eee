"""Schedules inside schedules: an algorithm on some of the ranks, on some of the blocks.

An allgather of 2 ranks with blocks 0 and 1 becomes one of ranks 4 and 6 with blocks [0, 1, 2] and [3, 4]: whoever
sent cell 0 to rank 1 sends cells 0, 1 and 2 to rank 6.  Lists may be empty; what moves nothing is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise, zip_longest

from mpicoll.schedule.ir import Copy, Local, Message, Recv, Reduce, Ref, Schedule, Scratch, Send, Step, joined, step

#: cells of each block; of one reference each cell is a block's
Cells = Ref | Sequence[Ref]
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
    inputs: Cells
    outputs: Cells

    @staticmethod
    def of(ranks: Sequence[int], blocks: Sequence[Sequence[int]], source: Ref, target: Ref) -> Region:
        """Return the region of blocks whose cells follow each other.

        Args:
            ranks: see above.
            blocks: see above.
            source: cells of all blocks of the input; none where none are read.
            target: the same of the output.
        """
        return Region(ranks, blocks, _in_blocks(source, blocks), _in_blocks(target, blocks))


def _in_blocks(cells: Ref, blocks: Sequence[Sequence[int]]) -> Cells:
    """Return the cells of each block, in one reference where each has one: there may be thousands."""
    if not cells.cells:
        return [cells] * len(blocks)
    if _is_one_each(blocks):
        return cells
    return [cells[a:b] for a, b in pairwise(accumulate(map(len, blocks), initial=0))]


def _is_one_each(blocks: Iterable[Sequence[int]]) -> bool:
    return all(len(ids) == 1 for ids in blocks)


def embed(inner: Schedule, region: Region, tmp: Scratch) -> list[Step]:
    """Return the steps of an inner schedule as steps of an outer one.

    Args:
        inner: of one of its ranks.
        region: where it is.
        tmp: gives scratch of the outer schedule.
    """
    scratch = _in_blocks(*_taken([region.blocks[block] for block in inner.scratch], tmp))
    cells: dict[str, Cells] = {"input": region.inputs, "output": region.outputs, "scratch": scratch}

    def moved(ref: Ref) -> Ref:
        held = cells[ref.buffer]
        return held.at(ref.cells) if isinstance(held, Ref) else joined([held[cell] for cell in ref.cells])

    return [step(_messages(one, region.ranks, moved), _work(one, moved)) for one in inner.steps]


def _taken(blocks: list[Sequence[int]], tmp: Scratch) -> tuple[Ref, list[Sequence[int]]]:
    """Return scratch of an outer schedule for the blocks of an inner one's, and these."""
    ids = list(chain.from_iterable(blocks))
    return tmp.take(ids) if ids else Ref("scratch", ()), blocks


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
