"""A film as SVG: the tables of all rounds side by side, in as many rows as they need, and a legend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mpicoll.pictures.boxes import Tables, tables, tables_before_and_after
from mpicoll.pictures.drawing import Drawing
from mpicoll.pictures.film import Film
from mpicoll.pictures.legend import after_sentence, draw_legend, legend
from mpicoll.pictures.panel import HOST_GAP, TOP, Grid, draw_arrows, draw_table, grid
from mpicoll.schedule.collectives import Collective

#: pixels of a picture's width, unless one panel needs more; of its margin
WIDTH, MARGIN = 1320.0, 16.0
#: of the names of ranks, and of hosts; between two rows of panels
NAMES, HOSTS, ROWS = 58.0, 22.0, 18.0
#: boxes that a reader and a browser can still bear
MOST_BOXES = 100_000


def film_svg(film: Film, frames: Sequence[int] | None = None, title: str = "") -> str:
    """Return the picture of a film.

    Args:
        film: that is drawn.
        frames: numbers of the frames: 0 is the start, k+1 the end of round k; all if not given.
        title: collective, algorithm, ranks.

    Raises:
        ValueError: a frame does not exist, or there is too much to draw.
    """
    chosen = range(len(film.frames)) if frames is None else frames
    wrong = next((n for n in chosen if not 0 <= n < len(film.frames)), None)
    if wrong is not None:
        raise ValueError(f"there is no frame {wrong}; they are 0 to {len(film.frames) - 1}")
    return _Picture(film, tables(film)).svg([_Panel(n, n > 0) for n in chosen], title)


def step_svgs(film: Film) -> list[str]:
    """Return a picture for each frame: the table before, the messages, the table after; they share a style sheet."""
    picture = _Picture(film, tables(film), gutter=150.0)
    steps = [[_Panel(0, False)], *([_Panel(n - 1, False), _Panel(n, True)] for n in range(1, len(film.frames)))]
    return [picture.svg(panels, "", whole=False) for panels in steps]


def before_after_svg(row: Collective, size: int, root: int = 0) -> str:
    """Return the picture of what each rank has before and after a collective."""
    film, found = tables_before_and_after(row, size, root)
    picture = _Picture(film, found, gutter=110.0)
    of = f", root {root}" if row.rooted else ""
    return picture.svg([_Panel(0, False), _Panel(1, False)], f"{row.name} on {size} ranks{of}", kind="states")


@dataclass(frozen=True)
class _Panel:
    """A frame to draw, with or without its messages."""

    frame: int
    messages: bool


class _Picture:
    """A film's picture: the same grid for all panels."""

    def __init__(self, film: Film, found: Tables, gutter: float = 0.0) -> None:
        self.film, self.found = film, found
        count = sum(len(row) for rows in found.rows for row in rows)
        if count > MOST_BOXES:
            raise ValueError(f"a picture of {count} boxes is too large; draw fewer ranks or rounds")
        texts = max([len(box.text) for rows in found.rows for row in rows for box in row if box] + [1])
        self.grid: Grid = grid(film, found.columns, texts, gutter)
        self.many_hosts = len(set(film.hosts)) > 1
        self.names = NAMES + (HOSTS if self.many_hosts else 0.0)

    def svg(self, panels: Sequence[_Panel], title: str, kind: str = "film", whole: bool = True) -> str:
        """Return the picture of some panels.

        Args:
            panels: in order.
            title: above them.
            kind: "film", or "states" for what is before and after.
            whole: with title, legend and style sheet.
        """
        drawing = Drawing()
        width, y = 0.0, MARGIN
        if title:
            drawing.text(MARGIN, y + 14, title, class_="head")
            y += 30
        for row in self._wrapped(panels):
            width = max(width, self._draw_row(drawing, row, y, kind))
            y += self.grid.bottom + ROWS
        if whole:
            lines = after_sentence(self.film) if kind == "states" else []
            marks = legend(self.film, self.found.columns.slivers > 1, kind)
            width = max(width, draw_legend(drawing, lines, marks, MARGIN, y) + MARGIN, MARGIN * 2 + 9.5 * len(title))
            y += 20.0 * (len(lines) + len(marks))
        return drawing.svg(width, y + MARGIN / 2, title or f"{self.film.row.name}, {self._name(panels[-1])}", whole)

    def _wrapped(self, panels: Sequence[_Panel]) -> list[list[_Panel]]:
        """Return which panels stand side by side."""
        rows: list[list[_Panel]] = []
        used = 0.0
        for panel in panels:
            wide = self.grid.gutter + self.grid.table
            if not rows or used + wide > WIDTH:
                rows.append([])
                used = MARGIN * 2 + self.names
            rows[-1].append(panel)
            used += wide
        return rows

    def _draw_row(self, drawing: Drawing, row: Sequence[_Panel], y: float, kind: str) -> float:
        """Draw panels side by side; return how wide they are.

        Args:
            drawing: that they are added to.
            row: the panels.
            y: of their upper side.
            kind: "film" or "states".
        """
        x = MARGIN + self.names
        self._draw_names(drawing, x, y)
        for place, panel in enumerate(row):
            with drawing.group(class_="frame"):
                if panel.messages:
                    draw_arrows(drawing, self.film, self.film.frames[panel.frame], self.grid, x, y)
                if panel.messages or place:
                    x += self.grid.gutter
                self._draw_hosts(drawing, x, y)
                self._draw_heads(drawing, x, y, self._name(panel) if kind == "film" else ("before", "after")[place])
                draw_table(drawing, self.grid, self.found.rows[panel.frame], x, y)
                if kind == "states" and not place:
                    middle = y + (self.grid.tops[0] + self.grid.bottom) / 2
                    start = x + self.grid.table
                    drawing.arrow((start + 12, middle), (start + self.grid.gutter - 12, middle), ["#555555"] * 2)
                    name = self.film.row.name
                    drawing.text(start + self.grid.gutter / 2, middle - 8, name, "middle", class_="strong")
            x += self.grid.table
        return x + MARGIN

    def _name(self, panel: _Panel) -> str:
        return f"round {panel.frame - 1}" if panel.frame else "start"

    def _draw_heads(self, drawing: Drawing, x: float, y: float, name: str) -> None:
        drawing.text(x, y + 12, name, class_="strong")
        groups = self.found.columns.groups
        for column, group in zip((0, self.found.columns.first), groups, strict=False):
            drawing.text(x + self.grid.left(column), y + 25, group, class_="soft")

    def _draw_names(self, drawing: Drawing, x: float, y: float) -> None:
        """Draw the ranks' names at the left of a row of panels, the root's on dark."""
        drawing.text(x - 10, y + TOP - 8, "rank", "end", class_="soft")
        for rank in range(self.film.size):
            middle = y + self.grid.middle(rank)
            if self.film.row.rooted and rank == self.film.root:
                drawing.rect(x - 54, middle - 9, 49, 18, rx=4, fill="#222222", class_="root")
                drawing.text(x - 10, middle + 4, f"root {rank}", "end", fill="#ffffff", class_="strong")
            else:
                drawing.text(x - 10, middle + 4, str(rank), "end", class_="strong")
            first = not rank or self.film.hosts[rank] != self.film.hosts[rank - 1]
            if self.many_hosts and first:
                drawing.text(MARGIN, middle + 4, f"h{self.film.hosts[rank]}", class_="strong soft")

    def _draw_hosts(self, drawing: Drawing, x: float, y: float) -> None:
        """Draw a box around the rows of each host, if there are several."""
        if not self.many_hosts:
            return
        hosts = self.film.hosts
        first = 0
        for rank in range(1, len(hosts) + 1):
            if rank == len(hosts) or hosts[rank] != hosts[first]:
                top, bottom = self.grid.tops[first], self.grid.tops[rank - 1] + self.grid.high
                edge = HOST_GAP / 2 - 2
                box = x - edge, y + top - edge, self.grid.table + 2 * edge, bottom - top + 2 * edge
                drawing.rect(*box, rx=4, fill="#eef2f7", stroke="#5b6b7d", class_="host")
                first = rank
