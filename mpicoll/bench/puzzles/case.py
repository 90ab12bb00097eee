"""The puzzle's own case: one source, up to three destinations, a stream each, and so many messages on each stream.

On the host a stream is a chain of MPI messages.  On GPUs of one host it is a CUDA stream of copies into the
destination's memory; where that cannot be mapped, it is a chain of MPI messages, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from mpicoll.bench.errors import RequestError, anywhere
from mpicoll.bench.measure.backends import DeviceBackend, in_memory
from mpicoll.bench.puzzles.chains import Chains, Pair, Span
from mpicoll.bench.puzzles.copies import Copies
from mpicoll.bench.puzzles.pairs import Rounds, Times
from mpicoll.bench.tables.bench import Bench
from mpicoll.recorder.trace import named, write_events

#: destinations at most
TARGETS = 3

Spans = dict[Pair, list[Span]]


class Case:
    """Measurement of the case; the same on all ranks but for the spans, which rank 0 has.

    Attributes:
        how: the messages travel, in words.
        seconds: of each destination's stream in each round, from the common start.
        spans: of the last round: when each message began and ended on rank 0.
        wrong: bytes that did not arrive, of all ranks.
    """

    def __init__(self, how: str, times: Times, spans: Spans, wrong: int) -> None:
        self.how, self.spans, self.wrong = how, spans, wrong
        self.seconds = {pair: np.array(times[part, pair]) for part, pair in sorted(times)}


def measured(bench: Bench, rounds: Rounds, nbytes: int, repeat: int) -> Case:
    """Measure the case; collective.

    Args:
        bench: the run.
        rounds: take the times.
        nbytes: bytes of a message.
        repeat: messages for each destination.
    """
    world, backend = bench.world, bench.backend
    targets = range(1, min(world.size, TARGETS + 1))
    pairs = [(0, target) for target in targets]
    sent = repeat if world.rank == 0 else 1
    chains = in_memory(world, partial(Chains, world, backend, nbytes, sent, [0] if world.rank in targets else []))
    if isinstance(backend, DeviceBackend):
        copies = Copies(world, backend, nbytes, chains.sent, targets)
        if not copies.why:
            times, spans = _taken(rounds, [(0, 0)], lambda: copies.run(repeat))
            arrived = copies.arrived()
            if arrived is not None:
                chains.received[0] = arrived
            wrong = sum(world.allgather(chains.wrong()))
            copies.close()
            return Case("copies between GPUs, a CUDA stream for each destination", times, spans, wrong)
        copies.close()
        how = f"MPI messages, a chain for each destination (no copies: {copies.why})"
    else:
        how = "MPI messages, a chain for each destination"
    times, spans = _taken(rounds, pairs, lambda: chains.run(pairs, repeat))
    return Case(how, times, spans, sum(world.allgather(chains.wrong())))


def _taken(rounds: Rounds, pairs: list[Pair], run: Callable[[], Spans]) -> tuple[Times, Spans]:
    """Return rank 0's times of each stream, and the spans of the last round.

    Args:
        rounds: take the times.
        pairs: whose ranks take part.
        run: sends all; returns the spans.
    """
    last: Spans = {}

    def call() -> Mapping[Pair, float]:
        spans = run()
        if rounds.world.rank:
            return {}
        last.update(spans)
        begin = min(found[0][0] for found in spans.values())
        return {pair: found[-1][1] - begin for pair, found in spans.items()}

    return rounds.take({"case": (pairs, call)}), last


def write_trace(bench: Bench, case: Case, file: Path, nbytes: int) -> None:
    """Write the trace of the source's streams; where it cannot be, all ranks raise RequestError.

    Args:
        bench: the run.
        case: what was measured.
        file: where.
        nbytes: bytes of a message.
    """
    why = ""
    if bench.world.rank == 0:
        try:
            write_events(file, events(case.spans, nbytes))
        except OSError as error:
            why = f"--trace {file}: {error.strerror}"
    why = anywhere(bench.world, why)
    if why:
        raise RequestError(why)


def events(spans: Spans, nbytes: int) -> Iterator[dict[str, Any]]:
    """Yield the events of a trace: the source is a process, each destination's stream a thread of it."""
    yield named("process_name", 0, 0, "rank 0, the source")
    for source, target in spans:
        yield named("thread_name", source, target, f"stream to rank {target}")
    for (source, target), found in spans.items():
        for number, (begin, end) in enumerate(found):
            arguments = {
                "message": number,
                "bytes": nbytes,
                "bandwidth (GB/s)": float(f"{_speed(nbytes, begin, end):.4g}"),
            }
            place = {"pid": source, "tid": target, "ts": round(begin * 1e6, 3), "dur": round((end - begin) * 1e6, 3)}
            yield {"name": f"to rank {target}", "cat": "mpicoll", "ph": "X", **place, "args": arguments}


def _speed(nbytes: int, begin: float, end: float) -> float:
    return nbytes / max(end - begin, 1e-9) / 1e9
