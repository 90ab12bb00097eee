"""Who hears from whom while a schedule runs: what the mapped path must know of all ranks together.

There a rank writes into its peers' inboxes without asking, in two slots in turn.  It may use a
slot again only when the peer has read it.  Where a rank hears from the peer, directly or through
others, in every run of the schedule, that is known: the peer sends for a run only when it has
done with the one before.  Elsewhere the peer must give credit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from mpicoll.errors import ScheduleError
from mpicoll.schedule.ir import Recv, Schedule, Send, Step, block_ids


def unheard(schedules: Sequence[Schedule]) -> frozenset[tuple[int, int]]:
    """Return the pairs (sender, receiver) where the sender hears nothing from the receiver.

    Raises:
        ScheduleError: a message is not received as the same blocks in the same order, or never arrives.
    """
    run = _Run(schedules)
    while any([run.go_on(rank) for rank in range(len(schedules))]):
        pass
    late = [rank for rank, schedule in enumerate(schedules) if run.places[rank] < len(schedule.steps)]
    if late:
        raise ScheduleError(f"rank {late[0]} waits for messages that are never sent")
    return frozenset((sender, receiver) for sender, receiver in run.sent if receiver not in run.known[sender])


class _Run:
    """All ranks on their way through their schedules, and whom each has heard from."""

    def __init__(self, schedules: Sequence[Schedule]) -> None:
        self.schedules = schedules
        self.known = [{rank} for rank in range(len(schedules))]
        self.places = [0] * len(schedules)
        self.posted = [-1] * len(schedules)
        self.sent: dict[tuple[int, int], list[tuple[tuple[int, ...], set[int]]]] = {}

    def go_on(self, rank: int) -> bool:
        """Take a rank as far as the messages that were sent allow; tell whether it moved."""
        steps = self.schedules[rank].steps
        moved = False
        while self.places[rank] < len(steps):
            one = steps[self.places[rank]]
            if self.posted[rank] < self.places[rank]:  # before anything of this step is heard
                self.posted[rank], moved = self.places[rank], True
                self._send(rank, one)
            receives = [m for m in one.messages if isinstance(m, Recv)]
            if not self._arrived(receives, rank):
                break
            for message in receives:
                self._receive(rank, message)
            self.places[rank], moved = self.places[rank] + 1, True
        return moved

    def _send(self, rank: int, one: Step) -> None:
        for message in one.messages:
            if isinstance(message, Send):
                blocks = block_ids(message.source, self.schedules[rank])
                self.sent.setdefault((rank, message.peer), []).append((blocks, set(self.known[rank])))

    def _arrived(self, receives: list[Recv], rank: int) -> bool:
        """Tell whether all messages that a step receives were sent."""
        wanted: dict[int, int] = defaultdict(int)
        for message in receives:
            wanted[message.peer] += 1
        return all(len(self.sent.get((peer, rank), ())) >= number for peer, number in wanted.items())

    def _receive(self, rank: int, message: Recv) -> None:
        blocks, heard = self.sent[message.peer, rank].pop(0)
        if blocks != block_ids(message.target, self.schedules[rank]):
            raise ScheduleError(f"rank {rank} receives blocks {blocks} of rank {message.peer} as others: {message}")
        self.known[rank] |= heard
