"""Readers of the command line's values: an empty, absurd or double one is refused, in words."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from mpicoll.algorithms.naming import listed
from mpicoll.bench.request.cases import calls_named
from mpicoll.bench.request.numbers import DTYPES, REDUCTIONS, dtype_named
from mpicoll.ranges import message_sizes, whole_numbers
from mpicoll.settings import parse_bytes

#: what can be measured in turn with the calls, and what it is
BASELINES = {
    "nccl": "NCCL through CuPy, on GPUs of their own",
    "native": "the MPI library's own collective on the same arrays",
    "torch": "NCCL through PyTorch, gloo on NumPy's arrays",
    "nccl-symmetric": "the same on memory that is registered with NCCL as symmetric",
    "torch-symmetric": "PyTorch's own kernels on its symmetric memory",
    "staged": "the MPI library's own collective on host arrays, between copies from the GPU and back",
    "limit": "one exchange of messages around the ring, of the bytes that the busiest rank must send",
}
#: what the table can show of a call's times
STATS = ("median", "mean", "min", "max", "p99", "ci")
#: seconds in a unit of time
UNITS = {"": 1.0, "s": 1.0, "m": 60.0}
#: timed calls at most, and seconds and milliseconds at most
MOST_CALLS, MOST_SECONDS, MOST_MILLISECONDS = 1_000_000, 1e6, 60_000.0


def size(text: str) -> int:
    """Return a number of bytes."""
    return parse_bytes(text)


def words(text: str) -> tuple[str, ...]:
    """Return the items of a list, each once."""
    found = listed(text)
    if not all(found):
        raise ValueError(f"{text!r} has an empty item")
    return tuple(dict.fromkeys(found))


def sizes(text: str) -> tuple[int, ...]:
    """Return message sizes in bytes, ascending."""
    return message_sizes(",".join(words(text)))


def ranks(text: str) -> tuple[int, ...]:
    """Return numbers of ranks, ascending."""
    found = tuple(sorted(set(whole_numbers(",".join(words(text))))))
    if found[0] < 1:
        raise ValueError(f"{text!r}: there is no run on 0 ranks")
    return found


def stats(text: str) -> tuple[str, ...]:
    """Return names of statistics."""
    return _known("statistic", text, STATS)


def baselines(text: str) -> tuple[str, ...]:
    """Return names of baselines."""
    return _known("baseline", text, tuple(BASELINES))


def _known(what: str, text: str, known: tuple[str, ...]) -> tuple[str, ...]:
    """Return the items of a list, each of which is one of those that are known."""
    names = words(text)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"no {what} {unknown[0]!r}; known: {', '.join(known)}")
    return names


def calls(text: str) -> tuple[str, ...]:
    """Return names of calls."""
    return calls_named(words(text))


def dtypes(text: str) -> tuple[str, ...]:
    """Return names of dtypes."""
    return DTYPES if text == "all" else tuple(dtype_named(word).name for word in words(text))


def redops(text: str) -> tuple[str, ...]:
    """Return names of operators."""
    names = tuple(REDUCTIONS) if text == "all" else tuple(word.upper() for word in words(text))
    unknown = [name for name in names if name not in REDUCTIONS]
    if unknown:
        raise ValueError(f"no operator {unknown[0]!r}; known: {', '.join(REDUCTIONS)}")
    return names


def roots(text: str) -> tuple[int, ...] | None:
    """Return ranks, or None for all."""
    return None if text == "all" else tuple(whole(0)(word) for word in words(text))


def whole(lowest: int, highest: float = math.inf) -> Callable[[str], int]:
    """Return a reader of whole numbers."""

    def read(text: str) -> int:
        if not text.isdecimal() or not lowest <= int(text) <= highest:
            upto = f"from {lowest} on" if highest == math.inf else f"from {lowest} to {highest}"
            raise ValueError(f"{text!r} is not a whole number {upto}")
        return int(text)

    return read


def seconds(text: str) -> float:
    """Return a time that a run may take, from a text such as 90, 90s or 5m."""
    unit = text[-1:] if text[-1:] in UNITS else ""
    found = number(text.removesuffix(unit)) * UNITS[unit]
    if not 0 < found <= MOST_SECONDS:
        raise ValueError(f"{text!r} is not a number of seconds above 0 such as 90 or 5m, {MOST_SECONDS:.0f} at most")
    return found


def width(text: str) -> float:
    """Return half the width of an interval, in parts of the median."""
    found = number(text)
    if not 0 < found < 1:
        raise ValueError(f"{text!r} is not a part of the median between 0 and 1, such as 0.05")
    return found


def milliseconds(text: str) -> float:
    """Return the seconds of computation beside one call; 0 for as long as the call takes."""
    found = number(text)
    if not 0 <= found <= MOST_MILLISECONDS:
        raise ValueError(f"{text!r} is not a number of milliseconds from 0 to {MOST_MILLISECONDS:.0f}")
    return found / 1e3


def number(text: str) -> float:
    """Return a number; what is none is not a number."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def file(text: str) -> Path:
    """Return a path."""
    if not text:
        raise ValueError("'' is not the name of a file")
    return Path(text)


class One(argparse.Action):
    """An option with one value: a second one is refused, for neither may be lost."""

    many = False

    def __init__(self, *names: Any, read: Callable[[str], Any] = str, **how: Any) -> None:
        """Take the reader, too, whose ValueError is shown with its text."""
        super().__init__(*names, **how)
        self.read, self.texts = read, list[str]()

    def __call__(
        self, parser: argparse.ArgumentParser, found: argparse.Namespace, value: Any, name: Any = None
    ) -> None:
        """Read all that was given so far; arguments as argparse gives them."""
        if self.texts and not self.many:
            raise argparse.ArgumentError(self, "is given twice")
        self.texts.append(value)
        try:
            setattr(found, self.dest, self.read(",".join(self.texts)))
        except ValueError as error:
            raise argparse.ArgumentError(self, str(error)) from None


class Many(One):
    """An option with a list: a second one makes it longer, as if its items were in the first."""

    many = True


class Parser(argparse.ArgumentParser):
    """Ends with one line.

    Args:
        module: the program, whose name stands before a mistake.
        words: what follows it on the command line before its options.
    """

    def __init__(self, module: str = "mpicoll.bench", words: str = "", **how: Any) -> None:
        super().__init__(prog=f"python -m {module} {words}".rstrip(), **how)
        self.module = module

    def error(self, message: str) -> NoReturn:
        """Print the mistake, without the list of all options."""
        self.exit(2, f"{self.module}: {message} (--help lists the options)\n")
