"""Options: the command line."""

from __future__ import annotations

import argparse
import contextlib
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from mpicoll.bench.request import reading
from mpicoll.bench.request.cases import DEFAULT_CALLS, UNEVEN
from mpicoll.bench.request.numbers import DTYPES, REDUCTIONS
from mpicoll.bench.request.reading import Many, One
from mpicoll.dispatch.paths import serving

_EPILOG = f"""\
Sizes are bytes of the full vector, counts its elements: the vector itself for bcast, reduce, allreduce, scan
and exscan; all ranks' blocks together for gather, scatter, allgather and reduce_scatter; all that one rank
sends for alltoall. Blocks have at least one element.
Blocks are uneven in {", ".join(UNEVEN)}.

The time of a call is that of its slowest rank; every call has a common start; the table shows the median. A call is
timed until half of its median's interval of 95 % is within --ci, or its share of the budget is spent.
Every form of every call is validated twice, exactly and on all ranks: before its time is taken and after.

Where the budget is spent, the run ends after its current calls and says how many are left out; one that gets SIGINT
or SIGTERM ends at once. What was measured is in the file. Algorithms that cannot serve a call are left out, with the
reason.

Three puzzles have options of their own, which follow their name (`python -m mpicoll.bench topology --help`):
topology        bandwidth and latency of all pairs of ranks, the links between them, and one source of three streams
allreduce-ways  an all-reduce directly, as reduce and broadcast, as reduce-scatter and all-gather, and what decides
bandwidth       achieved and theoretical bandwidth of each kind of link, and the latency of a message

Exit status: 128 and the signal's number if a signal ended the run; 2 if the request cannot be served; 1 if any element
is wrong, or else 4 if a guideline is violated, or else 3 if the budget ended the run; 0 if nothing is the matter.
"""


#: timed calls that have a spread
FEWEST = 3
#: options that say how long messages are, and what they are where they are not given
SIZES: dict[str, Any] = {"smallest": 8, "largest": None, "factor": 8}


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
        path: "auto", or the name of a path for device arrays.
        forms: which of False (out of place) and True (in place).
        json: file for the results.
        compute: measure overlap with so many seconds of computation (0: as the call takes); None: do not.
        sizes: message sizes in bytes, instead of smallest, largest and factor.
        baselines: what is measured in turn with the calls.
        ranks: numbers of ranks, each from rank 0 on; empty: all.
        sync: the common start, "barrier" or "window".
        width: half of the median's interval, in parts of the median, with which a call has been timed enough.
        shuffle: measure algorithms at one message size in random order.
        seed: of that order; None: any.
        stats: of a call's times, in the table; empty: the median and its interval's half-width.
        wide: the table has all columns, however wide the terminal is.
        mode: "times", "overlap", "overhead", "breakdown", "guidelines" or "regret".
        csv: file for the results as a table.
        resume: measure what the file of an interrupted run lacks, and append it there.
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
    ranks: tuple[int, ...]
    sync: str
    width: float
    shuffle: bool
    seed: int | None
    stats: tuple[str, ...]
    wide: bool
    mode: str
    csv: Path | None
    resume: bool


def _parser() -> argparse.ArgumentParser:
    parser = reading.Parser(
        description="Measure and validate mpicoll's collectives; start it with mpirun.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_what(parser)
    _add_sizes(parser)
    _add_how(parser)
    _add_method(parser)
    _add_output(parser)
    _add_modes(parser)
    return parser


def _add_what(parser: argparse.ArgumentParser) -> None:
    """Add the lists whose combinations are measured."""

    def add(
        name: str | tuple[str, str], dest: str, read: Callable[[str], Any], default: Any, metavar: str, text: str
    ) -> None:
        names, how = (name,) if isinstance(name, str) else name, {"read": read, "default": default, "metavar": metavar}
        parser.add_argument(*names, dest=dest, action=Many, help=text, **how)

    calls = f"calls to measure; `all` are all of them, `default` is {','.join(DEFAULT_CALLS)}"
    add("--op", "calls", reading.calls, DEFAULT_CALLS, "CALL,...", calls)
    how = "`auto`, as mpicoll chooses; `all` that can serve; or names, also name/segments and name@path"
    add("--algorithm", "algorithms", reading.words, ("auto",), "NAME,...", how)
    types = f"{', '.join(DTYPES)}, bfloat16, or `all` but this one (float32)"
    add("--dtype", "dtypes", reading.dtypes, ("float32",), "NAME,...", types)
    add("--redop", "redops", reading.redops, ("SUM",), "NAME,...", f"{', '.join(REDUCTIONS)}, or `all` (SUM)")
    add("--root", "roots", reading.roots, (0,), "RANK,...", "roots, or `all` (0)")
    listed = "; ".join(f"{name}: {what}" for name, what in reading.BASELINES.items())
    beside = f"measured in turn with the calls, with the ratio of its time to theirs. {listed}"
    add("--baseline", "baselines", reading.baselines, (), "NAME,...", beside)
    numbers = "numbers of ranks, as 2,3,4 or 2-8: all is measured on the first so many of them (all)"
    add("--ranks", "ranks", reading.ranks, (), "N,...", numbers)
    given = "message sizes, as 8,64K or 8-4M or 8-4M:2, which grow by a factor (8); instead of the three below"
    add(("--bytes", "--sizes"), "sizes", reading.sizes, (), "BYTES,...", given)


def _add_sizes(parser: argparse.ArgumentParser) -> None:
    """Add how long messages are."""
    add = partial(parser.add_argument, action=One)
    add("--min", dest="smallest", read=reading.size, metavar="BYTES", help="smallest message, as 8 or 64K (8)")
    largest = "largest, always measured (4M; CuPy 256M)"
    add("--max", dest="largest", read=reading.size, metavar="BYTES", help=largest)
    add("--factor", read=reading.whole(2), metavar="N", help="from one size to the next (8)")


def _add_how(parser: argparse.ArgumentParser) -> None:
    """Add which arrays are taken, and in which forms."""
    add = partial(parser.add_argument, action=One)
    arrays = "arrays; `auto` is cupy if every rank has a GPU"
    add("--buffers", choices=("numpy", "cupy", "auto"), default="auto", help=arrays)
    paths = ("auto", *serving("device"))
    add("--path", choices=paths, default="auto", help="how CuPy arrays travel (auto)")
    forms = parser.add_mutually_exclusive_group()
    given: dict[str, Any] = {"dest": "forms", "action": "store_const", "default": (False, True)}
    forms.add_argument("--both", const=(False, True), help="measure both forms of a call (default)", **given)
    forms.add_argument("--outofplace", const=(False,), help="only out of place", **given)
    forms.add_argument("--inplace", const=(True,), help="only in place", **given)


def _add_method(parser: argparse.ArgumentParser) -> None:
    """Add how often and in which order calls are timed, and how they start."""
    add, most = partial(parser.add_argument, action=One), reading.MOST_CALLS
    number = "timed calls (as many as --ci needs or fit into the budget)"
    add("--iters", dest="iterations", read=reading.whole(1, most), metavar="N", help=number)
    add("--warmup", read=reading.whole(0, most), default=2, metavar="N", help="calls before the timed ones (2)")
    add("--budget", read=reading.seconds, default=90.0, metavar="TIME", help="for the whole run, as 90 or 5m (90)")
    part = "half of the median's interval of 95 %%, as a part of the median, that is certain enough (0.05)"
    add("--ci", dest="width", read=reading.width, default=0.05, metavar="PART", help=part)
    start = "every call starts after a barrier, or at an agreed time; a sample with a rank that is late is invalid"
    add("--sync", choices=("barrier", "window"), default="barrier", help=start)
    order = "measure the algorithms at one message size one after the other, and not in random order"
    parser.add_argument("--no-shuffle", dest="shuffle", action="store_false", help=order)
    parser.add_argument("--shuffle", dest="shuffle", action="store_true", help="measure them so (default)")
    add("--seed", read=reading.whole(0, 2**32 - 1), metavar="N", help="of that order (any; the header has it)")


def _add_output(parser: argparse.ArgumentParser) -> None:
    """Add what is shown, and where the results go."""
    shown = f"of the times in the table: {', '.join(reading.STATS)} (the median and half of its interval)"
    add = parser.add_argument
    add("--stat", dest="stats", action=Many, read=reading.stats, default=(), metavar="NAME,...", help=shown)
    add("--wide", action="store_true", help="show all columns (those that fit the terminal)")
    lines = "write results there as they are measured, with all samples: a JSON object a line"
    add("--json", action=One, read=reading.file, metavar="FILE", help=lines)
    table = "write results there at the end: a line each, without samples"
    add("--csv", action=One, read=reading.file, metavar="FILE", help=table)
    rest = "measure only what the file of --json lacks, that an interrupted run of the same command has left"
    add("--resume", action="store_true", help=rest)


def _add_modes(parser: argparse.ArgumentParser) -> None:
    """Add what else than the times of the calls is measured."""
    instead = parser.add_argument_group("instead of the table of times")
    add = instead.add_mutually_exclusive_group().add_argument
    hidden = "overlap of nonblocking calls with MS of computation (as much as the call takes)"
    ms: dict[str, Any] = {"read": reading.milliseconds, "nargs": "?", "const": "0", "metavar": "MS"}
    add("--async", dest="compute", action=One, help=hidden, **ms)
    for name, what in (
        ("overhead", "the library's own cost per call and message; an allreduce with other arrays at each call"),
        ("breakdown", "where the time of a call goes: planning, messages, local work, the device"),
        (
            "check-guidelines",
            "whether a call is no slower than other calls, algorithms, baselines and sizes in its place",
        ),
        ("regret", "how much slower mpicoll's choice of an algorithm is than the fastest one"),
    ):
        add(
            f"--{name}",
            dest="mode",
            action="store_const",
            const=name.removeprefix("check-"),
            default="times",
            help=what,
        )


@contextlib.contextmanager
def heard(loud: bool) -> Iterator[None]:
    """Let be printed what is printed within, on a rank that is `loud`; drop it on another."""
    with contextlib.ExitStack() as stack:
        if not loud:
            stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
            stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
        yield


def parse(arguments: list[str], *, loud: bool = True) -> Options:
    """Read the command line; mistakes end the program with status 2.

    Args:
        arguments: without the program's name.
        loud: print help and mistakes; one of the ranks should.
    """
    with heard(loud):
        parser = _parser()
        found = parser.parse_args(arguments)
        found.mode = "overlap" if found.compute is not None else found.mode
        mistake = _contradiction(found)
        if mistake:
            parser.error(mistake)
    chosen = {name: default for name, default in SIZES.items() if getattr(found, name) is None}
    return Options(**(vars(found) | chosen))


def _contradiction(found: argparse.Namespace) -> str:
    """Return the options that do not go together, in words."""
    race = {"guidelines": "--check-guidelines", "regret": "--regret"}.get(found.mode, "")
    smallest = SIZES["smallest"] if found.smallest is None else found.smallest
    rules = {
        "--bytes are all sizes; --min, --max and --factor are for others": found.sizes and _by_factor(found),
        "--overhead is measured at 0 and 8 bytes, or at --bytes": found.mode == "overhead" and _by_factor(found),
        "--regret is measured at sizes of its own, or at --bytes": found.mode == "regret" and _by_factor(found),
        f"--max {found.largest} is less than --min {smallest}": (found.largest or smallest) < smallest,
        f"--path {found.path} is for CuPy buffers": found.path != "auto" and found.buffers == "numpy",
        "--baseline is for the table of times": found.baselines and found.mode in ("overlap", "breakdown", "regret"),
        "--overhead has the baseline torch": set(found.baselines) - {"torch"} and found.mode == "overhead",
        f"{race} compares with every algorithm": race and found.algorithms != ("auto",),
        f"{race}: limit is a bound, and no call": race and "limit" in found.baselines,
        f"{race} times calls until that is enough, within --budget": race and found.iterations,
        f"{race} compares calls out of place": race and found.forms == (True,),
        f"{race} starts calls after barriers": race and found.sync != "barrier",
        "--stat is for the table of times": found.stats and found.mode != "times",
        "--resume needs the file of --json": found.resume and found.json is None,
        f"--iters: a spread needs {FEWEST} calls": found.mode in ("overlap", "overhead")
        and (found.iterations or FEWEST) < FEWEST,
    }
    return next((text for text, broken in rules.items() if broken), "")


def _by_factor(found: argparse.Namespace) -> bool:
    """Tell whether sizes are given by a first, a last and a factor."""
    return any(getattr(found, name) is not None for name in SIZES)
