"""Credit: the pairs of ranks in which the receiver must give it, found from all ranks' schedules.

On the path mapped a rank writes into its peers' inboxes without asking, in two slots in turn.  It may use a
slot again only when the peer has read it.  Where a rank hears from the peer, directly or through
others, in every wave, that is known: the peer sends for a wave only after it has done
with the one before.  Elsewhere the peer must give credit.

In a ring of 4 ranks rank 0 sends to rank 1, and hears from it by way of 2 and 3: no credit.  In a bcast from
rank 0 to all others nobody sends to rank 0: each gives credit.
"""

from __future__ import annotations

from collections.abc import Sequence

from mpicoll.errors import ScheduleError
from mpicoll.runtime.paths.mapped.lowering import Get, Lowered, Put, lower
from mpicoll.schedule.ir import Recv, Schedule, Send, block_ids


def unheard(schedules: Sequence[Schedule]) -> frozenset[tuple[int, int]]:
    """Return the pairs (sender, receiver) where the sender hears nothing from the receiver.

    What counts is the order of the lowered programs, in place or not: there a message may be waited for
    long after the step that receives it.

    Raises:
        ScheduleError: a message is not received as the same blocks in the same order, or never arrives.
    """
    _check_blocks(schedules)
    apart, in_place = ([lower(s, aliased) for s in schedules] for aliased in (False, True))
    return frozenset(_silent(apart) | _silent(in_place))


def _check_blocks(schedules: Sequence[Schedule]) -> None:
    """Raise if the messages between two ranks are not the same blocks on both sides."""
    sent: dict[tuple[int, int], list[tuple[int, ...]]] = {}
    for rank, schedule in enumerate(schedules):
        for outgoing in (m for one in schedule.steps for m in one.messages if isinstance(m, Send)):
            sent.setdefault((rank, outgoing.peer), []).append(block_ids(outgoing.source, schedule))
    for rank, schedule in enumerate(schedules):
        for message in (m for one in schedule.steps for m in one.messages if isinstance(m, Recv)):
            coming = sent.get((message.peer, rank))
            if not coming:
                raise ScheduleError(f"rank {rank} waits for messages that are never sent")
            blocks = coming.pop(0)
            if blocks != block_ids(message.target, schedule):
                raise ScheduleError(f"rank {rank} receives blocks {blocks} of rank {message.peer} as others: {message}")


def _silent(programs: Sequence[Lowered]) -> set[tuple[int, int]]:
    """Return the pairs where the sender does not hear from the receiver, following all programs."""
    known = [{rank} for rank in range(len(programs))]
    places = [0] * len(programs)
    boxes: dict[tuple[int, int, int], set[int]] = {}
    while any([_go_on(rank, programs[rank], places, known, boxes) for rank in range(len(programs))]):
        pass
    late = [rank for rank, program in enumerate(programs) if places[rank] < len(program.instructions)]
    if late:
        raise ScheduleError(f"rank {late[0]} waits for messages that are never sent")
    return {(sender, receiver) for sender, receiver, _ in boxes if receiver not in known[sender]}


def _go_on(
    rank: int,
    program: Lowered,
    places: list[int],
    known: list[set[int]],
    boxes: dict[tuple[int, int, int], set[int]],
) -> bool:
    """Take a rank as far as what was put allows; return whether it moved.

    Args:
        rank: that goes on.
        program: its program.
        places: number of instructions that each rank has done; changed.
        known: for each rank the ranks of which it has heard; changed.
        boxes: (sender, receiver, place) of what was put -> the ranks of which its sender had heard; changed.
    """
    start = places[rank]
    for one in program.instructions[start:]:
        if isinstance(one, Put):
            boxes[rank, one.peer, one.place] = set(known[rank])
        if isinstance(one, Get):
            if (one.peer, rank, one.place) not in boxes:
                break
            known[rank] |= boxes[one.peer, rank, one.place]
        places[rank] += 1
    return places[rank] > start
