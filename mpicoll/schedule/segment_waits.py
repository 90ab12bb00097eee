"""Segments' edges: where a program begins with a segment, and where it is done with the segment's output."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

from mpicoll.schedule.ir import Ref
from mpicoll.schedule.program import Instruction, Launch, Program, Start, Sync, Wait


@dataclass(frozen=True)
class Edges:
    """Segments by the place of an instruction: those that begin before it, and those whose output it completes."""

    begin: dict[int, list[int]]
    end: dict[int, list[int]]

    @staticmethod
    def of(program: Program) -> Edges:
        """Find both for all segments; what nothing writes has no end."""
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        for place, instruction in enumerate(program.instructions):
            for segment in _segments(program, instruction):
                first.setdefault(segment, place)
            for segment in _written(program, instruction):
                last[segment] = place
        return Edges(_by_place(first), _by_place(last))


def finished_early(program: Program) -> Program:
    """Return the program with waits for a segment's last messages where its lane is handed over, not at the end.

    Nothing else of the program may need what a segment receives last.  Then it is awaited at the end, which is too
    late for a wrapper that goes on with a segment as soon as it is there.
    """
    order = program.instructions
    if program.segments == 1 or not order or not isinstance(order[-1], Wait):
        return program
    rest = order[-1].transfers
    mine: dict[int, list[int]] = defaultdict(list)
    for t in rest:
        transfer = program.transfers[t]
        if not transfer.sends and _is_output(program, transfer.ref):
            mine[transfer.segment].append(t)
    heirs = Edges.of(replace(program, instructions=order[:-1])).begin
    instructions: list[Instruction] = []
    for place, instruction in enumerate(order[:-1]):
        for segment in heirs.get(place, []):
            _add_wait(instructions, mine.pop(segment - program.lanes, []))
        instructions.append(instruction)
    for segment in sorted(mine):
        _add_wait(instructions, mine[segment])
    waited = {t for i in instructions if isinstance(i, Wait) for t in i.transfers}
    _add_wait(instructions, [t for t in rest if t not in waited])
    return replace(program, instructions=tuple(instructions))


def _add_wait(instructions: list[Instruction], transfers: list[int]) -> None:
    if transfers:
        instructions.append(Wait(tuple(transfers)))


def _segments(program: Program, instruction: Instruction) -> set[int]:
    match instruction:
        case Start(transfers) | Wait(transfers):
            return {program.transfers[t].segment for t in transfers}
        case Launch(work) | Sync(work):
            return {program.works[work].segment}


def _written(program: Program, instruction: Instruction) -> set[int]:
    """Return the segments of whose output the instruction completes a part."""
    match instruction:
        case Wait(transfers):
            found = [program.transfers[t] for t in transfers]
            return {t.segment for t in found if not t.sends and _is_output(program, t.ref)}
        case Launch(work):
            one = program.works[work]
            return {one.segment} if _is_output(program, one.operation.target) else set()
    return set()


def _is_output(program: Program, ref: Ref) -> bool:
    return ref.buffer == "output" or (program.aliased and ref.buffer == "input")


def _by_place(places: dict[int, int]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for segment, place in places.items():
        found[place].append(segment)
    return dict(found)
