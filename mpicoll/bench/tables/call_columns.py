"""The columns with which every table of calls begins: what is called, and how it is carried out.

Columns in which all jobs are alike are dropped, and said once above the table:

    # float32, sum, root 0, path host
    # op          size form algorithm
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from mpicoll.algorithms import registry
from mpicoll.bench.output.columns import Column
from mpicoll.bench.output.rows import MeasuredCall, Row
from mpicoll.bench.request.cases import Case
from mpicoll.bench.request.jobs import Job
from mpicoll.bench.request.options import Options
from mpicoll.dispatch.rules import parse_choice

#: characters behind an algorithm's name: "/16", and "@mapped" where there is more than one path
SEGMENTS, PATH = 3, 7


class CallRow(Row, Protocol):
    """A measurement of one call."""

    @property
    def call(self) -> MeasuredCall:
        """The call."""


class CallLines(CallRow, Protocol):
    """A measurement of one call, with lines of its own in the table."""

    def cells(self) -> Iterator[tuple[str, ...]]:
        """Yield the cells behind those of the call, for each line of the table."""


@dataclass(frozen=True)
class Part:
    """A column of a call.

    Attributes:
        column: its head.
        cell: of a case and its form; "" where the case has no such thing.
        said: what stands above the table where all cases have the same cell.
        kept: the column is there though all cases have the same cell.
    """

    column: Column
    cell: Callable[[Case, bool], str]
    said: Callable[[str], str] = str
    kept: bool = False


def _dtype(case: Case, in_place: bool) -> str:
    return "" if case.call.method == "Barrier" else case.dtype


def _form(case: Case, in_place: bool) -> str:
    return "" if len(case.call.forms) < 2 else "in" if in_place else "out"


def _root(case: Case, in_place: bool) -> str:
    return str(case.root) if case.call.row.rooted else ""


_PARTS = (
    Part(Column("# op", "#", 4, "left"), lambda case, in_place: case.call.name, kept=True),
    Part(Column("ranks", "", 5), lambda case, in_place: str(case.size), lambda text: f"{text} ranks"),
    Part(Column("size", "(B)", 4), lambda case, in_place: str(case.nbytes), kept=True),
    Part(Column("type", "", 4), _dtype),
    Part(Column("redop", "", 5), lambda case, in_place: case.redop.lower()),
    Part(Column("root", "", 4), _root, lambda text: f"root {text}"),
    Part(Column("form", "", 4), _form, lambda text: {"in": "in place", "out": "out of place"}[text]),
)
_COUNT = Part(Column("count", "", 5), lambda case, in_place: str(case.count))


class CallColumns:
    """The columns of calls, and a call's cells in them.

    Args:
        jobs: all that are measured.
        options: what is asked for.
        host: arrays are on the host, where there is one path.
    """

    def __init__(self, jobs: Iterable[Job], options: Options, host: bool) -> None:
        jobs = list(jobs)
        self.host, self.wide, self.said, parts = host, options.wide, list[str](), list[Part]()
        self.columns: tuple[Column, ...] = ()
        calls = [(job.case, form) for job in jobs for form in job.forms]
        for part in (*_PARTS, _COUNT) if options.wide else _PARTS:
            found = {part.cell(*call) for call in calls} - {""}
            if len(found) > 1 or part.kept or options.wide:
                parts.append(part)
                width = max([part.column.width, *map(len, found)])
                self.columns += (Column(part.column.name, part.column.unit, width, part.column.justify),)
            else:
                self.said += map(part.said, found)
        self.said += ["path host"] if host and not options.wide else []
        self.parts = parts
        names = {card.name for job in jobs for card in registry.known(job.case.call.row.name)}
        names |= {parse_choice(job.algorithm).algorithm for job in jobs if job.algorithm}
        width = max(map(len, names), default=0) + SEGMENTS + (0 if host and not options.wide else PATH)
        self.columns += (Column("algorithm", "", width, "left", spare=1),)

    def cells(self, call: MeasuredCall) -> tuple[str, ...]:
        """Return a call's cells."""
        way = str(call.way).removesuffix("@host") if self.host and not self.wide else str(call.way)
        return (*(part.cell(call.case, call.in_place) or "-" for part in self.parts), way)
