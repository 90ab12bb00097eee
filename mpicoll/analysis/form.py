"""Is a schedule well formed?  What can be said of one rank's steps without running them."""

from __future__ import annotations

from mpicoll.errors import ScheduleError
from mpicoll.schedule.ir import Local, Recv, Reduce, Ref, Schedule, Send

BUFFERS = ("input", "output", "scratch")


def check_form(rank: int, schedule: Schedule, blocks: int, aliased: bool) -> None:
    """Raise unless every cell exists, none is written twice by one operation, and none too early.

    Args:
        rank: for messages.
        schedule: the rank's schedule.
        blocks: ids of blocks are below this.
        aliased: input and output are the same memory.
    """
    for number, one in enumerate(schedule.steps):
        for operation in (*one.messages, *one.local):
            wrong = _wrong(operation, schedule, blocks, aliased)
            if wrong:
                raise ScheduleError(f"rank {rank}, step {number}: {operation}: {wrong}")


def _wrong(operation: Send | Recv | Local, schedule: Schedule, blocks: int, aliased: bool) -> str:
    sources = _sources(operation)
    targets = [] if isinstance(operation, Send) else [operation.target]
    for ref in (*sources, *targets):
        unknown = _unknown(ref, schedule, blocks)
        if unknown:
            return unknown
    for target in targets:
        twice = [c for c in target.cells if target.cells.count(c) > 1] if len(set(target.cells)) < len(target) else []
        if twice:
            return f"writes {target.buffer}[{twice[0]}] twice"
        for source in sources:
            early = _read_late(target, source, aliased)
            if early is not None:
                return f"overwrites {target.buffer}[{early}] before it is read"
    return ""


def _sources(operation: Send | Recv | Local) -> tuple[Ref, ...]:
    if isinstance(operation, Recv):
        return ()
    return operation.sources if isinstance(operation, Reduce) else (operation.source,)


def _unknown(ref: Ref, schedule: Schedule, blocks: int) -> str:
    if ref.buffer not in BUFFERS:
        return f"there is no buffer {ref.buffer!r}"
    most = len(schedule.scratch) if ref.buffer == "scratch" else blocks
    outside = [cell for cell in ref.cells if not 0 <= cell < most]
    return f"{ref.buffer}[{outside[0]}] does not exist" if outside else ""


def _read_late(target: Ref, source: Ref, aliased: bool) -> int | None:
    """Return a cell that is written at one place of an operation and read at another."""
    same = target.buffer == source.buffer or (aliased and {target.buffer, source.buffer} == {"input", "output"})
    if not same or target.cells == source.cells:
        return None
    places = {cell: place for place, cell in enumerate(target.cells)}
    return next((c for place, c in enumerate(source.cells) if places.get(c, place) != place), None)
