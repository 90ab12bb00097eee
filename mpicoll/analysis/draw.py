"""Pictures of schedules in text: who has what after every round."""

from __future__ import annotations

from collections.abc import Sequence

from mpicoll.analysis.machine import Rank, run
from mpicoll.analysis.rounds import Rounds, rounds
from mpicoll.analysis.values import Values, rank_list
from mpicoll.analysis.verify import initial_memory
from mpicoll.schedule.collectives import Collective, collective
from mpicoll.schedule.ir import Schedule, Send
from mpicoll.schedule.planner import stepwise_program
from mpicoll.schedule.program import Program, Start, Wait

#: ranks written as one character each
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def draw(name: str, schedules: Sequence[Schedule], *, root: int = 0) -> str:
    """Return a table: for every rank the blocks of its input, then of its output after every round.

    A moved block is written as its number, and a reduced one as the ranks that are in it.  A dot is a block that
    is not there yet.  The messages of each round stand below.

    Args:
        name: the collective.
        schedules: one for each rank, at most 36.
        root: the root, where the collective has one.
    """
    row, size = collective(name), len(schedules)
    if size > len(DIGITS):
        raise ValueError(f"draws at most {len(DIGITS)} ranks, got {size}")
    when = rounds(schedules)
    columns = _snapshots(row, schedules, root, when)
    head = ["rank", "input", *(f"round {k}" for k in range(when.count))]
    lines = [head, *([str(r), *columns[r]] for r in range(size))]
    widths = [max(len(line[k]) for line in lines) for k in range(len(head))]
    table = ["  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join([*table, "", *_messages(schedules, when)])


def _snapshots(row: Collective, schedules: Sequence[Schedule], root: int, when: Rounds) -> list[list[str]]:
    """Return for every rank its input and its output after every round.

    Args:
        row: the collective.
        schedules: of all ranks.
        root: the root, 0 where there is none.
        when: the rounds of the steps.
    """
    size, last, values = len(schedules), when.count, Values(row.idempotent)
    programs = [stepwise_program(s, row.shared) for s in schedules]
    memories = [initial_memory(row, p, r, size, root, values) for r, p in enumerate(programs)]

    def look(rank: int, buffer: str) -> str:
        ids = _shown(row, buffer, rank, size, root, schedules[rank].blocks)
        return " ".join(_cell(row, memories[rank].get((buffer, 0, b)), values, size) for b in ids) or "-"

    starts = [look(r, "output" if row.shared else "input") for r in range(size)]
    after = [[look(r, "output")] * last for r in range(size)]
    ends = [_step_ends(p, len(s.steps)) for p, s in zip(programs, schedules, strict=True)]

    def observe(rank: Rank) -> None:
        for step, end in enumerate(ends[rank.number]):
            if end == rank.position:
                first = when.ends[rank.number][step]
                after[rank.number][first:] = [look(rank.number, "output")] * (last - first)

    run(programs, memories, values, observe)
    return [[start, *columns] for start, columns in zip(starts, after, strict=True)]


def _step_ends(program: Program, steps: int) -> list[int]:
    """Return for every step the position after its last instruction."""
    ends = [0] * steps
    for position, instruction in enumerate(program.instructions):
        if isinstance(instruction, Start | Wait):
            step = program.transfers[instruction.transfers[0]].step
        else:
            step = program.works[instruction.work].step
        ends[step] = position + 1
    return ends


def _shown(row: Collective, buffer: str, rank: int, size: int, root: int, blocks: int) -> list[int]:
    """Return the blocks that a column shows.

    Args:
        row: the collective.
        buffer: "input" or "output".
        rank: whose buffer it is.
        size: number of ranks.
        root: the root, 0 where there is none.
        blocks: number of blocks of the vector.
    """
    before, after = row.before(rank, size, root, blocks), row.after(rank, size, root, blocks)
    return list(before) if buffer == "input" else sorted({*before, *after} if row.shared else after)


def _cell(row: Collective, value: int | None, values: Values, size: int) -> str:
    if value is None:
        return "."
    if row.reducing or row.idempotent:
        return "".join(DIGITS[r] for r in rank_list(values[value].ranks))
    block = values[value].block
    return f"{DIGITS[block // size]}{DIGITS[block % size]}" if row.name == "alltoall" else str(block)


def _messages(schedules: Sequence[Schedule], when: Rounds) -> list[str]:
    sent: list[list[str]] = [[] for _ in range(when.count)]
    for rank, schedule in enumerate(schedules):
        for round_number, one in zip(when.starts[rank], schedule.steps, strict=True):
            sent[round_number] += [f"{rank}>{m.peer}" for m in one.messages if isinstance(m, Send)]
    return [f"round {k}: " + (" ".join(pairs) or "no message") for k, pairs in enumerate(sent)]
