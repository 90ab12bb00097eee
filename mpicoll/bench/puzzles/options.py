"""The command lines of the puzzles: `python -m mpicoll.bench topology`, `allreduce-ways` and `bandwidth`."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from mpicoll.bench.request import options as whole
from mpicoll.bench.request import reading
from mpicoll.bench.request.options import Options, heard
from mpicoll.bench.request.reading import Many, One
from mpicoll.dispatch.limits import LARGEST_MESSAGE
from mpicoll.ranges import FACTOR

#: bytes of a message of the first puzzle, and how many each destination gets: 10**7 numbers of float32
MESSAGE, MESSAGES = 40_000_000, 10

#: by name: what each does
PUZZLES = {
    "topology": "Measure bandwidth and latency of all pairs of ranks, alone and at once, and name their links.",
    "allreduce-ways": "Measure an all-reduce directly, as reduce + bcast and as reduce_scatter + allgather.",
    "bandwidth": "Measure achieved against theoretical bandwidth of each kind of link, and fit the time of a message.",
}


@dataclass(frozen=True)
class PuzzleOptions:
    """A puzzle's command line, read.

    Attributes:
        name: of the puzzle.
        sizes: message sizes in bytes; empty: the puzzle's own.
        ranks: numbers of ranks, each from rank 0 on; empty: all.
        repeat: messages of one chain.
        trace: file for a trace of the source's streams.
        plot: file for a picture of the pairs.
        how: what a run of the benchmark asks for as well.
    """

    name: str
    sizes: tuple[int, ...]
    ranks: tuple[int, ...]
    repeat: int
    trace: Path | None
    plot: Path | None
    how: Options


def parse(arguments: list[str], *, loud: bool = True) -> PuzzleOptions:
    """Read the command line; mistakes end the program with status 2.

    Args:
        arguments: the puzzle's name, and its options.
        loud: print help and mistakes; one of the ranks should.
    """
    name, *rest = arguments
    with heard(loud):
        found = _parser(name).parse_args(rest)
    given = {field: getattr(found, field) for field in ("buffers", "iterations", "warmup", "budget", "json", "csv")}
    how = replace(whole.parse([]), mode=name, **given)
    return PuzzleOptions(name, found.sizes, found.ranks, found.repeat, found.trace, found.plot, how)


def _parser(name: str) -> argparse.ArgumentParser:
    parser = reading.Parser(words=name, description=PUZZLES[name])
    parser.set_defaults(ranks=(), repeat=1, trace=None, plot=None)
    {"topology": _add_topology, "allreduce-ways": _add_ways, "bandwidth": _add_bandwidth}[name](parser)
    add = partial(parser.add_argument, action=One)
    most = reading.MOST_CALLS
    arrays = "arrays; `auto` is cupy if every rank has a GPU"
    add("--buffers", choices=("numpy", "cupy", "auto"), default="auto", help=arrays)
    add("--warmup", read=reading.whole(0, most), default=1, metavar="N", help="rounds before the timed ones (1)")
    lines = "write results there as they are measured: a JSON object a line"
    add("--json", read=reading.file, metavar="FILE", help=lines)
    add("--csv", read=reading.file, metavar="FILE", help="write results there at the end: a line each")
    return parser


def _add_topology(parser: argparse.ArgumentParser) -> None:
    add = partial(parser.add_argument, action=One)
    one = f"bytes of a message ({MESSAGE}, which are 10**7 numbers of float32)"
    add("--bytes", dest="sizes", read=_one_size, default=(MESSAGE,), metavar="BYTES", help=one)
    chain = f"messages from the one source to each of three destinations ({MESSAGES})"
    add("--repeat", read=reading.whole(1, 10_000), default=MESSAGES, metavar="N", help=chain)
    _add_rounds(parser, 5)
    trace = "write a trace of the source's streams there, for https://ui.perfetto.dev and chrome://tracing"
    add("--trace", read=reading.file, metavar="FILE", help=trace)
    add("--plot", read=reading.file, metavar="FILE", help="draw the pairs there; needs matplotlib (mpicoll[plots])")


def _add_ways(parser: argparse.ArgumentParser) -> None:
    _add_sizes(parser, "of the vector")
    numbers = "numbers of ranks, each from rank 0 on (all ranks)"
    parser.add_argument("--ranks", dest="ranks", action=Many, read=_ranks, default=(), metavar="N,...", help=numbers)
    add = partial(parser.add_argument, action=One)
    most = reading.MOST_CALLS
    number = "timed calls of each way (as many as fit into the budget, at most 200)"
    add("--iters", dest="iterations", read=reading.whole(1, most), metavar="N", help=number)
    add("--budget", read=reading.seconds, default=30.0, metavar="SECONDS", help="time for the whole run (30)")


def _add_bandwidth(parser: argparse.ArgumentParser) -> None:
    _add_sizes(parser, "of a message")
    _add_rounds(parser, 20)


def _add_rounds(parser: argparse.ArgumentParser, number: int) -> None:
    """Add how often all is measured, where the time for it is not shared out."""
    text = f"timed rounds: all is measured once in each ({number})"
    read = reading.whole(1, reading.MOST_CALLS)
    parser.add_argument("--iters", dest="iterations", action=One, read=read, default=number, metavar="N", help=text)
    parser.set_defaults(budget=1e6)


def _add_sizes(parser: argparse.ArgumentParser, what: str) -> None:
    text = f"sizes {what}, as 8,1K,1M or 8-4M or 8-4M:2, which grow by a factor ({FACTOR}) (8-4M; CuPy 8-256M)"
    parser.add_argument(
        "--bytes", "--sizes", dest="sizes", action=Many, read=sizes, default=(), metavar="BYTES,...", help=text
    )


def sizes(text: str) -> tuple[int, ...]:
    """Return message sizes in bytes, ascending; each is one message's."""
    found = reading.sizes(text)
    if not 1 <= found[0] <= found[-1] <= LARGEST_MESSAGE:
        raise ValueError(f"{text!r} is not a size or a range from 1 to 1G")
    return found


def _one_size(text: str) -> tuple[int, ...]:
    found = sizes(text)
    if len(found) > 1:
        raise ValueError(f"{text!r} is more than one size")
    return found


def _ranks(text: str) -> tuple[int, ...]:
    found = reading.ranks(text)
    if found[0] < 2:
        raise ValueError(f"{text!r}: one rank has no other")
    return found
