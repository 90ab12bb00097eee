"""What came out: a table in nccl-tests' columns, and a file."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from mpicoll.bench.cases import Case
from mpicoll.bench.measure import Statistics
from mpicoll.bench.subject import Way

#: of the file; raised when a reader must change
SCHEMA = 1
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
        case = self.case
        return {
            "op": case.call.name,
            "collective": case.call.row.name,
            "bytes": case.nbytes,
            "count": case.count,
            "dtype": case.dtype,
            "redop": case.redop or None,
            "root": case.root if case.call.row.rooted else None,
            "in_place": self.in_place,
            **asdict(self.way),
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


def _times(seconds: NDArray[np.float64]) -> dict[str, Any]:
    """Return a summary in microseconds, and the samples."""
    summary = asdict(Statistics.of(seconds))
    times = {name: _micro(value) for name, value in summary.items() if name != "number"}
    return {**times, "samples": [_micro(s) for s in seconds]}


def _micro(seconds: float) -> float:
    return round(float(seconds) * 1e6, 3)


@dataclass
class Report:
    """Collects the measurements and prints them, on one of the ranks.

    Attributes:
        header: the facts.
        out: where the table goes; None prints nothing.
        rows: what was measured.
        refused: what was left out, and why.
        complaints: wrong results that were described.
        wrong_unmeasured: wrong elements of calls that were not measured after all.
        baselines: names of what else is measured.
    """

    header: dict[str, Any]
    out: TextIO | None
    rows: list[Measurement] = field(default_factory=list)
    refused: list[dict[str, str]] = field(default_factory=list)
    complaints: int = 0
    wrong_unmeasured: int = 0
    baselines: tuple[str, ...] = ()
    begun: bool = False

    def say(self, *lines: str) -> None:
        """Print lines."""
        if self.out and lines:
            print(*lines, sep="\n", file=self.out, flush=True)

    def refuse(self, what: str, name: str, why: str) -> None:
        """List an algorithm, an operator or a baseline that cannot serve, once."""
        refusal = {"what": what, "name": name, "reason": why}
        if refusal not in self.refused:
            self.refused.append(refusal)
            if self.begun:
                self.say(_left_out(refusal))

    def complain(self, line: str) -> None:
        """Print what is wrong, the first times."""
        self.complaints += 1
        if self.complaints <= COMPLAINTS:
            self.say(f"# WRONG: {line}")

    def begin(self, header: list[str]) -> None:
        """Print the header, and what is left out so far."""
        self.begun = True
        self.say(*header, *map(_left_out, self.refused))

    def head(self) -> None:
        """Print the table's head."""
        beside = "".join(f" {name:>10} {'ratio':>6}" for name in self.baselines)
        times, units = _FORM + beside, _UNITS + f" {'(us)':>10} {'':>6}" * len(self.baselines)
        names = _line_start("# op", "size", "count", "type", "redop", "root", "algorithm")
        start = _line_start("#", "(B)", "(elements)", "", "", "", "")
        width = len(times)
        self.say(
            "#",
            f"{'#':<{len(names)}}{'out of place':^{width}}  {'in place':^{width}}".rstrip(),
            f"{names}{times}  {times}",
            f"{start}{units}  {units}".rstrip(),
        )

    def add(self, forms: list[Measurement]) -> None:
        """Add the forms of one case and print its line."""
        self.rows += forms
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
    def wrong(self) -> int:
        """Wrong elements of all ranks."""
        return self.wrong_unmeasured + sum(row.wrong for row in self.rows)

    def end(self, seconds: float) -> None:
        """Print the last lines."""
        verdict = "FAILED" if self.wrong else "OK"
        done = f"{len(self.rows)} measurements in {seconds:.1f} s"
        self.say(f"# {done}, wrong elements: {self.wrong} {verdict}")

    def write(self, out: TextIO, options: dict[str, Any]) -> None:
        """Write everything as JSON."""
        rows = [row.record() for row in self.rows]
        whole = {"schema": SCHEMA, "tool": "mpicoll.bench", "facts": self.header, "options": options}
        json.dump({**whole, "wrong": self.wrong, "refused": self.refused, "rows": rows}, out, default=str)
        out.write("\n")


def _line_start(op: str, size: Any, count: Any, dtype: str, redop: str, root: str, way: str) -> str:
    return f"{op:<21}{size:>11} {count:>11} {dtype:>10} {redop:>5} {root:>4}  {way:<34}"


def _left_out(refusal: dict[str, str]) -> str:
    return "# left out: {what}: {name} {reason}".format(**refusal)


def _form(one: Measurement, baselines: tuple[str, ...]) -> str:
    ours = f"{one.statistics.median * 1e6:>10.2f} {one.algbw:>8.3f} {one.busbw:>8.3f} {one.wrong:>7}"
    return ours + "".join(_beside(one, name) if name in one.baselines else _NO_BASELINE for name in baselines)


def _beside(one: Measurement, name: str) -> str:
    return f" {Statistics.of(one.baselines[name]).median * 1e6:>10.2f} {one.ratio(name):>6.2f}"
