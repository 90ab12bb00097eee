"""Is a schedule well formed?  What can be said of one rank's steps without running them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mpicoll.errors import ScheduleError
from mpicoll.schedule.collectives import Collective
from mpicoll.schedule.ir import Copy, Local, Recv, Reduce, Ref, Schedule, Send, Step, block_ids

BUFFERS = ("input", "output", "scratch")


def check_kinds(rank: int, schedule: Any, size: int) -> None:
    """Raise ScheduleError unless a function returned a schedule, and all in it is of the right kind."""
    odd = _odd_schedule(schedule)
    if odd:
        raise ScheduleError(f"rank {rank}: {odd}")
    for number, one in enumerate(schedule.steps):
        odd = _odd_step(one, rank, size)
        if odd:
            raise ScheduleError(f"rank {rank}, step {number}: {odd}")


def _odd_schedule(schedule: Any) -> str:
    if not isinstance(schedule, Schedule):
        return f"{_short(schedule)} is no Schedule"
    for name, least in (("blocks", 1), ("window", 0)):
        number = getattr(schedule, name)
        if not _whole(number) or number < least:
            return f"{name}={_short(number)} is no whole number from {least} on"
    for name in ("steps", "scratch"):
        if not isinstance(getattr(schedule, name), tuple):
            return f"{name} is no tuple"
    wrong = next((b for b in schedule.scratch if not _whole(b) or not 0 <= b < schedule.blocks), None)
    return "" if wrong is None else f"scratch is sized for block {_short(wrong)}, which does not exist"


def _odd_step(one: Any, rank: int, size: int) -> str:
    if not isinstance(one, Step):
        return f"{_short(one)} is no Step"
    for name, kinds in (("messages", (Send, Recv)), ("local", (Reduce, Copy))):
        parts: Any = getattr(one, name)
        if not isinstance(parts, tuple):
            return f"{_short(parts)} is no tuple of operations"
        for part in parts:
            if not isinstance(part, kinds):
                return f"{_short(part)} is no {' or '.join(kind.__name__ for kind in kinds)}"
    return next(filter(None, (_odd_operation(o, rank, size) for o in (*one.messages, *one.local))), "")


def _odd_operation(operation: Send | Recv | Local, rank: int, size: int) -> str:
    if isinstance(operation, Send | Recv):
        peer = operation.peer
        if not _whole(peer) or not 0 <= peer < size or peer == rank:
            return f"peer {_short(peer)} is not another rank"
    if isinstance(operation, Reduce) and not (isinstance(operation.sources, tuple) and operation.sources):
        return f"{_short(operation.sources)} is no tuple of operands"
    refs = (*_sources(operation), *_targets(operation))
    return next((f"{_short(ref)} is no Ref with a tuple of whole numbers" for ref in refs if not _is_ref(ref)), "")


def _short(thing: Any) -> str:
    text = repr(thing)
    return text if len(text) <= 60 else text[:57] + "..."


def _whole(number: Any) -> bool:
    return isinstance(number, int) and not isinstance(number, bool)


def _is_ref(ref: Any) -> bool:
    return isinstance(ref, Ref) and isinstance(ref.cells, tuple | range) and all(map(_whole, ref.cells))


def check_counts(row: Collective, schedules: Sequence[Schedule], root: int) -> None:
    """Raise ScheduleError if a rank names a block that is neither in its input nor in its output.

    In a v-variant such a rank does not know how long the block is.
    """
    for rank, schedule in enumerate(schedules):
        place = rank, len(schedules), root, schedule.blocks
        known = {*row.before(*place), *row.after(*place)}
        for number, one in enumerate(schedule.steps):
            for operation in (*one.messages, *one.local):
                named = (b for ref in (*_sources(operation), *_targets(operation)) for b in block_ids(ref, schedule))
                passed = next((b for b in named if b not in known), None)
                if passed is not None:
                    raise ScheduleError(
                        f"rank {rank}, step {number}: {operation}: passes on block {passed}, "
                        f"whose count this rank does not know, though the card says forwards=False"
                    )


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
    targets = _targets(operation)
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


def _targets(operation: Send | Recv | Local) -> tuple[Ref, ...]:
    return () if isinstance(operation, Send) else (operation.target,)


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
