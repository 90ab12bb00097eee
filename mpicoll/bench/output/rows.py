"""Rows: what is known of one measurement, as a record for the file (`docs/results.md`) and as cells for the table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mpicoll.bench.contestants.contestant import Way
from mpicoll.bench.measure.statistics import Statistics
from mpicoll.bench.output.host_bytes import HostBytes
from mpicoll.bench.request.cases import Case

#: a part of a row as JSON has it
Record = dict[str, Any]


class Row(Protocol):
    """One measurement."""

    def record(self) -> Record:
        """Return it for the file."""


class TableRow(Row, Protocol):
    """One measurement with lines of its own in the table."""

    def cells(self) -> Iterator[tuple[str, ...]]:
        """Yield the cells of its lines in the table."""


@dataclass(frozen=True)
class MeasuredCall:
    """A collective call that was measured.

    Attributes:
        case: what was called.
        way: how it was carried out.
        in_place: the form.
        asked: `algorithm=` as it was given; "auto" for a choice of mpicoll's.
        memory: where the arrays are, "host" or "device".
    """

    case: Case
    way: Way
    in_place: bool
    asked: str = "auto"
    memory: str = "host"

    def record(self, times: Mapping[str, Record], figures: Mapping[str, Record], wrong: int | None = None) -> Record:
        """Return the row of a call.

        Args:
            times: by name, what `timed` returns.
            figures: by name, what `quantity` returns.
            wrong: wrong elements; None where no results were validated.
        """
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
            "ranks": case.size,
            "memory": self.memory,
            **asdict(self.way),
            "asked": self.asked,
            "times": dict(times),
            "figures": dict(figures),
            "wrong": wrong,
        }


@dataclass(frozen=True)
class Measurement:
    """The times of one call, and of the baselines beside it.

    Attributes:
        call: what was measured.
        seconds: of every timed call, the slowest rank's.
        wrong: wrong elements of all ranks in the validated calls.
        baselines: the seconds of each baseline that could serve.
        host_bytes: what it sends between hosts; None on one host.
    """

    call: MeasuredCall
    seconds: NDArray[np.float64]
    wrong: int
    baselines: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    host_bytes: HostBytes | None = None

    @property
    def case(self) -> Case:
        """The case of the call."""
        return self.call.case

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
        """Bus bandwidth in GB/s: `algbw` times the collective's bus factor."""
        return self.algbw * self.case.call.row.bus(self.case.size)

    def ratio(self, baseline: str) -> float:
        """A baseline's median time over ours."""
        return Statistics.of(self.baselines[baseline]).median / self.statistics.median

    def record(self) -> Record:
        """Return it for the file."""
        times = {name: timed(seconds) for name, seconds in {"mpicoll": self.seconds, **self.baselines}.items()}
        figures = {"algbw": quantity(self.algbw, "GB/s"), "busbw": quantity(self.busbw, "GB/s")}
        figures |= {f"ratio {name}": quantity(self.ratio(name), "") for name in self.baselines}
        figures |= _between_hosts(self.host_bytes) if self.host_bytes else {}
        return self.call.record(times, figures, self.wrong)


def _between_hosts(found: HostBytes) -> dict[str, Record]:
    """Return the figures of bytes between hosts; a ratio that is not known has a reason."""
    reason = {"reason": found.why} if found.why else {}
    names = "bytes between hosts", "bytes between hosts / least possible"
    return dict(zip(names, (quantity(found.nbytes, "B"), quantity(found.ratio, "") | reason), strict=True))


def timed(seconds: NDArray[np.float64]) -> Record:
    """Return a summary in microseconds with the samples, for the file; invalid ones are None."""
    return {**summary(Statistics.of(seconds)), "samples": [_micro(s) if np.isfinite(s) else None for s in seconds]}


def summary(times: Statistics) -> Record:
    """Return a summary in microseconds, for the file."""
    return {
        "median": _micro(times.median),
        "ci_low": _micro(times.low),
        "ci_high": _micro(times.high),
        "spread": _micro(times.spread),
        "least": _micro(times.least),
        "mean": _micro(times.mean),
        "p99": _micro(times.p99),
        "most": _micro(times.most),
        "outliers": times.outliers,
        "invalid": times.invalid,
        "number": times.number,
    }


def quantity(value: float | None, unit: str, spread: float | None = None) -> Record:
    """Return a figure with its unit, for the file; one that is not above its spread is None.

    Args:
        value: of the figure; None where it is not known.
        unit: of the value and the spread; "" for a ratio.
        spread: of the figure; None where it has none.
    """
    known = value is not None and (spread is None or abs(value) > spread)
    return {"value": _digits(value) if known else None, "unit": unit} | (
        {} if spread is None else {"spread": _digits(spread)}
    )


def _digits(value: float | None) -> float | None:
    """Return a number with the digits that mean something."""
    return None if value is None else float(f"{value:.6g}")


def _micro(seconds: float) -> float:
    return round(float(seconds) * 1e6, 3)
