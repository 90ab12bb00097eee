"""Meanings of a picture's marks, drawn below it, and sentences that say what a collective does."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mpicoll.pictures.boxes import box_text, piece_colour
from mpicoll.pictures.colours import ink, palette, tint
from mpicoll.pictures.drawing import Drawing
from mpicoll.pictures.film import Film, Piece
from mpicoll.pictures.notation import digit, ends_of, piece_name, ranks_text

#: a symbol at (x, y), and its meaning
Mark = tuple[Callable[[Drawing, float, float], None], str]
#: pixels: of a symbol, of a line
SYMBOL, LINE = 58.0, 20.0
#: pixels of a character of a line of text
CHARACTER = 6.0

SENTENCES = {
    "barrier": "No rank goes on before all have come: at the end each knows of all ranks.",
    "bcast": "All ranks get the root's blocks.",
    "reduce": "The root gets the blocks of all ranks combined, such as their sum.",
    "allreduce": "All ranks get the blocks of all ranks combined, such as their sum.",
    "gather": "The root gets every rank's block.",
    "scatter": "Each rank gets one of the root's blocks.",
    "allgather": "All ranks get every rank's block.",
    "reduce_scatter": "Each rank gets one block, combined from all ranks, such as their sum.",
    "alltoall": "Each rank has a block for every rank; rows become columns.",
    "scan": "Rank r gets the blocks of ranks 0 to r combined, such as their sum.",
    "exscan": "Rank r gets the blocks of the ranks before it combined, such as their sum; rank 0 gets nothing.",
}


def after_sentence(film: Film) -> list[str]:
    """Return what the collective does, in a sentence."""
    return [SENTENCES[film.row.name]]


def legend(film: Film, slivers: bool, kind: str) -> list[Mark]:
    """Return the marks that a film's picture has.

    Args:
        film: that is drawn.
        slivers: boxes show which ranks are in them.
        kind: "film", or "states" for what is before and after.
    """
    marks: list[Mark] = [_ranks_in(film)] if slivers else [_name(film)]
    if slivers and kind == "film" and any(len(h.values) > 1 for f in film.frames for r in f.held for h in r.values()):
        marks.append((_two_values, "values of a block, not combined yet, one below the other"))
    if kind == "film":
        marks += [
            (_new, "has arrived in this round"),
            (_complete, "complete: in its place in the output"),
            (
                _message,
                "message, in the colours of what it carries, grey for many; a rank sends one in a round at most",
            ),
        ]
        if slivers:
            marks.append(_label(film))
        if len(set(film.hosts)) > 1:
            marks.append((_far, "message between hosts; a box around rows, h0: ranks of host 0"))
    return marks


def draw_legend(drawing: Drawing, lines: Sequence[str], marks: Sequence[Mark], x: float, y: float) -> float:
    """Draw sentences and marks; return where the longest ends.

    Args:
        drawing: that they are added to.
        lines: sentences above the marks.
        marks: what is explained.
        x: left side.
        y: upper side.
    """
    right = x
    for line in lines:
        drawing.text(x, y + 13, line, class_="strong")
        right = max(right, x + (CHARACTER + 1) * len(line))
        y += LINE
    for symbol, meaning in marks:
        symbol(drawing, x, y + 2)
        drawing.text(x + SYMBOL, y + 13, meaning)
        right = max(right, x + SYMBOL + CHARACTER * len(meaning))
        y += LINE
    return right


def _ranks_in(film: Film) -> Mark:
    pair = "rank 0" if film.size == 1 else "ranks 0 and 1"

    def draw(drawing: Drawing, x: float, y: float) -> None:
        colour = palette(1)[0]
        drawing.rect(x, y, 44, 15, fill=tint(colour), stroke="#b5b5b5")
        for k in range(min(2, film.size)):
            drawing.rect(x + 11 * k + 0.5, y, 10, 15, fill=colour)
            drawing.text(x + 11 * k + 5.5, y + 12, str(k), "middle", fill="#ffffff")

    return draw, f"a block (column); its filled parts are the ranks that are in it: here {pair} of {film.size}"


def _example(film: Film) -> Piece:
    """Return the piece of which the legend speaks."""
    return min(1, film.blocks - 1), min(1, film.segments - 1)


def _example_words(film: Film) -> str:
    block, segment = _example(film)
    if film.segments == 1:
        return f"block {block}"
    return f"segment {segment}" + (f" of block {block}" if film.blocks > 1 else "")


def _name(film: Film) -> Mark:
    piece = _example(film)

    def draw(drawing: Drawing, x: float, y: float) -> None:
        colour = piece_colour(film, piece)
        drawing.rect(x, y, 34, 15, fill=colour)
        drawing.text(x + 17, y + 12, box_text(film, piece), "middle", fill=ink(colour))

    if film.row.name == "alltoall":
        source, target = ends_of(film, piece[0])
        return (
            draw,
            f"the block from rank {source}, whose colour it has, to rank {target}; where narrow only {target}",
        )
    return draw, f"{_example_words(film)}, on the rank of this row"


def _label(film: Film) -> Mark:
    """Return the mark of the text at an arrow."""
    last = film.size - 1
    around = f"; {ranks_text(1 << last | 3, film.size)}: ranks {last}, 0 and 1, round the end" if last > 2 else ""
    letters = f"; a: rank 10, {digit(last)}: rank {last}" if last > 10 else "; a: rank 10" if last == 10 else ""

    def draw(drawing: Drawing, x: float, y: float) -> None:
        drawing.text(x, y + 11, f"{piece_name(film, _example(film))}:{'01'[: film.size]}", class_="mono")

    who = "ranks 0 and 1" if last else "rank 0"
    return draw, f"{_example_words(film)}, with {who} in it{around}{letters}"


def _two_values(drawing: Drawing, x: float, y: float) -> None:
    colour = palette(1)[0]
    drawing.rect(x, y, 44, 15, fill=tint(colour), stroke="#b5b5b5")
    drawing.rect(x, y, 11, 7, fill=colour)
    drawing.rect(x + 11, y + 8, 11, 7, fill=colour)


def _new(drawing: Drawing, x: float, y: float) -> None:
    drawing.rect(x + 1, y + 1, 32, 13, fill="none", stroke="#111", stroke_width=2.4)


def _complete(drawing: Drawing, x: float, y: float) -> None:
    drawing.path(f"M{x + 12} {y + 8}l3 3l6 -8", fill="none", stroke="#1a1a1a", stroke_width=2)


def _message(drawing: Drawing, x: float, y: float) -> None:
    drawing.arrow((x, y + 7), (x + 44, y + 7), palette(1))


def _far(drawing: Drawing, x: float, y: float) -> None:
    drawing.arrow((x, y + 7), (x + 44, y + 7), palette(1), stroke_dasharray="5 3")
