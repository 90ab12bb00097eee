"""Boxes: what is drawn of each piece that a rank has, in rows of columns; a row a rank, a column a piece.

Allreduce by the ring on 4 ranks after round 0: rank 1's box of block 3 shows ranks 0 and 1, and is new.  In an
alltoall the columns are places: first the blocks that a rank has to send or to pass on, then those that have arrived.
"""

from __future__ import annotations

from dataclasses import dataclass

from mpicoll.pictures.colours import palette
from mpicoll.pictures.film import Film, Frame, Held, Piece, Ranks, before_and_after
from mpicoll.pictures.notation import ends_of, made_of_ranks, piece_name
from mpicoll.schedule.collectives import Collective

#: rows of columns; None where a rank has nothing
Rows = list[list["Box | None"]]


@dataclass(frozen=True)
class Box:
    """The drawing of a piece.

    Attributes:
        colour: of its block; in an alltoall of the rank that it comes from.
        text: its name, where it has no values.
        values: the ranks in each value.
        complete: it is in its place in the output.
        new: it has arrived in this round.
    """

    colour: str
    text: str = ""
    values: tuple[Ranks, ...] = ()
    complete: bool = False
    new: bool = False


@dataclass(frozen=True)
class Columns:
    """The columns of all tables of a film.

    Attributes:
        names: of each.
        first: number of columns of the first group; all, but for an alltoall.
        groups: the names of both groups, if there are two.
        slivers: parts of each box, one for each rank that may be in it; 1 where boxes are of one rank.
    """

    names: tuple[str, ...]
    first: int
    groups: tuple[str, ...]
    slivers: int


@dataclass(frozen=True)
class Tables:
    """The boxes of all frames, and the columns that they have in common."""

    columns: Columns
    rows: list[Rows]


def tables(film: Film) -> Tables:
    """Return the boxes of a film, by frame and rank."""
    if film.row.name == "alltoall":
        return _tables_of_places(film)
    names = tuple(piece_name(film, piece) for piece in film.pieces)
    found = [
        [
            [_box(film, piece, held[piece], piece in new) if piece in held else None for piece in film.pieces]
            for held, new in zip(frame.held, _arrived(frame), strict=True)
        ]
        for frame in film.frames
    ]
    return Tables(Columns(names, len(names), (), film.size if made_of_ranks(film) else 1), found)


def _arrived(frame: Frame) -> list[set[Piece]]:
    """Return by rank which pieces have arrived in a round."""
    arrived: list[set[Piece]] = [set() for _ in frame.held]
    for arrow in frame.arrows:
        arrived[arrow.target].update(piece for piece, _ in arrow.pieces)
    return arrived


def _box(film: Film, piece: Piece, held: Held, new: bool) -> Box:
    """Return the box of a piece.

    Args:
        film: that it is of.
        piece: block and segment.
        held: what the rank has of it.
        new: it has arrived in this round.
    """
    colour = piece_colour(film, piece)
    if made_of_ranks(film):
        return Box(colour, "", held.values, held.complete, new)
    return Box(colour, box_text(film, piece), (), held.complete, new)


def box_text(film: Film, piece: Piece) -> str:
    """Return a piece's name in its box, shorter than that of its column."""
    block, segment = piece
    if film.row.name == "alltoall":
        return "→".join(map(str, ends_of(film, block)))
    if film.segments == 1:
        return str(block)
    return str(segment) if film.blocks == 1 else f"{block}.{segment}"


def piece_colour(film: Film, piece: Piece) -> str:
    """Return the colour of a piece."""
    block, segment = piece
    if film.row.name == "alltoall":
        return palette(film.size)[ends_of(film, block)[0]]
    if film.blocks == 1:
        return palette(film.segments)[segment]
    return palette(film.blocks)[block]


def _tables_of_places(film: Film) -> Tables:
    """Return the tables of an alltoall: places for what waits, then for what has arrived, by source."""
    ends = _ends(film)
    places: list[list[Piece | None]] = [[(r * film.size + t, s) for t, s in ends] for r in range(film.size)]
    waiting: list[list[list[Piece | None]]] = []
    for frame in film.frames:
        for mine, held in zip(places, frame.held, strict=True):
            _settle(mine, [piece for piece, what in held.items() if not what.complete])
        waiting.append([list(mine) for mine in places])
    first = max(map(len, places))  # they never become fewer
    found = []
    for frame, ranks in zip(film.frames, waiting, strict=True):
        rows: Rows = []
        for rank, (mine, held, new) in enumerate(zip(ranks, frame.held, _arrived(frame), strict=True)):
            done = [(source * film.size + rank, s) for source, s in ends]
            shown = [p if p in held and held[p].complete else None for p in done]
            both = (*mine, *[None] * (first - len(mine)), *shown)
            rows.append([p and _box(film, p, held[p], p in new) for p in both])
        found.append(rows)
    names = ("",) * first + tuple(str(source) for source, _ in ends)
    return Tables(Columns(names, first, ("to send, or to pass on", "arrived, from rank"), 1), found)


def _settle(places: list[Piece | None], pieces: list[Piece]) -> None:
    """Clear the places of pieces that have gone, and give free ones to those that have come."""
    for number, piece in enumerate(places):
        if piece not in pieces:
            places[number] = None
    for piece in sorted(set(pieces) - set(places)):
        number = places.index(None) if None in places else len(places)
        places[number : number + 1] = [piece]


def _ends(film: Film) -> list[tuple[int, int]]:
    """Return the rank at a block's other end, and the segment, of each of a rank's pieces in an alltoall."""
    return [(other, segment) for other in range(film.size) for segment in range(film.segments)]


def tables_before_and_after(row: Collective, size: int, root: int) -> tuple[Film, Tables]:
    """Return what all ranks have before and after a collective: a film without messages, and its two tables."""
    blocks = 1 if row.idempotent else row.blocks(size)
    film = before_and_after(row, size, root, blocks)
    found = tables(film)
    first = found.columns.first
    shown = [[row[:first] for row in rows] for rows in found.rows]
    return film, Tables(Columns(found.columns.names[:first], first, (), found.columns.slivers), shown)
