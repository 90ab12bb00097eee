"""Tables that are printed line by line, as it is measured: the columns' widths are set beforehand."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Literal

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Column:
    """A column.

    `Column("size", "(B)", 10)` has "size" above "(B)", both at the right of 10 characters.

    Attributes:
        name: in the first line of the head.
        unit: in the second one.
        width: characters; a longer cell moves the rest of its line.
        justify: "left", "right" or "center".
    """

    name: str
    unit: str = ""
    width: int = 10
    justify: Literal["left", "right", "center"] = "right"


class Columns:
    """The columns of a table; the first one's name and unit begin with "#", as all lines that are no rows."""

    def __init__(self, *columns: Column) -> None:
        self.columns = columns

    def head(self) -> list[str]:
        """Return the lines of the head: the names, and the units."""
        return self._lines(show_header=True)

    def line(self, *cells: str) -> str:
        """Return the line of a row."""
        (line,) = self._lines(*cells)
        return line

    def merged(self, *groups: tuple[int, str]) -> str:
        """Return a line above the head: each text stands over so many columns, in their middle."""
        columns: list[Column] = []
        left = list(self.columns)
        for number, text in groups:
            width = sum(column.width for column in left[:number]) + number - 1
            columns.append(Column(text, "", width, "center" if columns else "left"))
            del left[:number]
        return Columns(*columns).head()[0]

    def _lines(self, *cells: str, show_header: bool = False) -> list[str]:
        """Return rich's lines of a table with a head and no row, or with a row and no head."""
        table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), show_header=show_header)
        for one in self.columns:
            name = f"{one.name}\n{one.unit}"
            table.add_column(name, justify=one.justify, min_width=one.width, no_wrap=True)
        if cells:
            table.add_row(*cells)
        console = Console(file=io.StringIO(), width=1000, color_system=None, markup=False, highlight=False, emoji=False)
        with console.capture() as captured:
            console.print(table)
        return [line.rstrip() for line in captured.get().splitlines()]
