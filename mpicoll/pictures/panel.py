"""A panel: the table of one frame, with the messages that lead to it drawn at its left.

    rank     b0  b1  b2  b3
    0 --.   [  ][  ][  ][  ]
    1    `->[  ][  ][  ][  ]

An arrow leaves the row of its source and ends at the row of its target.  The panel before stands at the left, so that
arrows lead from table to table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mpicoll.analysis.values import rank_list
from mpicoll.pictures.boxes import Box, Columns, Rows, piece_colour
from mpicoll.pictures.colours import MIXED, ink, tint
from mpicoll.pictures.drawing import Drawing, number
from mpicoll.pictures.film import Arrow, Film, Frame, Ranks
from mpicoll.pictures.notation import arrow_text, ends_of, numbers_text
from mpicoll.schedule.ir import runs

#: pixels: of the sliver of a rank, of a column's least width, of the space between groups of columns
SLIVER, LEAST, BETWEEN = 14.0, 14.0, 14.0
#: pixels that a table may take before its slivers, or its boxes with names, become narrower
TABLE, NAMES = 280.0, 1000.0
#: smallest font in a box
LEAST_FONT = 7.0
#: narrowest sliver with a rank's number in it
READABLE = 9.0
#: above the rows: title and names of columns; between hosts
TOP, HOST_GAP = 44.0, 12.0
#: most stripes of an arrow
STRIPES = 4
#: pixels of a character of an arrow's text
CHARACTER = 6.1
#: share of the arrows' part that their texts may take
ROOM = 0.46


@dataclass(frozen=True)
class Grid:
    """Where rows and columns are in every panel.

    Attributes:
        columns: of the table.
        wide: pixels of a column.
        high: pixels of a row.
        tops: of each row.
        gutter: pixels of the arrows' part.
        font: pixels of the text in boxes, 0 where it does not fit, and of a block's ends only the target is written.
    """

    columns: Columns
    wide: float
    high: float
    tops: tuple[float, ...]
    gutter: float
    font: float

    def left(self, column: int) -> float:
        """Return a column's left side, from the table's."""
        return column * self.wide + (BETWEEN if column >= self.columns.first else 0.0)

    def middle(self, row: int) -> float:
        """Return the y of a row's middle."""
        return self.tops[row] + self.high / 2

    @property
    def table(self) -> float:
        """Width of the table."""
        return self.left(len(self.columns.names) - 1) + self.wide

    @property
    def bottom(self) -> float:
        """The y below the last row."""
        return self.tops[-1] + self.high


def grid(film: Film, columns: Columns, texts: int, gutter: float = 0.0) -> Grid:
    """Return where everything is.

    Args:
        film: that is drawn.
        columns: of its tables.
        texts: characters of the longest text in a box.
        gutter: pixels of the arrows' part; by the number of ranks if 0.
    """
    many = len(columns.names)
    sliver = min(SLIVER, max(TABLE / (many * columns.slivers), 2.5))
    wide = max(LEAST, sliver * columns.slivers)
    if columns.slivers == 1:
        wide = min(max(22.0 + 6.0 * texts, 40.0 / many), max(NAMES / many, LEAST))
    font = min(11.0, (wide - 11) / (0.58 * texts))
    high = 28.0 if film.size <= 8 else 22.0
    tops, y = [], TOP
    for rank in range(film.size):
        y += HOST_GAP if rank and film.hosts[rank] != film.hosts[rank - 1] else 0.0
        tops.append(y)
        y += high
    gutter = gutter or (120.0 if film.size <= 8 else 150.0)
    return Grid(columns, wide, high, tuple(tops), gutter, font if font >= LEAST_FONT else 0.0)


def draw_table(drawing: Drawing, where: Grid, rows: Rows, x: float, y: float) -> None:
    """Draw a table.

    Args:
        drawing: that it is added to.
        where: rows and columns are.
        rows: the boxes.
        x: the table's left side.
        y: of the panel's upper side.
    """
    many = len(where.columns.names)
    for column, name in enumerate(where.columns.names):
        if name:
            drawing.text(x + where.left(column) + where.wide / 2, y + TOP - 8, name, "middle", class_="soft")
    empty = "".join(_frame(where, r, c, x, y) for r in range(len(rows)) for c in range(many) if rows[r][c] is None)
    if empty:
        drawing.path(empty, fill="#f7f7f7", stroke="#d0d0d0")
    boxes = [(r, c, box) for r, row in enumerate(rows) for c, box in enumerate(row) if box]
    for row, column, box in boxes:
        _draw_box(drawing, where, box, x + where.left(column), y + where.tops[row])
    new = "".join(_frame(where, row, column, x, y) for row, column, box in boxes if box.new)
    if new:
        drawing.path(new, class_="new", fill="none", stroke="#111", stroke_width=2.4)
    for row, column, box in boxes:
        if box.complete:
            size = min(8.0, where.wide * 0.45)
            drawing.check(x + where.left(column) + where.wide - size - 3, y + where.tops[row] + 3, size)


def _frame(where: Grid, row: int, column: int, x: float, y: float) -> str:
    """Return the path around a box.

    Args:
        where: rows and columns are.
        row: of the box.
        column: of the box.
        x: the table's left side.
        y: of the panel's upper side.
    """
    left, top = number(x + where.left(column)), number(y + where.tops[row])
    return f"M{left} {top}h{number(where.wide)}v{number(where.high)}h-{number(where.wide)}z"


def _draw_box(drawing: Drawing, where: Grid, box: Box, x: float, y: float) -> None:
    """Draw a box without its marks.

    Args:
        drawing: that it is added to.
        where: sizes of rows and columns.
        box: what is drawn.
        x: its left side.
        y: its upper side.
    """
    if not box.values:
        drawing.rect(x, y, where.wide, where.high, fill=box.colour, stroke="#fff")
        off = 4.0 if box.complete and where.wide > 24 else 0.0
        middle, line = x + where.wide / 2 - off, y + where.high / 2 + 4.5
        text = box.text if where.font else box.text.rpartition("→")[2]
        size = {} if where.font == 11.0 else {"style": f"font-size:{number(where.font or LEAST_FONT)}px"}
        drawing.text(middle, line, text, "middle", fill=ink(box.colour), **size)
        return
    drawing.rect(x, y, where.wide, where.high, fill=tint(box.colour), stroke="#b5b5b5")
    high = (where.high - 1) / len(box.values)
    for k, value in enumerate(box.values):
        top = y + 0.5 + k * high
        _draw_value(drawing, value, where.columns.slivers, (x, top, where.wide, high), box.colour)


def _draw_value(
    drawing: Drawing, value: Ranks, slivers: int, room: tuple[float, float, float, float], colour: str
) -> None:
    """Draw which ranks are in a value: a sliver for each, with its number if there is room.

    Args:
        drawing: that it is added to.
        value: the ranks.
        slivers: number of ranks.
        room: left, top, width and height.
        colour: of the block.
    """
    x, y, width, high = room
    sliver = width / slivers
    inner = max(high - 1, 0.8)
    there = rank_list(value)
    gap = 1.0 if sliver >= 4 else 0.0
    spans = [(first, last - first + 1) for first, last in runs(there)] if not gap else [(rank, 1) for rank in there]
    bars = "".join(
        f"M{number(x + first * sliver + gap / 2)} {number(y)}h{number(many * sliver - gap)}"
        f"v{number(inner)}h-{number(many * sliver - gap)}z"
        for first, many in spans
    )
    drawing.path(bars, class_="value", fill=colour)
    if sliver >= READABLE and high >= 12:
        for rank in there:
            middle = x + (rank + 0.5) * sliver
            drawing.text(middle, y + high - 5, str(rank), "middle", class_="digit", fill=ink(colour))


def draw_arrows(drawing: Drawing, film: Film, frame: Frame, where: Grid, x: float, y: float) -> None:
    """Draw the messages of a round between the panel's left side and its table.

    Args:
        drawing: that they are added to.
        film: that they are of.
        frame: the round.
        where: rows are.
        x: the panel's left side.
        y: its upper side.
    """
    texts = [label(film, arrow, where.gutter * ROOM) for arrow in frame.arrows]
    wide = CHARACTER * max(map(len, texts), default=0)
    for arrow, text in zip(frame.arrows, texts, strict=True):
        middle = y + where.middle(arrow.source)
        end = x + where.gutter - 4, y + where.middle(arrow.target)
        far = film.hosts[arrow.source] != film.hosts[arrow.target]
        dashes: dict[str, str | float] = {"stroke_dasharray": "5 3"} if far else {}
        with drawing.group(arrow_text(film, arrow), class_="message"):
            if text:
                drawing.text(x + 7, middle + 3.5, text, class_="mono")
            drawing.arrow((x + 9 + wide, middle), end, stripes(film, arrow), **dashes)


def stripes(film: Film, arrow: Arrow) -> Sequence[str]:
    """Return the colours of what a message carries, one grey for too many."""
    colours = list(dict.fromkeys(piece_colour(film, piece) for piece, _ in arrow.pieces))
    return colours if len(colours) <= STRIPES else [MIXED] * 2


def label(film: Film, arrow: Arrow, room: float) -> str:
    """Return what a message carries, in words that fit into so many pixels."""
    text = _routes(film, arrow) if film.row.name == "alltoall" else arrow_text(film, arrow).partition(" ")[2]
    if len(text) * CHARACTER <= room:
        return text
    short = f"{len(arrow.pieces)} blocks"
    return short if len(short) * CHARACTER <= room else ""


def _routes(film: Film, arrow: Arrow) -> str:
    """Return the blocks of a message in an alltoall, such as "0→1,3 2→1"."""
    targets: dict[int, list[int]] = {}
    for (block, _), _ in arrow.pieces:
        source, target = ends_of(film, block)
        targets.setdefault(source, []).append(target)
    return " ".join(f"{source}→{numbers_text(set(found))}" for source, found in targets.items())
