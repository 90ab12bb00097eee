"""The placement of a program in its buffers: what is the same for all calls whose arrays are only elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mpicoll.runtime.program.layout import Layout
from mpicoll.runtime.program.local_work import Run
from mpicoll.schedule.ir import Reduce, Ref
from mpicoll.schedule.program import Program

#: (buffer, bytes from its start, bytes)
Span = tuple[str, int, int]

#: a layout's places, counted from the start of each buffer
STARTS = {"input": 0, "output": 0, "scratch": 0}


@dataclass(frozen=True, eq=False)
class Placement:
    """The memory of a program's messages and local work, counted from the start of each buffer.

    The allreduce of 1000 bytes on two ranks by `one_shot` sends ("input", 0, 1000), and has one work, of one row:
    (("output", 0, 1000), ("input", 0, 1000), ("scratch", 0, 1000)).

    Attributes:
        program: whose memory it is.
        layout: of the program's cells.
        messages: span of each transfer.
        works: for each work the rows (target, *sources), each of one length.
    """

    program: Program
    layout: Layout
    messages: tuple[Span, ...]
    works: tuple[tuple[tuple[Span, ...], ...], ...]

    @staticmethod
    def of(program: Program, layout: Layout) -> Placement:
        """Return the placement of a program whose cells are laid out so."""
        messages = tuple(_one(layout, transfer.ref, transfer.segment) for transfer in program.transfers)
        return Placement(program, layout, messages, tuple(_rows(program, n, layout) for n in range(len(program.works))))


def located(span: Span, bases: Mapping[str, int]) -> Run:
    """Return (address, bytes) of a span, where the buffers start at these addresses."""
    buffer, start, nbytes = span
    return bases[buffer] + start, nbytes


def _one(layout: Layout, ref: Ref, segment: int) -> Span:
    """Return the memory of a message, ("scratch", 0, 0) for an empty one."""
    runs = layout.runs(ref, segment, STARTS)
    if len(runs) > 1:
        raise AssertionError(f"message of {ref} is not contiguous: {runs}")
    return (ref.buffer, *runs[0]) if runs else ("scratch", 0, 0)


def _rows(program: Program, number: int, layout: Layout) -> tuple[tuple[Span, ...], ...]:
    """Return the rows of a work."""
    work = program.works[number]
    operation = work.operation
    sources = operation.sources if isinstance(operation, Reduce) else (operation.source,)
    refs = (operation.target, *sources)
    columns = [layout.runs(ref, work.segment, STARTS) for ref in refs]
    return tuple(
        tuple((ref.buffer, *run) for ref, run in zip(refs, row, strict=True)) for row in pieces(*columns)
    )


def pieces(*columns: list[Run]) -> list[tuple[Run, ...]]:
    """Return columns of runs of the same total length, cut so that pieces line up.

    pieces([(0, 30)], [(100, 10), (200, 20)]) == [((0, 10), (100, 10)), ((10, 20), (200, 20))]
    """
    if all(len(column) == 1 for column in columns):
        return [tuple(column[0] for column in columns)]
    places = [0] * len(columns)
    used = [0] * len(columns)
    rows: list[tuple[Run, ...]] = []
    while places[0] < len(columns[0]):
        left = [column[place][1] - u for column, place, u in zip(columns, places, used, strict=True)]
        length = min(left)
        rows.append(
            tuple((column[place][0] + u, length) for column, place, u in zip(columns, places, used, strict=True))
        )
        for k in range(len(columns)):
            used[k] += length
            if left[k] == length:
                places[k], used[k] = places[k] + 1, 0
    return rows
