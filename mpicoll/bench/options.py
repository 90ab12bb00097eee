"""What is asked for: the command line."""

from __future__ import annotations

import argparse
import contextlib
import io
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpicoll.bench.cases import DEFAULT_CALLS, UNEVEN, calls_named
from mpicoll.bench.data import DTYPES, REDUCTIONS, dtype_named
from mpicoll.settings import parse_bytes

_EPILOG = f"""\
Sizes are bytes of the full vector, counts its elements: the vector itself for bcast, reduce, allreduce, scan
and exscan; all ranks' blocks together for gather, scatter, allgather and reduce_scatter; all that one rank
sends for alltoall. Blocks have at least one element.
Blocks are uneven in {", ".join(UNEVEN)}.

The time of a call is that of its slowest rank; every call starts from a barrier; the table shows the median.
Every form of every call is validated twice, exactly and on all ranks: before its time is taken and after.

Exit status: 0 if all elements are right, 1 if any is wrong, 2 if the request cannot be served.
"""


#: what can be measured in turn with the calls, and what it is
BASELINES = {
    "nccl": "NCCL through CuPy, on GPUs of their own",
    "native": "the MPI library's own collective on the same arrays",
    "limit": "one exchange of messages around the ring, of the bytes that the busiest rank must send",
}


class RequestError(ValueError):
    """The request cannot be served; every rank finds the same."""


@dataclass(frozen=True)
class Options:
    """The command line, read.

    Attributes:
        calls: names of calls, lower-case methods of mpi4py.
        algorithms: choices as `algorithm=` takes them, "auto" and "all".
        smallest: first message size in bytes.
        largest: last one; None leaves it to the kind of buffers.
        factor: from one size to the next.
        dtypes: names of NumPy's.
        redops: names of operators.
        roots: ranks, None for every rank.
        iterations: number of timed calls; None fits them into the budget.
        warmup: calls before the timed ones, besides the validated one.
        budget: seconds for the whole run.
        buffers: "numpy", "cupy" or "auto".
        path: "auto", "direct", "staged" or "mapped".
        forms: which of False (out of place) and True (in place).
        json: file for the results.
        compute: measure overlap with so many seconds of computation (0: as the call takes); None: do not.
        sizes: message sizes in bytes, instead of smallest, largest and factor.
        baselines: what is measured in turn with the calls.
        mode: "overlap", "overhead" or "breakdown" instead of the table of times; "".
    """

    calls: tuple[str, ...]
    algorithms: tuple[str, ...]
    smallest: int
    largest: int | None
    factor: int
    dtypes: tuple[str, ...]
    redops: tuple[str, ...]
    roots: tuple[int, ...] | None
    iterations: int | None
    warmup: int
    budget: float
    buffers: str
    path: str
    forms: tuple[bool, ...]
    json: Path | None
    compute: float | None
    sizes: tuple[int, ...]
    baselines: tuple[str, ...]
    mode: str


def _words(text: str) -> list[str]:
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise argparse.ArgumentTypeError(f"{text!r} has an empty item")
    return list(dict.fromkeys(words))


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(sorted({parse_bytes(word) for word in _words(text)}))


def _baselines(text: str) -> tuple[str, ...]:
    words = _words(text)
    unknown = [word for word in words if word not in BASELINES]
    if unknown:
        raise ValueError(f"no baseline {unknown[0]!r}; known: {', '.join(BASELINES)}")
    return tuple(words)


def _calls(text: str) -> tuple[str, ...]:
    return calls_named(_words(text))


def _dtypes(text: str) -> tuple[str, ...]:
    return DTYPES if text == "all" else tuple(dtype_named(word).name for word in _words(text))


def _redops(text: str) -> tuple[str, ...]:
    names = tuple(REDUCTIONS) if text == "all" else tuple(word.upper() for word in _words(text))
    unknown = [name for name in names if name not in REDUCTIONS]
    if unknown:
        raise ValueError(f"no operator {unknown[0]!r}; known: {', '.join(REDUCTIONS)}")
    return names


def _roots(text: str) -> tuple[int, ...] | None:
    return None if text == "all" else tuple(_at_least(0)(word) for word in _words(text))


def _at_least(lowest: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.isdecimal() or int(text) < lowest:
            raise ValueError(f"{text!r} is not a whole number from {lowest} on")
        return int(text)

    return read


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds < math.inf:
        raise ValueError(f"{text!r} is not a number of seconds")
    return seconds


def _told(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a reader whose ValueError argparse shows with its text."""

    def reader(text: str) -> Any:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return reader


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m mpicoll.bench",
        description="Measure and validate mpicoll's collectives; start it with mpirun.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    calls = f"calls to measure; `all` are all of them, `default` is {','.join(DEFAULT_CALLS)}"
    add("--op", dest="calls", type=_told(_calls), default=DEFAULT_CALLS, metavar="CALL,...", help=calls)
    how = "`auto`, as mpicoll chooses; `all` that can serve; or names, also name/segments and name@path"
    add("--algorithm", dest="algorithms", type=_words, default=("auto",), metavar="NAME,...", help=how)
    size = _told(parse_bytes)
    add(
        "--min",
        dest="smallest",
        type=size,
        default=8,
        metavar="BYTES",
        help="smallest message, as 8 or 64K (8)",
    )
    add("--max", dest="largest", type=size, metavar="BYTES", help="largest, always measured (4M; CuPy 256M)")
    add("--factor", type=_told(_at_least(2)), default=8, help="from one size to the next (8)")
    add("--sizes", type=_told(_sizes), default=(), metavar="BYTES,...", help="these sizes instead")
    types = f"{', '.join(DTYPES)}, bfloat16, or `all` but this one (float32)"
    add("--dtype", dest="dtypes", type=_told(_dtypes), default=("float32",), metavar="NAME,...", help=types)
    ops = f"{', '.join(REDUCTIONS)}, or `all` (SUM)"
    add("--redop", dest="redops", type=_told(_redops), default=("SUM",), metavar="NAME,...", help=ops)
    add(
        "--root",
        dest="roots",
        type=_told(_roots),
        default=(0,),
        metavar="RANK,...",
        help="roots, or `all` (0)",
    )
    _add_how(parser)
    return parser


def _add_how(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    number = "timed calls (as many as fit into the budget, at most 200)"
    add("--iters", dest="iterations", type=_told(_at_least(1)), metavar="N", help=number)
    add("--warmup", type=_told(_at_least(0)), default=2, metavar="N", help="calls before the timed ones (2)")
    add("--budget", type=_told(_seconds), default=90.0, metavar="SECONDS", help="time for the whole run (90)")
    arrays = "arrays; `auto` is cupy if every rank has a GPU"
    add("--buffers", choices=("numpy", "cupy", "auto"), default="auto", help=arrays)
    paths = ("auto", "direct", "staged", "mapped")
    add("--path", choices=paths, default="auto", help="how CuPy arrays travel (auto)")
    forms = parser.add_mutually_exclusive_group()
    given: dict[str, Any] = {"dest": "forms", "action": "store_const", "default": (False, True)}
    forms.add_argument("--both", const=(False, True), help="measure both forms of a call (default)", **given)
    forms.add_argument("--outofplace", const=(False,), help="only out of place", **given)
    forms.add_argument("--inplace", const=(True,), help="only in place", **given)
    add("--json", type=Path, metavar="FILE", help="write facts, options and results there, with all samples")
    _add_what(parser)


def _add_what(parser: argparse.ArgumentParser) -> None:
    """Add what else than the times of the calls is measured."""
    listed = "; ".join(f"{name}: {what}" for name, what in BASELINES.items())
    beside = f"measured in turn with the calls, with the ratio of its time to theirs. {listed}"
    parser.add_argument(
        "--baseline", dest="baselines", type=_told(_baselines), default=(), metavar="NAME,...", help=beside
    )
    instead = parser.add_argument_group("instead of the table of times")
    modes = instead.add_mutually_exclusive_group()
    hidden = "overlap of nonblocking calls with MS of computation (as much as the call takes)"
    milliseconds = _told(lambda text: _seconds(text) / 1e3)
    modes.add_argument("--async", dest="compute", type=milliseconds, nargs="?", const=0.0, metavar="MS", help=hidden)
    for mode, what in (
        ("overhead", "the library's own cost per call and per message, on 8-byte and empty NumPy arrays"),
        ("breakdown", "where the time of a call goes: planning, messages, local work, the device"),
    ):
        modes.add_argument(f"--{mode}", dest="mode", action="store_const", const=mode, default="", help=what)


def parse(arguments: list[str], *, loud: bool = True) -> Options:
    """Read the command line; mistakes end the program with status 2.

    Args:
        arguments: without the program's name.
        loud: print help and mistakes; one of the ranks should.
    """
    quiet = io.StringIO()
    with contextlib.ExitStack() as stack:
        if not loud:
            stack.enter_context(contextlib.redirect_stdout(quiet))
            stack.enter_context(contextlib.redirect_stderr(quiet))
        parser = _parser()
        found = parser.parse_args(arguments)
        mistake = _contradiction(found)
        if mistake:
            parser.error(mistake)
    found.mode = "overlap" if found.compute is not None else found.mode
    return Options(**(vars(found) | {"algorithms": tuple(found.algorithms)}))


def _contradiction(found: argparse.Namespace) -> str:
    """Return what does not go together."""
    if found.largest is not None and found.largest < found.smallest:
        return f"--max {found.largest} is less than --min {found.smallest}"
    if found.path != "auto" and found.buffers == "numpy":
        return f"--path {found.path} is for CuPy buffers"
    if found.mode == "overhead" and found.buffers == "cupy":
        return "--overhead is measured on NumPy arrays"
    if found.baselines and (found.mode or found.compute is not None):
        return "--baseline is for the table of times"
    return ""


def sizes(smallest: int, largest: int, factor: int) -> list[int]:
    """Return message sizes in bytes: by a factor from the smallest, and the largest."""
    found = [0] if smallest == 0 else []
    size = max(smallest, 1)
    while size < largest:
        found.append(size)
        size *= factor
    return [*found, largest] if largest not in found else found
