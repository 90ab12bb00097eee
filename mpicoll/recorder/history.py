"""The history: entries made readable, as values, as words and as a table.

#17 Allreduce 4096 float32 ring@host running for 3.2 s
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import astuple, dataclass, replace
from typing import Any

from mpicoll.dispatch.paths import PATHS
from mpicoll.recorder.entry import Entry, nbytes_of

#: characters of each text in a row for other ranks
LONGEST_TEXT = 60
#: ranks, and calls of each, that are told in words
MOST_RANKS, MOST_CALLS = 8, 3


@dataclass(frozen=True)
class CallRecord:
    """One call of a communicator's history; what is not known before a call is planned is None or "".

    Attributes:
        communicator: its name; "" where it is that of a call that has stalled.
        sequence: number of the call on its communicator, the same on all ranks; of a start: of the persistent call.
        form: "blocking", "nonblocking", "persistent" (the call that makes a request), or "start" (of such a request).
        method: such as "Allreduce".
        count: elements of the vector, or of the blocks together.
        nbytes: message size in bytes (see `Plan`), this rank's own bytes where not all ranks know it.
        dtype: such as "float32".
        op: the operator's name.
        root: the root.
        algorithm: its name.
        segments: number of segments.
        path: how the arrays travel.
        state: "planning", "planned" (a persistent call), "running", "enqueued" (the host has done its part, on the
            path mapped), "complete" or "failed".
        begin: when it began, in seconds of time.monotonic() on this host.
        end: when it ended, for the host; None before that, and where it was not measured: a repeated blocking call
            is too short for a second look at the clock, unless the setting `trace` is on.
        error: with which it has failed.
    """

    communicator: str
    sequence: int
    form: str
    method: str
    count: int | None = None
    nbytes: int | None = None
    dtype: str = ""
    op: str = ""
    root: int | None = None
    algorithm: str = ""
    segments: int | None = None
    path: str = ""
    state: str = "planning"
    begin: float = 0.0
    end: float | None = None
    error: str = ""

    @staticmethod
    def of(entry: Entry, communicator: str) -> CallRecord:
        """Return the record of an entry, as it is now."""
        end = entry.ended if entry.ended > 0 else None
        made = CallRecord(
            communicator,
            entry.sequence,
            entry.form,
            entry.method,
            state=_state(entry),
            begin=entry.began,
            end=end,
            error=entry.error,
        )
        if entry.known is None:
            return made
        call, plan = entry.known.operands, entry.known.plan
        return replace(
            made,
            count=call.count,
            nbytes=nbytes_of(call),
            dtype=str(call.dtype),
            op=call.op.name if call.op else "",
            root=call.root if call.row.rooted else None,
            algorithm=plan.algorithm,
            segments=plan.segments,
            path=plan.path,
        )

    @property
    def seconds(self) -> float | None:
        """How long it took, for the host; None where that is not known."""
        return None if self.end is None else self.end - self.begin

    @property
    def name(self) -> str:
        """The method that was called, such as "Iallreduce"."""
        names = {"nonblocking": f"I{self.method.lower()}", "persistent": f"{self.method}_init"}
        return names.get(self.form, f"{self.method}.Start" if self.form == "start" else self.method)

    @property
    def data(self) -> str:
        """The number of elements and their dtype, "" for none."""
        return f"{self.count} {self.dtype}" if self.nbytes else ""

    @property
    def plan(self) -> str:
        """Algorithm, segments and path, such as "ring/8@host"."""
        if not self.algorithm:
            return ""
        return f"{self.algorithm}{f'/{self.segments}' if self.segments != 1 else ''}@{self.path}"

    def words(self, now: float) -> str:
        """Return the call, and since when it is in its state at a time of the same clock."""
        since = f"for {now - self.begin:.1f} s"
        if self.state in ("complete", "enqueued", "failed", "planned"):
            since = f"{now - self.begin:.1f} s ago" if self.end is None else f"{now - self.end:.1f} s ago"
        where = self.communicator and f"on {self.communicator}"
        parts = f"#{self.sequence}", self.name, where, self.data, self.plan, self.state, since
        return " ".join(filter(None, parts)) + (f": {self.error}" if self.error else "")

    def row(self, now: float) -> list[Any]:
        """Return it as plain values for other ranks, whose clocks may differ: times in seconds before now."""
        values = [value[:LONGEST_TEXT] if isinstance(value, str) else value for value in astuple(self)]
        values[_BEGIN] = now - self.begin
        values[_END] = None if self.end is None else now - self.end
        return values

    @staticmethod
    def from_row(row: list[Any], now: float) -> CallRecord:
        """Return a record of another rank, with times of this host's clock.

        Raises:
            ValueError, TypeError: it is none.
        """
        begin, end = now - float(row[_BEGIN]), None if row[_END] is None else now - float(row[_END])
        kinds = [type(value) for value in row]
        if len(row) != len(_KINDS) or not all(kind in wanted for kind, wanted in zip(kinds, _KINDS, strict=True)):
            raise TypeError(f"{row!r} is no record of a call")
        return replace(CallRecord(*row), begin=begin, end=end)


_FIELDS = list(CallRecord.__dataclass_fields__)
_BEGIN, _END = _FIELDS.index("begin"), _FIELDS.index("end")
_TYPES = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "int | None": (int, type(None)),
    "float | None": (int, float, type(None)),
}
#: types of the values of a row
_KINDS = [_TYPES[str(field.type)] for field in CallRecord.__dataclass_fields__.values()]


def _state(entry: Entry) -> str:
    """Return in what state a call is."""
    if entry.error:
        return "failed"
    if not entry.ended:
        return "running" if entry.bound else "planning"
    if entry.form == "persistent":
        return "planned"
    return "enqueued" if entry.known is not None and PATHS[entry.known.plan.path].enqueues else "complete"


class History(list[CallRecord]):
    """The calls made last on a communicator, the latest one last; print it for a table."""

    def __str__(self) -> str:
        from rich.console import Console
        from rich.table import Table

        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for name in ("#", "call", "elements", "op", "root", "plan", "state", "began (s)", "took (us)", "error"):
            table.add_column(name, justify="right" if name in NUMBERS else "left", no_wrap=True)
        for one in self:
            table.add_row(*_cells(one))
        console = Console(file=io.StringIO(), width=1000, color_system=None, markup=False, highlight=False, emoji=False)
        with console.capture() as captured:
            console.print(table)
        return "\n".join(line.rstrip() for line in captured.get().splitlines())


#: columns of a history's table that stand to the right
NUMBERS = ("#", "root", "began (s)", "took (us)")


def _cells(one: CallRecord) -> Iterable[str]:
    took = "" if one.seconds is None else f"{one.seconds * 1e6:.1f}"
    root = "" if one.root is None else str(one.root)
    return str(one.sequence), one.name, one.data, one.op, root, one.plan, one.state, f"{one.begin:.6f}", took, one.error


def last_words(said: dict[int, list[CallRecord]], now: float) -> str:
    """Return lines of the ranks' last calls, the latest ones first; those ranks that are behind come first."""
    ranks = sorted(said, key=lambda rank: (max((one.sequence for one in said[rank]), default=0), rank))
    lines = [f"\n  rank {rank}: {_calls(said[rank], now)}" for rank in ranks[:MOST_RANKS]]
    if len(ranks) > MOST_RANKS:
        lines.append(f"\n  and {len(ranks) - MOST_RANKS} more ranks: see `history` of this error")
    return "".join(lines)


def _calls(records: list[CallRecord], now: float) -> str:
    latest = sorted(records, key=lambda one: one.begin, reverse=True)[:MOST_CALLS]
    return "; ".join(one.words(now) for one in latest) or "no call"
