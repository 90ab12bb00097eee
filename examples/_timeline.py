"""A timeline of computation and communication, from marks on the host or on a device."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mpicoll
import numpy as np
from mpi4py import MPI

#: what a row shows: (name, begin and end in milliseconds)
Spans = list[tuple[str, float, float]]


class Clock:
    """Marks in time: on the host the time itself, on a device an event on the current stream."""

    def __init__(self, xp: Any) -> None:
        self.xp, self.first = xp, None
        self.first = self.mark()

    def mark(self) -> Any:
        if self.xp is np:
            return time.perf_counter()
        event = self.xp.cuda.Event()
        event.record()
        return event

    def milliseconds(self, mark: Any) -> float:
        """Return the time from the clock's start to a mark."""
        if self.xp is np:
            return 1e3 * float(mark - self.first)
        mark.synchronize()
        return float(self.xp.cuda.get_elapsed_time(self.first, mark))

    def spans(self, named: list[tuple[str, Any, Any]]) -> Spans:
        """Return marks of begins and ends as times."""
        return [(name, self.milliseconds(begin), self.milliseconds(end)) for name, begin, end in named]


class Reduction:
    """A bucket's reduction: when it began, and when it was seen to have ended.

    On a device it is on a stream of its own, so that marks can be put before and after it.
    """

    def __init__(self, clock: Clock, start: Callable[..., Any], nbytes: int) -> None:
        self.clock, self.nbytes, self.end, xp = clock, nbytes, None, clock.xp
        if xp is np:
            self.begin, self.request = clock.mark(), start()
            return
        ready, own = xp.cuda.get_current_stream().record(), xp.cuda.Stream(non_blocking=True)
        with own:
            own.wait_event(ready)
            self.begin, self.request = clock.mark(), start(stream=own)
            self.request.Wait()
            self.end = clock.mark()
        self.own = own

    def look(self) -> None:
        if self.end is None and self.request.Test():
            self.end = self.clock.mark()

    def Wait(self) -> None:
        if self.clock.xp is not np:
            self.clock.xp.cuda.get_current_stream().wait_event(self.end)
        elif self.end is None:
            self.request.Wait()
            self.end = self.clock.mark()


class Seen(mpicoll.Communicator):
    """A communicator that notes its reductions."""

    def begin(self, xp: Any) -> None:
        """Start the clock."""
        self.clock, self.noted = Clock(xp), list[Reduction]()

    def Iallreduce(self, sendbuf: Any, recvbuf: Any, op: Any = MPI.SUM, **options: Any) -> Any:
        def start(**more: Any) -> Any:
            return super(Seen, self).Iallreduce(sendbuf, recvbuf, op, **options | more)

        self.noted.append(Reduction(self.clock, start, recvbuf.nbytes))
        return self.noted[-1]

    def look(self) -> None:
        """Note the ends of those that have ended by now."""
        for one in self.noted:
            one.look()

    def spans(self) -> Spans:
        """Return the buckets with their times."""
        named = [(f"bucket {k}\n{one.nbytes >> 10} KiB", one.begin, one.end) for k, one in enumerate(self.noted)]
        return self.clock.spans(named)


def draw(rows: dict[str, Spans], title: str, file: Path) -> None:
    """Draw a timeline; what overlaps within a row is below each other."""
    from matplotlib import use

    use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(11, 3.6), layout="constrained")
    whole = max(end for spans in rows.values() for _, _, end in spans)
    top, ticks = 0.0, []
    for (row, spans), colours in zip(rows.items(), (("#c6dbef", "#6baed6"), ("#fdd0a2", "#fd8d3c")), strict=True):
        lanes: list[float] = []  # end of the last span in each
        for k, (name, begin, end) in enumerate(spans):
            lane = next((n for n, last in enumerate(lanes) if last <= begin), len(lanes))
            lanes[lane : lane + 1] = [end]
            axes.broken_barh([(begin, end - begin)], (top + lane, 0.9), facecolor=colours[k % 2], edgecolor="black")
            share = (end - begin) / whole
            if share > 0.012:
                middle, turned = ((begin + end) / 2, top + lane + 0.45), 90 if share < 0.08 else 0
                axes.text(*middle, name, ha="center", va="center", fontsize=6 if turned else 8, rotation=turned)
        ticks.append((top + max(len(lanes), 1) / 2 - 0.05, row))
        top += max(len(lanes), 1) + 0.2
    axes.set_yticks(*zip(*ticks, strict=True))
    axes.invert_yaxis()
    axes.set_xlabel("milliseconds")
    axes.set_title(title, fontsize=9)
    figure.savefig(file)
