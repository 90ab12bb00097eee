"""The chart of links and rounds: a row a link that is used, a column a round, a box a message.

A pipeline shows as a staircase, whose steps fill the chart when the vector is cut into many segments.
"""

from __future__ import annotations

from collections.abc import Mapping

from mpicoll.pictures.colours import DARK, ink
from mpicoll.pictures.drawing import Drawing
from mpicoll.pictures.film import Arrow, Film
from mpicoll.pictures.links import link_rows, places_used
from mpicoll.pictures.notation import arrow_text
from mpicoll.pictures.panel import label, stripes

#: pixels: margin, names of links, height of a row, height above the rows
MARGIN, NAMES, HIGH, TOP = 16.0, 56.0, 22.0, 62.0
#: narrowest and widest column of a round, and what all of them should take
LEAST, MOST, ALL = 12.0, 60.0, 1100.0
#: pixels of a character in a box
CHARACTER = 6.2


def chart_svg(film: Film, title: str = "") -> str:
    """Return the chart of a film's messages."""
    links = link_rows(film)
    wide = min(MOST, max(LEAST, ALL / max(film.rounds, 1)))
    drawing = Drawing()
    drawing.text(MARGIN, MARGIN + 14, title or _title(film), class_="head")
    x, y = MARGIN + NAMES, MARGIN + TOP
    _draw_axes(drawing, film, wide, x, y)
    for row, ((source, target), messages) in enumerate(links.items()):
        top = y + row * HIGH
        drawing.text(x - 8, top + HIGH / 2 + 4, f"{source}→{target}", "end", class_="strong")
        drawing.rect(x, top, wide * film.rounds, HIGH, fill="#f7f7f7", stroke="#e0e0e0")
        for number, arrow in messages.items():
            _draw_message(drawing, film, arrow, (x + number * wide, top + 1, wide, HIGH - 2))
    bottom = y + len(links) * HIGH
    drawing.text(MARGIN, bottom + 20, _use(film, links))
    drawing.text(MARGIN, bottom + 38, "A box is a message, in the colour of the block or segment that it carries.")
    width = max(x + wide * film.rounds + MARGIN, 2 * MARGIN + 9.5 * len(title or _title(film)), 480.0)
    return drawing.svg(width, bottom + 38 + MARGIN, title or _title(film))


def _title(film: Film) -> str:
    cut = f", {film.segments} segments" if film.segments > 1 else ""
    return f"Links of {film.row.name} on {film.size} ranks{cut}"


def _draw_axes(drawing: Drawing, film: Film, wide: float, x: float, y: float) -> None:
    """Draw the numbers of the rounds above the rows.

    Args:
        drawing: that they are added to.
        film: the rounds' film.
        wide: pixels of a round.
        x: of the first round's left side.
        y: of the rows' upper side.
    """
    drawing.text(x - 8, y - 6, "link", "end", class_="soft")
    drawing.text(x, y - 22, "round", class_="soft")
    every = 1 if wide >= 18 else 5
    for number in range(0, film.rounds, every):
        drawing.text(x + (number + 0.5) * wide, y - 6, str(number), "middle", class_="soft")


def _draw_message(drawing: Drawing, film: Film, arrow: Arrow, room: tuple[float, float, float, float]) -> None:
    """Draw a message as a box with a stripe for each colour.

    Args:
        drawing: that it is added to.
        film: that it is of.
        arrow: the message.
        room: left, top, width and height.
    """
    x, y, width, height = room
    colours = stripes(film, arrow)
    with drawing.group(arrow_text(film, arrow), class_="message"):
        for k, colour in enumerate(colours):
            drawing.rect(x + 1, y + k * height / len(colours), width - 2, height / len(colours), fill=colour)
        text = label(film, arrow, width - 4) or _short(film, arrow, width - 4)
        if text:
            colour, kind = (ink(colours[0]), "mono") if len(colours) == 1 else (DARK, "mono halo")
            drawing.text(x + width / 2, y + height / 2 + 4, text, "middle", fill=colour, class_=kind)


def _short(film: Film, arrow: Arrow, room: float) -> str:
    """Return the number of the only piece that a message carries, or of its pieces, if it fits."""
    block, segment = arrow.pieces[0][0]
    alone = len(arrow.pieces) == 1 and film.row.name != "alltoall"
    text = (str(segment) if film.blocks == 1 else f"b{block}") if alone else f"{len(arrow.pieces)}x"
    return text if len(text) * CHARACTER <= room else ""


def _use(film: Film, links: Mapping[tuple[int, int], dict[int, Arrow]]) -> str:
    busy, places = places_used(film, links)
    return f"{busy} of {places} places hold a message: links are in use for {busy / max(places, 1):.0%} of the time."
