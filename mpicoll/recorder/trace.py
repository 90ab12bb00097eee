"""The trace: all calls of a process while the setting `trace` names a file, for Perfetto and chrome://tracing.

With `MPICOLL_TRACE=run.json` rank 1 writes `run.1.json` when its process ends, or a call stalls.  A rank is a process
of the trace, a communicator a thread; calls that do not block are asynchronous events.  One of them:

    {"name": "Allreduce 4096 float32", "ph": "X", "pid": 1, "tid": 2, "ts": 5021250000.0, "dur": 18.2,
     "args": {"sequence": 17, "bytes": 16384, "bandwidth (GB/s)": 0.9, "plan": "ring@host", ...}}
"""

from __future__ import annotations

import atexit
import json
import os
import platform
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from mpicoll.recorder.entry import Entry
from mpicoll.recorder.history import CallRecord

#: calls that are kept for a file at most, the latest ones
MOST = 1_000_000


class Track(NamedTuple):
    """The place of one communicator's calls in a trace.

    Attributes:
        name: of the communicator, for people.
        number: of the communicator in this process.
        rank: of this process on the communicator.
        size: its ranks.
        world_rank: of this process in COMM_WORLD.
    """

    name: str
    number: int
    rank: int
    size: int
    world_rank: int


class Trace:
    """The calls that are to be written to one file.

    Attributes:
        calls: tracks and entries, in the order in which they began.
        dropped: number of calls that were kept no longer.
    """

    def __init__(self, file: str) -> None:
        """Start with no calls; the process writes them when it ends."""
        self.file, self.process = Path(file).absolute(), os.getpid()
        self.calls: deque[tuple[Track, Entry]] = deque(maxlen=MOST)
        self.dropped = 0
        atexit.register(self.write)

    def keep(self, track: Track, entry: Entry) -> None:
        """Keep a call that has begun."""
        self.dropped += len(self.calls) == MOST
        self.calls.append((track, entry))

    def write(self) -> None:
        """Write this rank's file; not in a forked child, whose calls these are not."""
        if os.getpid() != self.process or not self.calls:
            return
        calls = list(self.calls)
        rank = calls[0][0].world_rank
        file = self.file.with_name(f"{self.file.stem}.{rank}{self.file.suffix}")
        try:
            write_events(file, events(calls, time.monotonic()), dropped=self.dropped)
        except OSError as error:
            print(f"mpicoll: the trace of rank {rank} is not written: {error}", file=sys.stderr, flush=True)


def write_events(file: Path, found: Iterable[dict[str, Any]], **more: Any) -> None:
    """Write a trace of this host's events, whose times are those of time.monotonic(); raise OSError if it cannot be.

    Args:
        file: where.
        found: the events.
        more: said in the trace's head.
    """
    lines = ",\n".join(map(json.dumps, found))
    head = {"host": platform.node(), "wall_clock": time.time() - time.monotonic(), **more}
    file.write_text(f'{{"otherData": {json.dumps(head)},\n"traceEvents": [\n{lines}\n]}}\n', encoding="utf-8")


#: by the file that the setting names
_traces: dict[str, Trace] = {}


def keep(file: str, track: Track, entry: Entry) -> None:
    """Keep a call that has begun for a file."""
    trace = _traces.get(file)
    if trace is None:
        trace = _traces.setdefault(file, Trace(file))
    trace.keep(track, entry)


def write() -> None:
    """Write all traces of this process as they are now: it may be ended by others."""
    for trace in list(_traces.values()):
        trace.write()


def events(calls: list[tuple[Track, Entry]], now: float) -> Iterator[dict[str, Any]]:
    """Yield the events of one rank's calls, those that name their places first.

    Args:
        calls: tracks and entries.
        now: the end of what has not ended, in seconds of time.monotonic().
    """
    rank = calls[0][0].world_rank
    yield named("process_name", rank, 0, f"rank {rank} on {platform.node()}")
    yield {"name": "process_sort_index", "ph": "M", "pid": rank, "args": {"sort_index": rank}}
    for track in sorted({track for track, _ in calls}, key=lambda track: track.number):
        name = f"{track.name}, rank {track.rank} of {track.size}"
        yield named("thread_name", rank, track.number, name)
    for number, (track, entry) in enumerate(calls):
        record = CallRecord.of(entry, track.name)
        begin, end = round(record.begin * 1e6, 3), round((record.end or now) * 1e6, 3)
        event: dict[str, Any] = {"name": " ".join(filter(None, (record.name, record.data))), "cat": "mpicoll"}
        event |= {"pid": rank, "tid": track.number, "ts": begin}
        if record.form in ("blocking", "persistent"):
            yield event | {"ph": "X", "dur": round(end - begin, 3), "args": _arguments(record)}
        else:
            event["id"] = f"{rank}.{number}"
            yield event | {"ph": "b", "args": _arguments(record)}
            yield event | {"ph": "e", "ts": end}


def named(what: str, rank: int, track: int, name: str) -> dict[str, Any]:
    """Return the event that names a place of a trace.

    Args:
        what: "process_name" or "thread_name".
        rank: the process.
        track: the thread, 0 for a process.
        name: for people.
    """
    return {"name": what, "ph": "M", "pid": rank, "tid": track, "args": {"name": name}}


def _arguments(record: CallRecord) -> dict[str, Any]:
    """Return what a trace says of a call besides its name and times."""
    told: dict[str, Any] = {"sequence": record.sequence, "form": record.form, "bytes": record.nbytes}
    if record.nbytes and record.seconds and record.state == "complete":
        told["bandwidth (GB/s)"] = float(f"{record.nbytes / record.seconds / 1e9:.4g}")
    told |= {"plan": record.plan, "op": record.op, "root": record.root, "state": record.state, "error": record.error}
    return {name: value for name, value in told.items() if value not in (None, "")}
