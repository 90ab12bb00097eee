"""A contest: all algorithms and baselines that were timed for one call on one number of ranks, by message size.

    Contest("allreduce", 4).curves["ring"][1024].median      12.5, the microseconds of the ring at 1 KiB

It is made of the rows of files of results; equal rows of several launches come to their medians.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

Record = dict[str, Any]
#: fields of a row that stand in a title where rows differ in them
DETAILS = ("memory", "dtype", "redop", "root")
#: the name that is asked for where mpicoll chooses, and ours among the times
AUTO, OURS = "auto", "mpicoll"


@dataclass(frozen=True)
class Timing:
    """The time of one call.

    Attributes:
        median: microseconds.
        low: lower end of the median's interval.
        high: upper end of it.
        busbw: bus bandwidth in GB/s; None where nothing moves.
        way: how it was carried out, as "ring/4@host"; a baseline's name.
        number: of timed calls; 0 where it is not known.
    """

    median: float
    low: float
    high: float
    busbw: float | None
    way: str
    number: int = 0


#: by message size in bytes
Curve = dict[int, Timing]


@dataclass
class Contest:
    """All that was timed of a call on one number of ranks.

    Attributes:
        call: its title: the name, and what else tells it from others.
        ranks: number of ranks.
        curves: by the algorithm that was asked for.
        auto: mpicoll's own choices.
        baselines: by name.
    """

    call: str
    ranks: int
    curves: dict[str, Curve] = field(default_factory=dict)
    auto: Curve = field(default_factory=dict)
    baselines: dict[str, Curve] = field(default_factory=dict)

    @property
    def sizes(self) -> list[int]:
        """Message sizes, ascending."""
        return sorted({nbytes for curve in (self.auto, *self.curves.values()) for nbytes in curve})

    def candidates(self, nbytes: int) -> dict[str, Timing]:
        """Return the algorithms at a size, by name; mpicoll's choice where none was asked for by name."""
        found = {name: curve[nbytes] for name, curve in self.curves.items() if nbytes in curve}
        return found or ({self.auto[nbytes].way: self.auto[nbytes]} if nbytes in self.auto else {})


def contests(rows: Iterable[Record]) -> list[Contest]:
    """Return the contests of rows, in their order, on rising numbers of ranks."""
    timed = one_form([row for row in rows if row.get("mode") == "times" and OURS in row["times"]])
    found: dict[tuple[str, int], Contest] = {}
    for cell in together(timed, details(timed)).values():
        call, ranks, asked, nbytes = cell[0]["title"], cell[0]["ranks"], cell[0]["asked"], cell[0]["bytes"]
        one = found.setdefault((call, ranks), Contest(call, ranks))
        curve = one.auto if asked == AUTO else one.curves.setdefault(asked, {})
        curve[nbytes] = timing(cell, OURS, way(cell[0]))
        for name in dict.fromkeys(name for row in cell for name in row["times"] if name != OURS):
            one.baselines.setdefault(name, {})[nbytes] = timing(cell, name, name)
    order = list(dict.fromkeys(call for call, _ in found))
    return sorted(found.values(), key=lambda one: (order.index(one.call), one.ranks))


def one_form(rows: list[Record]) -> list[Record]:
    """Return rows of one form: those out of place, and those in place of calls that have no others."""
    apart = {row["op"] for row in rows if not row["in_place"]}
    return [row for row in rows if not row["in_place"] or row["op"] not in apart]


def details(rows: Iterable[Record]) -> list[str]:
    """Return the fields in which rows of one call differ."""
    values: dict[tuple[str, str], set[Any]] = defaultdict(set)
    for row in rows:
        for name in DETAILS:
            values[row["op"], name].add(row.get(name))
    return [name for name in DETAILS if any(len(found) > 1 for (_, of), found in values.items() if of == name)]


def together(rows: Iterable[Record], named: list[str]) -> dict[tuple[Any, ...], list[Record]]:
    """Return the rows of each cell and algorithm, of all launches, with their title.

    Args:
        rows: of mode times.
        named: fields that belong to the title.
    """
    found: dict[tuple[Any, ...], list[Record]] = defaultdict(list)
    for row in rows:
        title = ", ".join([row["op"], *(f"{name} {row[name]}" for name in named if row.get(name) is not None)])
        found[title, row["ranks"], row["asked"], row["bytes"]].append({**row, "title": title})
    return found


def timing(rows: list[Record], name: str, way: str) -> Timing:
    """Return the time of one name in rows of equal cells: the medians over the launches.

    Args:
        rows: of one cell and algorithm.
        name: among the times.
        way: how it was carried out.
    """
    times = [row["times"][name] for row in rows if name in row["times"]]
    middle = median(one["median"] for one in times)
    low = median(one.get("ci_low", one["median"]) for one in times)
    high = median(one.get("ci_high", one["median"]) for one in times)
    ours = rows[0]
    moved = ours["figures"].get("busbw", {}).get("value")
    busbw = moved * ours["times"][OURS]["median"] / middle if moved and middle else None
    return Timing(middle, low, high, busbw, way, sum(one.get("number", 0) for one in times))


def way(row: Record) -> str:
    """Return how a call was carried out, as "ring/4@host"."""
    segments = f"/{row['segments']}" if row.get("segments", 0) > 1 else ""
    return f"{row['algorithm']}{segments}@{row['path']}"
