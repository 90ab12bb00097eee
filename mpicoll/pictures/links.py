"""The time x link chart: which link carries what in which round, as text.

    link   0  1  2  3  4  5
    0>1    0  1  2  3  .  .
    1>2    .  0  1  2  3  .
    2>3    .  .  0  1  2  3

A broadcast by the ring in 4 segments: from round 2 on all links work at once.
"""

from __future__ import annotations

from collections.abc import Mapping

from mpicoll.pictures.film import Arrow, Film
from mpicoll.pictures.notation import numbers_text


def link_rows(film: Film) -> dict[tuple[int, int], dict[int, Arrow]]:
    """Return for each link that is used its messages by round; links in the order of their first message."""
    rows: dict[tuple[int, int], dict[int, Arrow]] = {}
    for number, frame in enumerate(film.frames[1:]):
        for arrow in frame.arrows:
            rows.setdefault((arrow.source, arrow.target), {})[number] = arrow
    return rows


def places_used(film: Film, rows: Mapping[tuple[int, int], dict[int, Arrow]]) -> tuple[int, int]:
    """Return (messages, rounds of all links together) of a chart's rows."""
    return sum(map(len, rows.values())), len(rows) * film.rounds


def link_chart(film: Film, width: int = 80) -> str:
    """Return the chart; a cell is the segment that a message carries, or its blocks where there is one segment."""
    rows = link_rows(film)
    names = {link: f"{link[0]}>{link[1]}" for link in rows}
    cells = {link: {n: _carried(film, a) for n, a in by_round.items()} for link, by_round in rows.items()}
    wide = max([len(text) for line in cells.values() for text in line.values()] + [len(str(film.rounds - 1))]) + 1
    label = max([len(name) for name in names.values()] + [4]) + 1
    many = max((width - label) // wide, 1)
    parts = []
    for first in range(0, film.rounds, many):
        numbers = range(first, min(first + many, film.rounds))
        lines = ["link".ljust(label) + "".join(str(n).rjust(wide) for n in numbers)]
        for link, line in cells.items():
            lines.append(names[link].ljust(label) + "".join(line.get(n, ".").rjust(wide) for n in numbers))
        parts.append("\n".join(lines))
    busy, places = places_used(film, rows)
    used = f"{busy} of {places} places used: {busy / max(places, 1):.0%}"
    return "\n\n".join([*parts, used])


def _carried(film: Film, arrow: Arrow) -> str:
    segments = sorted({segment for (_, segment), _ in arrow.pieces})
    blocks = sorted({block for (block, _), _ in arrow.pieces})
    if film.blocks == 1:
        return numbers_text(segments)
    if film.row.name == "alltoall":
        return str(len(blocks))
    return numbers_text(blocks) + (f".{numbers_text(segments)}" if film.segments > 1 else "")
