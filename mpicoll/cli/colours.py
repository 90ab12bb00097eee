"""Colours of pictures in a terminal: blocks by their number or first rank, what is complete, what is not there."""

from __future__ import annotations

import os
import re
import sys

#: colours of blocks, by the first character of their cell
PALETTE = ("cyan", "yellow", "magenta", "blue", "red", "bright_cyan", "bright_yellow", "bright_magenta")
#: a row of a rank: its label, then cells
ROW = re.compile(r"^(?:host \d+)?\s*\d+[* ] {2,}")
CELL = re.compile(r"\S+")


def print_picture(text: str) -> None:
    """Print a picture, in colours where the output is a terminal and NO_COLOR is not set."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        print(text)
        return
    from rich.console import Console
    from rich.text import Text

    coloured = Text(text)
    start = 0
    for line in text.split("\n"):
        for first, last, style in styles(line):
            coloured.stylize(style, start + first, start + last)
        start += len(line) + 1
    Console(soft_wrap=True).print(coloured)


def styles(line: str) -> list[tuple[int, int, str]]:
    """Return (first column, column after the last, style) of what is coloured in a line."""
    row = ROW.match(line)
    if not row:
        titles = re.finditer(r"\b(?:start|round \d+|before|after)\b", line)
        return [(title.start(), title.end(), "bold") for title in titles]
    return [(m.start(), m.end(), _style(m.group())) for m in CELL.finditer(line, row.end())]


def _style(cell: str) -> str:
    if cell.endswith("✓"):
        return "bold green"
    if cell == ".":
        return "dim"
    return PALETTE[int(cell[0], 36) % len(PALETTE)] if cell[0].isalnum() else ""
