"""Tables that are printed line by line, as it is measured: the columns' widths are set beforehand."""

from __future__ import annotations

import io
import shutil
from dataclasses import dataclass
from typing import Literal, TypeVar

from rich.console import Console
from rich.table import Table

T = TypeVar("T")

#: characters of a line at least, and of one that goes to no terminal
NARROWEST, NO_TERMINAL = 80, 120


@dataclass(frozen=True)
class Column:
    """A column.

    `Column("size", "(B)", 10)` has "size" above "(B)", both at the right of 10 characters.

    Attributes:
        name: in the first line of the head.
        unit: in the second one.
        width: characters; a longer cell moves the rest of its line.
        justify: "left", "right" or "center".
        spare: the higher, the earlier it is left out of a table that is too wide; 0 is never left out.
    """

    name: str
    unit: str = ""
    width: int = 10
    justify: Literal["left", "right", "center"] = "right"
    spare: int = 0


class Columns:
    """The columns of a table; the first one's name and unit begin with "#", as all lines that are no rows.

    Args:
        columns: all of them; a row has a cell for each.
        hidden: those that are left out.
    """

    def __init__(self, *columns: Column, hidden: frozenset[int] = frozenset()) -> None:
        self.columns, self.hidden = columns, hidden

    def fitted(self, width: int) -> Columns:
        """Return the columns of which enough are left out for a line of so many characters, as far as that goes."""
        hidden = set[int]()
        spare = sorted((place for place, one in enumerate(self.columns) if one.spare), key=self._spare, reverse=True)
        while self._width(hidden) > width and spare:
            hidden.add(spare.pop(0))
        return Columns(*self.columns, hidden=frozenset(hidden))

    def _spare(self, place: int) -> int:
        return self.columns[place].spare

    def _width(self, hidden: set[int]) -> int:
        shown = [one for place, one in enumerate(self.columns) if place not in hidden]
        return sum(max(one.width, len(one.name), len(one.unit)) + 1 for one in shown) - 1

    @property
    def left_out(self) -> list[str]:
        """Names of the columns that are left out, with the unit where another one that is shown has the name."""
        shown = {one.name for place, one in enumerate(self.columns) if place not in self.hidden}
        left = [one for place, one in enumerate(self.columns) if place in self.hidden]
        return [f"{one.name} {one.unit}".strip() if one.name in shown else one.name.strip() for one in left]

    def head(self) -> list[str]:
        """Return the lines of the head: the names, and the units."""
        return self._lines(show_header=True)

    def line(self, *cells: str) -> str:
        """Return the line of a row."""
        (line,) = self._lines(*cells)
        return line

    def _lines(self, *cells: str, show_header: bool = False) -> list[str]:
        """Return rich's lines of a table with a head and no row, or with a row and no head."""
        table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), show_header=show_header)
        for one in self._shown(self.columns):
            name = f"{one.name}\n{one.unit}"
            table.add_column(name, justify=one.justify, min_width=one.width, no_wrap=True)
        if cells:
            table.add_row(*self._shown(cells))
        console = Console(file=io.StringIO(), width=1000, color_system=None, markup=False, highlight=False, emoji=False)
        with console.capture() as captured:
            console.print(table)
        return [line.rstrip() for line in captured.get().splitlines()]

    def _shown(self, parts: tuple[T, ...]) -> list[T]:
        """Return those of the parts, one for each column, whose columns are not left out."""
        return [part for place, part in enumerate(parts) if place not in self.hidden]


def line_width() -> int:
    """Return the characters of a line on this terminal, or in what is none."""
    return max(shutil.get_terminal_size((NO_TERMINAL, 24)).columns, NARROWEST)


def micro(seconds: float) -> str:
    """Write microseconds with at least four digits."""
    value = seconds * 1e6
    return f"{value:.{2 if value < 100 else 1 if value < 10_000 else 0}f}"
