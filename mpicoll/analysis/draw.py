"""Pictures of schedules in text: who has what after every step."""

from __future__ import annotations

from collections.abc import Sequence

from mpicoll.analysis.machine import Rank, run
from mpicoll.analysis.values import Values, rank_list
from mpicoll.analysis.verify import initial_memory
from mpicoll.schedule.collectives import Collective, collective
from mpicoll.schedule.ir import Schedule, Send
from mpicoll.schedule.program import stepwise_program

#: ranks written as one character each
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def draw(name: str, schedules: Sequence[Schedule], *, root: int = 0) -> str:
    """Return a table: for every rank the blocks of its input, then of its output after every step.

    A moved block is written as its number, a reduced one as the ranks that are in it, one that
    is not there yet as a dot.  Messages of each step stand below.

    Args:
        name: the collective.
        schedules: one for each rank, at most 36.
        root: the root, where the collective has one.
    """
    row, size = collective(name), len(schedules)
    if size > len(DIGITS):
        raise ValueError(f"draws at most {len(DIGITS)} ranks, got {size}")
    columns = _snapshots(row, schedules, root)
    steps = max(len(s.steps) for s in schedules)
    head = ["rank", "input", *(f"step {k}" for k in range(steps))]
    rows = [[str(r), *columns[r]] for r in range(size)]
    widths = [max(len(line[k]) for line in (head, *rows)) for k in range(len(head))]
    table = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in (head, *rows)]
    return "\n".join([*table, "", *_messages(schedules, steps)])


def _snapshots(row: Collective, schedules: Sequence[Schedule], root: int) -> list[list[str]]:
    """Return for every rank its input and its output after every step."""
    size, values = len(schedules), Values(row.idempotent)
    programs = [stepwise_program(s, row.shared) for s in schedules]
    memories = [initial_memory(row, p, r, size, root, values) for r, p in enumerate(programs)]
    steps = max(len(s.steps) for s in schedules)
    columns = [[_blocks(row, m, "output" if row.shared else "input", r, size, root, schedules[r], values)] for r, m in enumerate(memories)]
    ends = [_step_ends(p.instructions, p, len(s.steps)) for p, s in zip(programs, schedules, strict=True)]

    def observe(rank: Rank) -> None:
        for _ in range(ends[rank.number].count(rank.position)):
            columns[rank.number].append(
                _blocks(row, rank.memory, "output", rank.number, size, root, schedules[rank.number], values)
            )

    run(programs, memories, values, observe)
    return [column + column[-1:] * (steps + 1 - len(column)) for column in columns]


def _step_ends(instructions, program, steps: int) -> list[int]:  # type: ignore[no-untyped-def]
    """Return for every step the position behind its last instruction."""
    ends = [0] * steps
    for position, instruction in enumerate(instructions):
        if hasattr(instruction, "transfers"):
            step = program.transfers[instruction.transfers[0]].step
        else:
            step = program.works[instruction.work].step
        ends[step] = position + 1
    return ends


def _blocks(
    row: Collective, memory: dict, buffer: str, rank: int, size: int, root: int, schedule: Schedule, values: Values  # type: ignore[type-arg]
) -> str:
    before = list(row.before(rank, size, root, schedule.blocks))
    after = list(row.after(rank, size, root, schedule.blocks))
    ids = before if buffer == "input" else sorted({*after, *before} if row.shared else after)
    return " ".join(_cell(row, memory.get((buffer, 0, b)), values, size) for b in ids) or "-"


def _cell(row: Collective, value: int | None, values: Values, size: int) -> str:
    if value is None:
        return "."
    if row.reducing or row.idempotent:
        return "".join(DIGITS[r] for r in rank_list(values[value].ranks))
    block = values[value].block
    return f"{DIGITS[block // size]}{DIGITS[block % size]}" if row.name == "alltoall" else str(block)


def _messages(schedules: Sequence[Schedule], steps: int) -> list[str]:
    lines = []
    for k in range(steps):
        sent = [
            f"{r}>{m.peer}"
            for r, s in enumerate(schedules)
            if k < len(s.steps)
            for m in s.steps[k].messages
            if isinstance(m, Send)
        ]
        lines.append(f"step {k}: " + (" ".join(sent) or "no message"))
    return lines
