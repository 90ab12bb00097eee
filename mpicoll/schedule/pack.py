"""Make every message contiguous: copies into and out of scratch where an author's message is not.

One Send is one message.  Where its cells do not lie next to each other in memory, they travel through packed
scratch.  That is a fact of this rank alone, so ranks need not agree on it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from mpicoll.schedule.ir import Copy, Local, Message, Recv, Ref, Schedule, Send, Step, block_ids


def pack(schedule: Schedule, contiguous: Callable[[Ref], bool]) -> Schedule:
    """Return the schedule with packed messages; itself if nothing needs packing."""
    if all(contiguous(_cells(m)) for one in schedule.steps for m in one.messages):
        return schedule
    ids = list(schedule.scratch)
    steps: list[Step] = [Step((), ())]
    for one in schedule.steps:
        before: list[Local] = []
        after: list[Local] = []
        messages: list[Message] = []
        for message in one.messages:
            ref = _cells(message)
            if contiguous(ref):
                messages.append(message)
                continue
            wanted = block_ids(ref, schedule)
            packed = Ref("scratch", range(len(ids), len(ids) + len(wanted)))
            ids += wanted
            if isinstance(message, Send):
                before.append(Copy(packed, ref))
                messages.append(Send(packed, message.peer))
            else:
                after.append(Copy(ref, packed))
                messages.append(Recv(packed, message.peer))
        steps[-1] = replace(steps[-1], local=(*steps[-1].local, *before))
        steps.append(Step(tuple(messages), (*after, *one.local)))
    return Schedule(tuple(steps), schedule.blocks, tuple(ids), schedule.window)


def packed_cells(schedule: Schedule, contiguous: Callable[[Ref], bool]) -> int:
    """Return the number of scratch cells that `pack` would add."""
    refs = (_cells(m) for one in schedule.steps for m in one.messages)
    return sum(len(ref) for ref in refs if not contiguous(ref))


def consecutive(ref: Ref) -> bool:
    """Tell whether the cells are numbered one after the other."""
    return isinstance(ref.cells, range) or len(ref) < 2


def _cells(message: Message) -> Ref:
    return message.source if isinstance(message, Send) else message.target
