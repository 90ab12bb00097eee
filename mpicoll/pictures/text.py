"""A film as text that fits the terminal: a table for each round, a row a rank, a column a block.

    ring's allreduce on 4 ranks, rank 0:   0  0  0  0 | 0  0  03  0 | 0  023 03 0 | ✓  023 03 0 ...

Where the ranks in the cells do not fit, their number stands there; where that does not fit, a mark; where not even
marks fit, a row is one cell.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mpicoll.pictures.film import Film, Frame, Held, Piece, before_and_after
from mpicoll.pictures.notation import (
    COMPLETE,
    arrow_text,
    block_name,
    digit,
    ends_of,
    made_of_ranks,
    piece_name,
    ranks_text,
)
from mpicoll.schedule.collectives import Collective

#: blocks that are drawn of a vector that may be cut into any number
FREE_BLOCKS = 2
#: between two tables
GAP = "    "


@dataclass(frozen=True)
class View:
    """The part of a film that is drawn.

    Attributes:
        width: columns of the terminal.
        ranks: rows; all if there are none.
        rounds: tables; all, and the start, if there are none.
    """

    width: int = 80
    ranks: Sequence[int] = ()
    rounds: Sequence[int] = ()


def draw(film: Film, view: View) -> str:
    """Return the tables of the rounds side by side, each row of tables above the messages of its rounds.

    Raises:
        ValueError: the view names a rank or round that does not exist.
    """
    ranks = chosen("rank", view.ranks, film.size) or range(film.size)
    numbers = [k + 1 for k in chosen("round", view.rounds, film.rounds)] or range(film.rounds + 1)
    cells = fitted_cells(film, view.width, ranks)[1]
    tables = [_table(film, f"round {n - 1}" if n else "start", cells[n], ranks) for n in numbers]
    lines: list[str] = []
    labels = _labels(film, ranks)
    labels = ["rank".ljust(len(labels[0])), " " * len(labels[0]), *labels]
    for first in _rows(tables, view.width - len(labels[-1])):
        columns = tables[first]
        lines += [GAP.join(parts).rstrip() for parts in zip(labels, *columns, strict=True)]
        lines.append("")
        for number in numbers[first]:
            lines += messages(film, number - 1, view) if number else []
        lines.append("")
    return "\n".join(lines[:-1])


def messages(film: Film, number: int, view: View) -> list[str]:
    """Return the messages of a round, in lines that fit."""
    arrows = film.frames[number + 1].arrows
    rows = set(view.ranks or range(film.size))
    told = [arrow_text(film, a) for a in arrows if {a.source, a.target} & rows]
    text = "   ".join(one.replace(" ", "\0") for one in told) or "no message"
    head = f"round {number}: "
    lines = textwrap.wrap(text, max(view.width - len(head), 20), break_long_words=False, break_on_hyphens=False)
    return [((head if not k else " " * len(head)) + line).replace("\0", " ") for k, line in enumerate(lines)]


def brief(film: Film, view: View) -> str:
    """Return a line for each round: messages, pieces that moved, ranks that are done."""
    wanted = [{(b, s) for b in film.wanted(r) for s in range(film.segments)} for r in range(film.size)]
    rows = []
    for number in [k + 1 for k in chosen("round", view.rounds, film.rounds)] or range(1, film.rounds + 1):
        frame = film.frames[number]
        done = [sum(held[p].complete for p in ps if p in held) for held, ps in zip(frame.held, wanted, strict=True)]
        carried = sum(len(arrow.pieces) for arrow in frame.arrows)
        ready = sum(have == len(pieces) for have, pieces in zip(done, wanted, strict=True))
        rows.append(
            f"round {number - 1:>3}: {len(frame.arrows):>4} messages, {carried:>5} blocks; "
            f"complete {sum(done):>4} of {sum(map(len, wanted))}, on {ready} of {film.size} ranks"
        )
    return "\n".join(rows)


def draw_before_and_after(row: Collective, size: int, root: int = 0) -> str:
    """Return what each rank has before and after a collective: a row a rank, a column a block."""
    blocks = FREE_BLOCKS if row.free else row.blocks(size)
    film = before_and_after(row, size, root, blocks)
    labels = _labels(film, range(size))
    columns = [["rank".ljust(len(labels[0])), " " * len(labels[0]), *labels]]
    for title, frame in zip(("before", "after"), film.frames, strict=True):
        cells = [[_content(film, held.get(p, Held()), p) for p in film.pieces] for held in frame.held]
        if row.name == "alltoall":
            cells = [[cell for cell in line if cell != "."] for line in cells]
        columns.append(_table(film, title, cells, range(size)))
    return "\n".join(GAP.join(parts).rstrip() for parts in zip(*columns, strict=True))


def meaning(row: Collective) -> str:
    """Return what the cells of `draw_before_and_after` are."""
    if row.name == "alltoall":
        return "13 is the block that rank 1 has for rank 3"
    if row.reducing or row.idempotent:
        return "a cell is the ranks whose blocks are combined in it; columns are blocks"
    return "a cell is a block's number; a dot is nothing"


def _content(film: Film, held: Held, piece: Piece) -> str:
    """Return a block by its number, or by the ranks that are in it."""
    if not held.values:
        return "."
    return ranks_text(held.values[0], film.size) if made_of_ranks(film) else block_name(film, piece[0])


def legend(film: Film, view: View) -> str:
    """Return what the marks mean, in this view of this film."""
    form = fitted_cells(film, view.width, chosen("rank", view.ranks, film.size) or range(film.size))[0]
    lines = [f"13: the block of rank 1 for rank 3, where it is now   1{COMPLETE}: it has arrived"]
    if form != "slots":
        what = "o: here, not (yet) in its place"
        if form in ("full", "counts") and made_of_ranks(film):
            what = "else: the ranks that are in it" if form == "full" else "else: how many ranks are in it"
        lines = [f"{COMPLETE} complete, in the output   . not here   {what}"]
    if form == "shares":
        lines = [f"3 {COMPLETE} 5: 3 blocks complete; 5 values of one rank each are in all that is here"]
    if form == "full" and made_of_ranks(film) and film.size > 3:
        last = digit(film.size - 1)
        lines.append(f"0-2: ranks 0 to 2   {last}-1: {last}, round the end, to 1   01|23: two values, apart")
    elif form == "counts" and made_of_ranks(film):
        lines.append("3: a value of 3 ranks   3+: several values, of 3 ranks together, not combined")
    letters = f"   a: rank 10{', b: 11 ...' if film.size > 11 else ''}" if film.size > 10 else ""
    if film.size > 1:
        lines.append(f"0>1 {_example(film)}: rank 0 sends it to rank 1{letters}")
    return "\n".join(lines)


def _example(film: Film) -> str:
    name = piece_name(film, (min(1, film.blocks - 1), min(1, film.segments - 1)))
    return f"{name}:01" if made_of_ranks(film) else name


def chosen(what: str, numbers: Sequence[int], count: int) -> Sequence[int]:
    """Return numbers of ranks or rounds; raises ValueError for one that does not exist."""
    wrong = next((n for n in numbers if not 0 <= n < count), None)
    if wrong is not None:
        raise ValueError(f"there is no {what} {wrong}; they are 0 to {count - 1}")
    return numbers


def _labels(film: Film, ranks: Sequence[int]) -> list[str]:
    """Return the names of the rows; the first rank of a host has the host's."""
    many = len(set(film.hosts)) > 1
    names = []
    for rank in ranks:
        root = "*" if film.row.rooted and rank == film.root else " "
        first = many and (rank == 0 or film.hosts[rank] != film.hosts[rank - 1])
        host = (f"host {film.hosts[rank]}" if first else "").ljust(8) if many else ""
        names.append(f"{host}{rank:>3}{root}")
    return names


Cells = list[list[str]]


def fitted_cells(film: Film, width: int, ranks: Sequence[int]) -> tuple[str, list[Cells]]:
    """Return (their form, the texts of all cells of all frames): in full if each table fits, else shorter."""
    room = width - len(_labels(film, ranks)[-1]) - len(GAP)
    if film.row.name == "alltoall":
        return "slots", [_slots(film, frame, ranks, room) for frame in film.frames]
    for form, text in (("full", _in_full), ("counts", _as_count)):
        found = _texts(film, text)
        if _width(found) <= room:
            return form, found
    found = _texts(film, _as_mark)
    if _width(found) <= room:
        return "marks", found
    return "shares", [[[_as_share(film, held)] for held in frame.held] for frame in film.frames]


def _texts(film: Film, text: Callable[[Film, Held], str]) -> list[Cells]:
    return [[[text(film, held.get(p, Held())) for p in film.pieces] for held in f.held] for f in film.frames]


def _width(cells: list[Cells]) -> int:
    """Return the columns of the widest table."""
    return max(sum(max(map(len, column)) + 1 for column in zip(*rows, strict=True)) for rows in cells)


def _in_full(film: Film, held: Held) -> str:
    if held.complete:
        return COMPLETE
    if not held.values:
        return "."
    if not made_of_ranks(film):
        return "o"
    return "|".join(ranks_text(value, film.size) for value in held.values)


def _as_count(film: Film, held: Held) -> str:
    if held.complete or not held.values or not made_of_ranks(film):
        return _in_full(film, held)
    together = sum(value.bit_count() for value in held.values)
    return f"{together}+" if len(held.values) > 1 else str(together)


def _as_mark(film: Film, held: Held) -> str:
    return COMPLETE if held.complete else "o" if held.values else "."


def _as_share(film: Film, held: dict[Piece, Held]) -> str:
    """Return how many pieces are complete, and how many ranks' values are in what is here of all."""
    done = sum(one.complete for one in held.values())
    inside = sum(value.bit_count() for one in held.values() for value in one.values)
    return f"{done} {COMPLETE} {inside}"


def _slots(film: Film, frame: Frame, ranks: Sequence[int], room: int) -> Cells:
    """Return each rank's blocks of an alltoall, as many cells in each row."""
    rows = []
    wide = 5 if film.segments > 1 else 3
    for rank, held in enumerate(frame.held):
        names = [_slot(film, held[piece], piece) for piece in sorted(held)]
        if rank in ranks and wide * len(names) > room:
            names = [*names[: room // wide - 5], f"... {len(names)} blocks"]
        rows.append(names)
    most = max(map(len, rows))
    return [[*names, *[""] * (most - len(names))] for names in rows]


def _slot(film: Film, held: Held, piece: Piece) -> str:
    """Return a block of an alltoall by its source and target, or by its source and the mark once it has arrived."""
    name = f"{digit(ends_of(film, piece[0])[0])}{COMPLETE}" if held.complete else block_name(film, piece[0])
    return f"{name}.{piece[1]}" if film.segments > 1 else name


def _table(film: Film, title: str, cells: Cells, ranks: Sequence[int]) -> list[str]:
    """Return the lines of one table, all of one length: its title, the names of the columns, the rows.

    Args:
        film: that it is of.
        title: the first line.
        cells: the texts, by rank.
        ranks: the rows.
    """
    heads = _heads(film, len(cells[0]))
    widths = [max(len(row[k]) for row in (heads, *cells)) for k in range(len(heads))]
    lines = [heads, *(cells[r] for r in ranks)]
    rows = [" ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) for line in lines]
    wide = max(len(title), *map(len, rows))
    return [line.ljust(wide) for line in (title, *rows)]


def _heads(film: Film, columns: int) -> list[str]:
    if film.row.name == "alltoall":
        return [""] * columns
    names: list[str] = []
    if columns != len(film.pieces):
        return [""]
    for block, segment in film.pieces:
        names.append(digit(segment if film.blocks == 1 else block) if not segment or film.blocks == 1 else "")
    return [name.rstrip(",") for name in names]


def _rows(tables: list[list[str]], room: int) -> list[slice]:
    """Return which tables stand side by side."""
    rows: list[slice] = []
    first, used = 0, 0
    for place, table in enumerate(tables):
        wide = len(table[0]) + len(GAP)
        if place > first and used + wide > room:
            rows.append(slice(first, place))
            first, used = place, 0
        used += wide
    return [*rows, slice(first, len(tables))]
