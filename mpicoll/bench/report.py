"""What came out: a table in nccl-tests' columns, and a file."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, TextIO

import numpy as np
from numpy.typing import NDArray

from mpicoll.bench.cases import Case
from mpicoll.bench.measure import Statistics
from mpicoll.bench.results import Results
from mpicoll.bench.subject import Way

#: wrong results that are described in words
COMPLAINTS = 20

_FORM = f"{'time':>10} {'algbw':>8} {'busbw':>8} {'#wrong':>7}"
_UNITS = f"{'(us)':>10} {'(GB/s)':>8} {'(GB/s)':>8} {'':>7}"
_NO_BASELINE = f" {'-':>10} {'-':>6}"
_NONE = f"{'-':>10} {'-':>8} {'-':>8} {'-':>7}"


@dataclass(frozen=True)
class Measurement:
    """One case in one form.

    Attributes:
        case: what was called.
        way: how it was carried out.
        in_place: the form.
        seconds: of every timed call, the slowest rank's.
        wrong: wrong elements of all ranks in the validated calls.
        baselines: the same of each baseline that could serve.
    """

    case: Case
    way: Way
    in_place: bool
    seconds: NDArray[np.float64]
    wrong: int
    baselines: dict[str, NDArray[np.float64]] = field(default_factory=dict)

    @property
    def statistics(self) -> Statistics:
        """Summary in seconds."""
        return Statistics.of(self.seconds)

    @property
    def algbw(self) -> float:
        """Message size over median time, in GB/s."""
        return self.case.nbytes / self.statistics.median / 1e9

    @property
    def busbw(self) -> float:
        """The same times the collective's bus factor."""
        return self.algbw * self.case.call.row.bus(self.case.size)

    def ratio(self, baseline: str) -> float:
        """A baseline's median time over ours."""
        return Statistics.of(self.baselines[baseline]).median / self.statistics.median

    def record(self) -> dict[str, Any]:
        """Return it for the file."""
        return {
            **described(self.case, self.way, self.in_place),
            "number": self.seconds.size,
            "time_us": _times(self.seconds),
            "algbw_GBps": self.algbw,
            "busbw_GBps": self.busbw,
            "wrong": self.wrong,
            "baselines": {
                name: {"time_us": _times(seconds), "ratio": round(self.ratio(name), 4)}
                for name, seconds in self.baselines.items()
            },
        }


def described(case: Case, way: Way, in_place: bool) -> dict[str, Any]:
    """Return what was called and how it was carried out, for the file."""
    return {
        "op": case.call.name,
        "collective": case.call.row.name,
        "bytes": case.nbytes,
        "count": case.count,
        "dtype": case.dtype,
        "redop": case.redop or None,
        "root": case.root if case.call.row.rooted else None,
        "in_place": in_place,
        **asdict(way),
    }


def _times(seconds: NDArray[np.float64]) -> dict[str, Any]:
    """Return a summary in microseconds, and the samples."""
    return {**summary(Statistics.of(seconds)), "samples": [_micro(s) for s in seconds]}


def summary(times: Statistics) -> dict[str, float]:
    """Return a summary in microseconds, for the file."""
    return {name: _micro(value) for name, value in asdict(times).items() if name != "number"}


def _micro(seconds: float) -> float:
    return round(float(seconds) * 1e6, 3)


class Row(Protocol):
    """What is measured: a line of the file."""

    def record(self) -> dict[str, Any]:
        """Return it for the file."""


@dataclass
class Report:
    """Prints what is measured, on one of the ranks, and writes it down.

    Attributes:
        header: the facts.
        out: where the table goes; None prints nothing.
        results: the file.
        mode: what is measured; only "times" are validated.
        baselines: names of what else is measured.
        total: how many measurements there will be.
        rows: what was measured.
        refused: what was left out, and why.
        complaints: wrong results that were described.
        wrong: wrong elements of all ranks, those of calls that were not measured after all included.
        interruption: why the run ends before all is measured; "".
    """

    header: dict[str, Any]
    out: TextIO | None
    results: Results = field(default_factory=lambda: Results(None))
    mode: str = "times"
    baselines: tuple[str, ...] = ()
    total: int = 0
    rows: list[Row] = field(default_factory=list)
    refused: list[dict[str, str]] = field(default_factory=list)
    complaints: int = 0
    wrong: int = 0
    interruption: str = ""
    begun: float | None = None

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
        self.results.add("refused", **refusal)

    def complain(self, line: str) -> None:
        """Print what is wrong, the first times."""
        self.complaints += 1
        if self.complaints <= COMPLAINTS:
            self.say(f"# WRONG: {line}")

    def begin(self, header: list[str]) -> None:
        """Print the header, and what is left out so far."""
        self.begun = time.monotonic()
        self.say(*header)
        for refusal in self.refused:
            self._leave_out(refusal)

    def head(self) -> None:
        """Print the head of the table of times."""
        times = _FORM + "".join(f" {name:>10} {'ratio':>6}" for name in self.baselines)
        units = _UNITS + f" {'(us)':>10} {'':>6}" * len(self.baselines)
        names = _line_start("# op", "size", "count", "type", "redop", "root", "algorithm")
        start = _line_start("#", "(B)", "(elements)", "", "", "", "")
        width = len(times)
        self.say(
            "#",
            f"{'#':<{len(names)}}{'out of place':^{width}}  {'in place':^{width}}".rstrip(),
            f"{names}{times}  {times}",
            f"{start}{units}  {units}".rstrip(),
        )

    def keep(self, row: Row) -> None:
        """Write down what was measured."""
        self.rows.append(row)
        self.results.add("row", mode=self.mode, **row.record())

    def add(self, row: Row) -> None:
        """Write down what was measured, and print its line."""
        self.keep(row)
        self.say(str(row))

    def line(self, forms: list[Measurement]) -> None:
        """Print the line of the forms of one case."""
        first = forms[0]
        case = first.case
        root = str(case.root) if case.call.row.rooted else "-1"
        dtype = case.dtype if case.call.method != "Barrier" else "none"
        redop = case.redop.lower() or "none"
        start = _line_start(case.call.name, case.nbytes, case.count, dtype, redop, root, str(first.way))
        by_form = {one.in_place: _form(one, self.baselines) for one in forms}
        none = _NONE + _NO_BASELINE * len(self.baselines)
        self.say(start + "  ".join(by_form.get(form, none) for form in (False, True)))

    @property
    def seconds(self) -> float:
        """How long it has taken."""
        return time.monotonic() - (self.begun or time.monotonic())

    @property
    def conclusion(self) -> str:
        """The last line of the table."""
        done = f"# {len(self.rows)} measurements in {self.seconds:.1f} s"
        if self.interruption:
            done = f"# interrupted after {len(self.rows)} of {self.total} measurements ({self.interruption})"
        verdict = f" {self.verdict}" if self.verdict.isupper() else ""
        return done + (f", wrong elements: {self.wrong}{verdict}" if self.mode == "times" else "")

    def end(self) -> None:
        """Print the last line, and end the file."""
        self.say(self.conclusion)
        counts = {"measured": len(self.rows), "of": self.total, "seconds": round(self.seconds, 3)}
        wrong = self.wrong if self.mode == "times" else None
        self.results.end(verdict=self.verdict, reason=self.interruption, wrong=wrong, **counts)

    def nothing(self) -> str:
        """Describe a run in which nothing could be measured."""
        why = ("{what}: {name} {reason}".format(**self.refused[0]),) if self.refused else ()
        return ": ".join(("nothing can be measured", *why))

    @property
    def verdict(self) -> str:
        """What the run comes to: only times are validated, so that only they can be "OK"."""
        if self.wrong:
            return "FAILED"
        if self.interruption:
            return "interrupted"
        if not self.rows:
            return "nothing"
        return "OK" if self.mode == "times" else "measured"

    def interrupt(self, why: str) -> None:
        """End the report before its time; a rank that prints no table says so on its standard error output."""
        self.interruption = why
        self.out = self.out or sys.stderr
        self.end()
        self.out = None


def _line_start(op: str, size: Any, count: Any, dtype: str, redop: str, root: str, way: str) -> str:
    return f"{op:<21}{size:>11} {count:>11} {dtype:>10} {redop:>5} {root:>4}  {way:<34}"


def _form(one: Measurement, baselines: tuple[str, ...]) -> str:
    ours = f"{one.statistics.median * 1e6:>10.2f} {one.algbw:>8.3f} {one.busbw:>8.3f} {one.wrong:>7}"
    return ours + "".join(_beside(one, name) if name in one.baselines else _NO_BASELINE for name in baselines)


def _beside(one: Measurement, name: str) -> str:
    return f" {Statistics.of(one.baselines[name]).median * 1e6:>10.2f} {one.ratio(name):>6.2f}"
