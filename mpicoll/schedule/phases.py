"""The phases of an algorithm for several hosts: inside hosts, what hosts exchange, inside hosts again.

A striped allreduce on hosts of 2 ranks: a reduce-scatter of these 2 ranks, messages to other hosts, an allgather of
these 2 ranks.  The first and the last phase are schedules of the ranks of one host, which know no others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from mpicoll.schedule.ir import Message, Recv, Reduce, Ref, Schedule, Send, Step


@dataclass(frozen=True)
class Phases:
    """The phases of a host's ranks.

    Attributes:
        before: schedule of each rank of the host, whose peers are counted among these; () where none does anything.
        between: schedule of one of these ranks, whose peers are all ranks'.
        after: as before.
        place: of this rank among those of its host.
    """

    before: tuple[Schedule, ...]
    between: Schedule
    after: tuple[Schedule, ...]
    place: int

    def needed(self, written: Sequence[Ref]) -> list[Ref]:
        """Return those of the cells that the exchange writes which the last phase reads, or the caller."""
        later = set(touched(self.after[self.place])[0]) if self.after else set()
        return [cell for cell in written if cell.buffer != "scratch" or cell in later]

    @staticmethod
    def of(schedules: Sequence[Schedule], group: Sequence[int], rank: int) -> Phases | None:
        """Return the phases of a rank's host, None where the schedules are not made of phases.

        Args:
            schedules: of each rank of the host.
            group: the ranks of the host.
            rank: one of them.
        """
        places = {one: place for place, one in enumerate(group)}
        edges = [schedule.outside for schedule in schedules if schedule.outside is not None]
        if len(edges) < len(schedules):
            return None
        inside = zip(schedules, edges, strict=True)
        parts = [(_cut(s, 0, begin, places), _cut(s, end, len(s.steps), places)) for s, (begin, end) in inside]
        own = places[rank]
        between = _cut(schedules[own], *edges[own], None)
        before, after = (_some(tuple(part[k] for part in parts)) for k in (0, 1))
        return Phases(before, between, after, own)


def _some(schedules: tuple[Schedule, ...]) -> tuple[Schedule, ...]:
    return schedules if any(one.steps for one in schedules) else ()


def _cut(schedule: Schedule, begin: int, end: int, places: dict[int, int] | None) -> Schedule:
    """Return some steps of a schedule, with peers by their places, or as they are."""
    steps = schedule.steps[begin:end]
    if places is not None:
        steps = tuple(Step(tuple(_moved(m, places) for m in one.messages), one.local) for one in steps)
    return replace(schedule, steps=steps, outside=None)


def _moved(message: Message, places: dict[int, int]) -> Message:
    return replace(message, peer=places[message.peer])


def touched(schedule: Schedule) -> tuple[list[Ref], list[Ref]]:
    """Return (cells that a schedule reads before it has written them, cells that it writes)."""
    read: dict[Ref, None] = {}
    written: dict[Ref, None] = {}
    for sources, target in _operations(schedule):
        read.update((cell, None) for ref in sources for cell in ref if cell not in written)
        written.update((cell, None) for ref in target for cell in ref)
    return list(read), list(written)


def _operations(schedule: Schedule) -> Iterator[tuple[tuple[Ref, ...], tuple[Ref, ...]]]:
    """Yield what each operation of a schedule reads and writes; of a step first what is sent."""
    for one in schedule.steps:
        yield tuple(m.source for m in one.messages if isinstance(m, Send)), ()
        yield (), tuple(m.target for m in one.messages if isinstance(m, Recv))
        for work in one.local:
            yield work.sources if isinstance(work, Reduce) else (work.source,), (work.target,)
