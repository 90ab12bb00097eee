"""Rounds of steps: the earliest round of every rank's steps, each message taking one round.

An allgather by the ring on 4 ranks has 3 rounds.  Rank 0 copies its block and passes it on in round 0; it passes
the others' blocks on in rounds 1 and 2.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from mpicoll.schedule.ir import Schedule, Send


@dataclass
class Rounds:
    """For every rank the rounds in which each of its steps starts and ends, counted from 0."""

    starts: list[list[int]]
    ends: list[list[int]]

    @property
    def count(self) -> int:
        """Number of rounds until everything has ended."""
        return max((end + 1 for ends in self.ends for end in ends), default=0)


def rounds(schedules: Sequence[Schedule]) -> Rounds:
    """Return the rounds in which steps start and end.

    A step with messages starts in the round after the rank's earlier messages, and sends at once; it
    ends when what it receives has been sent.  Local work takes no round of its own.
    """
    sent_in = _senders(schedules)
    found = Rounds([[0] * len(s.steps) for s in schedules], [[0] * len(s.steps) for s in schedules])
    changed = True
    while changed:
        changed = False
        for rank, schedule in enumerate(schedules):
            last = -1  # round of the rank's messages so far
            for step, one in enumerate(schedule.steps):
                start = last + 1 if one.messages else max(last, 0)
                end = max([start, *(found.starts[peer][theirs] for peer, theirs in sent_in[rank, step])])
                changed |= (start, end) != (found.starts[rank][step], found.ends[rank][step])
                found.starts[rank][step], found.ends[rank][step] = start, end
                last = end if one.messages else last
    return found


def _senders(schedules: Sequence[Schedule]) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """Return for every (rank, step) the (rank, step) that send what it receives."""
    sends: dict[tuple[int, int], list[int]] = defaultdict(list)
    receives: dict[tuple[int, int], list[int]] = defaultdict(list)
    for rank, schedule in enumerate(schedules):
        for step, one in enumerate(schedule.steps):
            for message in one.messages:
                if isinstance(message, Send):
                    sends[rank, message.peer].append(step)
                else:
                    receives[message.peer, rank].append(step)
    found: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for (source, target), steps in receives.items():
        for theirs, mine in zip(sends[source, target], steps, strict=False):
            found[target, mine].append((source, theirs))
    return found
