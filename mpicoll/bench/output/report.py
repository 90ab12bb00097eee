"""The report: the lines of a run's table on one rank, and the file."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from mpicoll.bench.output.columns import Columns
from mpicoll.bench.output.earlier import Earlier
from mpicoll.bench.output.flat import write_csv
from mpicoll.bench.output.results import Results
from mpicoll.bench.output.rows import Record, Row, TableRow

#: wrong results that are described in words
COMPLAINTS = 20
#: modes whose results are validated; only they can be "OK"
VALIDATED = ("times", "guidelines", "topology", "allreduce-ways", "bandwidth")

#: returns what is said of all rows at the end, lines that begin with "# "
Closing = Callable[[list[Record]], Iterable[str]]


def silent(records: list[Record]) -> Iterable[str]:
    """Say nothing of them."""
    return ()


@dataclass
class Report:
    """Prints what is measured, on one of the ranks, and writes it down.

    Attributes:
        header: the facts.
        out: where the table goes; None prints nothing.
        results: the file.
        mode: what is measured; those of VALIDATED are validated.
        total: how many measurements there will be.
        rows: what was measured.
        refused: what was left out, and why.
        complaints: wrong results that were described.
        wrong: wrong elements of all ranks, those of calls that were not measured after all included.
        violations: guidelines that are violated.
        interruption: why the run ends before all is measured; "".
        begun: when the header was printed, in seconds; None before.
        columns: of the table.
        notes: what else is said at the end, a line each.
        closing: returns what is said of all rows at the end.
        ended: nothing is written down any more.
        earlier: what the run that this one goes on with has measured.
        csv: file for a table at the end.
    """

    header: dict[str, Any]
    out: TextIO | None
    results: Results = field(default_factory=lambda: Results(None))
    mode: str = "times"
    total: int = 0
    rows: list[Row] = field(default_factory=list)
    refused: list[dict[str, str]] = field(default_factory=list)
    complaints: int = 0
    wrong: int = 0
    violations: int = 0
    interruption: str = ""
    begun: float | None = None
    columns: Columns = field(default_factory=Columns)
    notes: list[str] = field(default_factory=list)
    closing: Closing = silent
    ended: bool = False
    earlier: Earlier = field(default_factory=Earlier)
    csv: Path | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)  # a signal's end is another thread's

    def say(self, *lines: str) -> None:
        """Print lines."""
        if self.out and lines:
            print(*lines, sep="\n", file=self.out, flush=True)

    def refuse(self, what: str, name: str, why: str) -> None:
        """List an algorithm, an operator or a baseline that cannot serve, once."""
        refusal = {"what": what, "name": name, "reason": why}
        if refusal not in self.refused:
            self.refused.append(refusal)
            if self.begun is not None:
                self._leave_out(refusal)

    def _leave_out(self, refusal: dict[str, str]) -> None:
        self.say("# left out: {what}: {name} {reason}".format(**refusal))
        if refusal not in self.earlier.refused:
            self.results.add("refused", **refusal)

    def complain(self, line: str) -> None:
        """Print a complaint, the first times."""
        self.complaints += 1
        if self.complaints <= COMPLAINTS:
            self.say(f"# WRONG: {line}")

    def begin(self, header: list[str]) -> None:
        """Print the header, and what is left out so far."""
        self.begun = time.monotonic()
        self.say(*header)
        for refusal in self.refused:
            self._leave_out(refusal)

    def head(self, columns: Columns, *above: str) -> None:
        """Print the head of a table, below lines of its own."""
        self.columns = columns
        self.say(*above, *columns.head())

    def keep(self, row: Row) -> None:
        """Write down what was measured: the end counts the rows that the file has."""
        with self._lock:
            if not self.ended:
                self.rows.append(row)
                self.results.add("row", mode=self.mode, **row.record())

    def line(self, *cells: str) -> None:
        """Print a row of the table."""
        if self.out:  # the other ranks need no text
            self.say(self.columns.line(*cells))

    def add(self, row: TableRow) -> None:
        """Write down what was measured, and print its lines."""
        self.keep(row)
        for cells in row.cells():
            self.line(*cells)

    @property
    def seconds(self) -> float:
        """Seconds that it has taken."""
        return time.monotonic() - (self.begun or time.monotonic())

    @property
    def conclusion(self) -> str:
        """The last line of the table."""
        done = f"# {len(self.rows)} measurements in {self.seconds:.1f} s"
        if self.interruption:
            done = f"# interrupted after {self.measured} of {self.total} measurements ({self.interruption})"
        verdict = f" {self.verdict}" if self.verdict.isupper() else ""
        return done + (f", wrong elements: {self.wrong}{verdict}" if self.mode in VALIDATED else "")

    def end(self) -> None:
        """Print the last line, and end the file; the first to come here does, a signal or the run."""
        with self._lock:
            if self.ended:
                return
            self.ended = True
        closing = list(self.closing(self.records))
        self.say(*closing, *(f"# {note}" for note in self.notes), self.conclusion)
        notes = [*(line[2:] for line in closing), *self.notes]
        counts = {"measured": self.measured, "of": self.total, "seconds": round(self.seconds, 3)}
        wrong = self.wrong if self.mode in VALIDATED else None
        self.results.end(verdict=self.verdict, reason=self.interruption, wrong=wrong, notes=notes, **counts)
        if self.csv:
            write_csv(self.csv, self.records)

    @property
    def records(self) -> list[Record]:
        """All rows as they are in the file, the earlier run's first."""
        return [*self.earlier.rows, *({"mode": self.mode, **row.record()} for row in self.rows)]

    @property
    def measured(self) -> int:
        """Number of rows, of the earlier run, too."""
        return len(self.earlier.rows) + len(self.rows)

    def nothing(self) -> str:
        """Describe a run in which nothing could be measured."""
        calls = [one for one in self.refused if not one["name"].startswith("baseline")]
        why = ["{what}: {name} {reason}".format(**one) for one in calls[:1]]
        return ": ".join(("nothing can be measured", *why))

    @property
    def verdict(self) -> str:
        """Verdict on the run: only what is validated can be "OK"."""
        if self.wrong:
            return "FAILED"
        if self.violations:
            return "VIOLATED"
        if self.interruption:
            return "interrupted"
        if not self.measured:
            return "nothing"
        return "OK" if self.mode in VALIDATED else "measured"

    def interrupt(self, why: str) -> None:
        """End the report before its time; a rank that prints no table says so on its standard error output."""
        self.interruption = why
        self.out = self.out or sys.stderr
        self.end()
        self.out = None
