"""Rows of the tables: what is known of one measurement, as a record for the file and as cells for the table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mpicoll.bench.contestants.contestant import Way
from mpicoll.bench.measure.statistics import Statistics
from mpicoll.bench.request.cases import Case


class Row(Protocol):
    """One measurement."""

    def record(self) -> dict[str, Any]:
        """Return it for the file."""


class TableRow(Row, Protocol):
    """One measurement with lines of its own in the table."""

    def cells(self) -> Iterator[tuple[str, ...]]:
        """Yield the cells of its lines in the table."""


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
        """Bus bandwidth in GB/s: `algbw` times the collective's bus factor."""
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
    """Return the call and its way, for the file."""
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


def difference(value: float, spread: float) -> dict[str, float | None]:
    """Return seconds and their spread in microseconds, for the file; a difference below its noise is None."""
    return {"median": _micro(value) if abs(value) > spread else None, "spread": _micro(spread)}


def _micro(seconds: float) -> float:
    return round(float(seconds) * 1e6, 3)
