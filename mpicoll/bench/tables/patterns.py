"""`--overhead`, its second table: what a call costs that is not made with the same arrays again and again.

All patterns of one size are timed in turn. From a pattern's time that is taken which the program needs besides
the call, such as slicing; what is left is compared with the call of the same arrays. On a device a call is timed to
the end of its work, and once more in the host's time alone, without waiting for the device.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import cast

import numpy as np

from mpicoll.bench.contestants.patterns import Pattern, make_known, patterns
from mpicoll.bench.contestants.torch_distributed import Pytorch
from mpicoll.bench.errors import ShortageError
from mpicoll.bench.measure.backends import in_memory
from mpicoll.bench.measure.budget import measure
from mpicoll.bench.measure.clock import loops
from mpicoll.bench.measure.statistics import Statistics, figure, noise
from mpicoll.bench.output.columns import Column, Columns, line_width
from mpicoll.bench.output.rows import Record, quantity, summary
from mpicoll.bench.request.options import Options
from mpicoll.bench.tables.bench import Bench

#: message sizes where none are given
SIZES = (8, 16 << 10)
#: timed calls where their number is not given: as many as fit into the budget, between these
FEWEST, ITERATIONS = 10, 300
#: loops, and calls in each of them, that take the host's time alone
LOOPS, CALLS = 10, 50

COLUMNS = Columns(
    Column("# allreduce", "#", 26, "left"),
    Column("size", "(B)", 6),
    Column("call", "(us)", 8),
    Column("besides", "(us)", 7, spare=1),
    Column("beside the same", "(us)", 19),
    Column("host", "(us)", 8),
    Column("PyTorch", "(us)", 8, spare=2),
    Column("ratio", "", 5, spare=2),
)


@dataclass(frozen=True)
class Repeated:
    """One pattern of one size; its times are the slowest rank's.

    Attributes:
        pattern: of the calls.
        nbytes: bytes of the vector.
        ranks: their number.
        call: with all that the program does for it.
        besides: what the program does besides the call; zeros for nothing.
        same: the call that it is compared with.
        host: the host's time alone for each call, None where the arrays are there.
        rival: PyTorch's call, None where there is none.
    """

    pattern: Pattern
    nbytes: int
    ranks: int
    call: Statistics
    besides: Statistics
    same: Statistics
    host: Statistics | None
    rival: Statistics | None = None

    @property
    def more(self) -> tuple[float, float]:
        """Seconds (difference, spread) beyond the call that it is compared with."""
        more = self.call.median - self.besides.median - self.same.median
        return more, noise(self.call, self.besides, self.same)

    def record(self) -> Record:
        """Return it for the file; a difference below its noise is None."""
        times = {"mpicoll": self.call, "besides": self.besides, "host": self.host, "torch": self.rival}
        value, spread = self.more
        return {
            "op": self.pattern.name,
            "beside": self.pattern.beside,
            "bytes": self.nbytes,
            "ranks": self.ranks,
            "memory": "device" if self.host else "host",
            "times": {name: summary(one) for name, one in times.items() if one},
            "figures": {"more": quantity(value * 1e6, "us", spread * 1e6)},
            "wrong": None,
        }

    def cells(self) -> Iterator[tuple[str, ...]]:
        """Yield its cells."""
        value, spread = self.more
        own = self.pattern.name == self.pattern.beside
        yield (
            self.pattern.name,
            str(self.nbytes),
            f"{self.call.median * 1e6:.2f}",
            f"{self.besides.median * 1e6:.2f}" if self.pattern.besides else "",
            "" if own else figure(value * 1e6, spread * 1e6),
            f"{self.host.median * 1e6:.2f}" if self.host else "",
            f"{self.rival.median * 1e6:.2f}" if self.rival else "",
            f"{self.rival.median / self.call.median:.2f}" if self.rival else "",
        )


def sizes(options: Options) -> tuple[int, ...]:
    """Return the message sizes of the patterns; none where they are not measured."""
    wanted = options.mode == "overhead" and "allreduce" in options.calls
    return (options.sizes or SIZES) if wanted else ()


def table(bench: Bench) -> None:
    """Measure all patterns; collective."""
    bench.report.head(COLUMNS if bench.options.wide else COLUMNS.fitted(line_width()), "#")
    rival = cast("Pytorch | None", bench.baselines.get("torch"))
    for nbytes in sizes(bench.options):
        bench.budget.begin()
        try:
            found = in_memory(bench.world, partial(patterns, bench.contestant.comm, bench.backend, nbytes, rival))
        except ShortageError as error:
            bench.report.refuse("allreduce", f"patterns of {nbytes} B:", str(error))
            continue
        bench.report.total += len(found)
        known = bench.report.earlier.patterns(nbytes, bench.world.size)
        for row in _measured(bench, found, nbytes) if len(known) < len(found) else ():
            if row.pattern.name not in known:
                bench.report.add(row)


def _measured(bench: Bench, found: list[Pattern], nbytes: int) -> Iterator[Repeated]:
    """Yield the patterns of one size, measured together."""
    for pattern in found:
        make_known(pattern)
    calls: list[Callable[[], object]] = []
    for made in (way for pattern in found for way in (pattern.call, pattern.besides, pattern.rival)):
        calls += [made] if made else []
    begun = time.monotonic()
    for one in calls:
        one()
    each = time.monotonic() - begun
    iterations = bench.options.iterations or bench.budget.number(each, FEWEST, ITERATIONS)
    taken = iter(measure(calls, bench.clock, bench.budget, iterations=iterations, warmup=bench.options.warmup))
    nothing, times = Statistics.of(np.zeros(1)), {}
    for pattern in found:
        call, besides, rival = (
            Statistics.of(next(taken)) if way else None for way in (pattern.call, pattern.besides, pattern.rival)
        )
        assert call is not None
        times[pattern.name] = call
        host = _host_time(bench, pattern.call) if bench.backend.device >= 0 else None
        same = times[pattern.beside]
        yield Repeated(pattern, nbytes, bench.world.size, call, besides or nothing, same, host, rival)


def _host_time(bench: Bench, call: Callable[[], object]) -> Statistics:
    """Return the slowest rank's seconds on the host for each of a number of calls; none waits for the device."""

    def together() -> None:
        bench.backend.synchronize()
        bench.clock.barrier()

    mine = Statistics.of(loops(call, LOOPS, CALLS, together))
    bench.backend.synchronize()
    everyone: list[Statistics] = bench.world.allgather(mine)
    return max(everyone, key=lambda one: one.median)
