"""Cells of two sides: the samples of every launch, by what was measured.

A side is one or more launches of the same command: `mpirun` is a factor of its own, so that two launches differ more
than the samples of one do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Record = dict[str, Any]
Samples = NDArray[np.float64]
#: what names a cell in a row
NAMES = ("mode", "op", "bytes", "count", "dtype", "redop", "root", "in_place", "ranks", "memory", "asked")
Key = tuple[Any, ...]
#: name of our times in a row
OURS = "mpicoll"


@dataclass(frozen=True)
class Pair:
    """A cell on both sides.

    Attributes:
        key: the values of NAMES.
        old: microseconds of each launch.
        new: the same of the other side.
    """

    key: Key
    old: list[Samples]
    new: list[Samples]


def middle(launches: Sequence[Samples]) -> float:
    """Return the median of the launches' medians, in microseconds."""
    return float(np.median([np.median(one) for one in launches]))


def samples(files: Iterable[Record]) -> dict[Key, list[Samples]]:
    """Return the samples of each launch by cell; rows without samples have none."""
    found: dict[Key, list[Samples]] = defaultdict(list)
    for file in files:
        mine: dict[Key, list[float]] = defaultdict(list)
        for row in file["rows"]:
            mine[tuple(row.get(name) for name in NAMES)] += row.get("times", {}).get(OURS, {}).get("samples", [])
        for key, times in mine.items():
            if times:
                found[key].append(np.array(times))
    return found


def pairs(old: Sequence[Record], new: Sequence[Record]) -> tuple[list[Pair], int]:
    """Return (the cells that all launches have, the number of the others)."""
    before, after = samples(old), samples(new)
    names = dict.fromkeys((*before, *after))
    both = [Pair(key, before.get(key, []), after.get(key, [])) for key in names]
    whole = [one for one in both if (len(one.old), len(one.new)) == (len(old), len(new))]
    return whole, len(both) - len(whole)


def differing(old: Sequence[Record], new: Sequence[Record], names: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Yield facts in which the sides differ: (name, on the old one, on the new one).

    Args:
        old: files of one side.
        new: files of the other one.
        names: of facts.
    """
    for name in names:
        before, after = (sorted({str(file.get("facts", {}).get(name, "")) for file in side}) for side in (old, new))
        if before != after:
            yield name, ", ".join(before), ", ".join(after)
