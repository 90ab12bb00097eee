"""The fastest algorithms of a run with several of them, by message size: what `algorithm=` would be best.

    # fastest                        sizes  algorithm                auto is slower by
    # allreduce                      8-512  recursive_doubling       = = +12
    #                                   4K  two_shot                 +25

Here auto was as fast as recursive doubling at 8 and 64 bytes, and 12 % slower at 512.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from mpicoll.bench.measure.statistics import FEWEST
from mpicoll.bench.output.columns import Column, Columns
from mpicoll.bench.output.rows import Record
from mpicoll.report.contest import Contest, contests
from mpicoll.report.winners import Winner, winner
from mpicoll.settings import format_bytes

#: sizes in a line
MANY = 6

COLUMNS = Columns(
    Column("# fastest", "#", 31, "left"),
    Column("sizes", "(B)", 9),
    Column(" algorithm", "", 25, "left"),
    Column("auto is slower by", "(%; = in the noise, ? few calls)", 0, "left"),
)

#: message size in bytes, and the winner there
Place = tuple[int, Winner]


def lines(rows: Iterable[Record]) -> Iterator[str]:
    """Yield the lines of the table of what was measured; none where no call has a choice.

    Args:
        rows: of a file of times.
    """
    found = contests(rows)
    several = len({one.ranks for one in found}) > 1
    table = [(_name(one, several), places) for one in found if (places := _places(one))]
    if table:
        yield from ("#", *COLUMNS.head())
    for name, places in table:
        parts = (part for _, run in groupby(places, lambda place: place[1].name) for part in _cut(list(run)))
        for number, part in enumerate(parts):
            ends = dict.fromkeys(format_bytes(nbytes) for nbytes, _ in (part[0], part[-1]))
            behind = " ".join(_behind(one) for _, one in part)
            yield COLUMNS.line(f"# {name}" if number == 0 else "#", "-".join(ends), f" {part[0][1].name}", behind)


def _name(contest: Contest, several: bool) -> str:
    """Return what is contested, with the number of ranks if the run has several."""
    return f"{contest.call}, {contest.ranks} ranks" if several else contest.call


def _places(contest: Contest) -> list[Place]:
    """Return the sizes with a choice, and the winners there."""
    sizes = [nbytes for nbytes in contest.sizes if len(contest.candidates(nbytes)) > 1]
    return [(nbytes, found) for nbytes in sizes if (found := winner(contest, nbytes))]


def _cut(run: list[Place]) -> Iterator[list[Place]]:
    """Yield a list in parts that fit into a line."""
    return (run[at : at + MANY] for at in range(0, len(run), MANY))


def _behind(one: Winner) -> str:
    """Return in percent how much longer auto takes: "=" for no more than the noise, "" where it was not timed."""
    if one.auto is None or one.regret is None:
        return ""
    if min(one.auto.number, one.timing.number) < FEWEST:
        return "?"
    return f"{100 * one.regret:+.0f}" if one.shown else "="
