"""Fills the generated blocks of pages that are written by hand.

    <!-- output: show bcast ring --size 4 -->                   what `python -m mpicoll show ...` prints
    <!-- output: show bcast ring --size 4; until: rank 0: -->   the same, up to the line that begins so
    <!-- table: broadcasts -->                                  a table of docs/tables.py
    <!-- picture: ring.svg -->                                  a picture of docs/pictures.py, once it is made
    ...
    <!-- end -->

What is between the marker and `<!-- end -->` is written anew by `make docs`; the markers stay.
"""

from __future__ import annotations

import io
import os
import re
import shlex
from contextlib import redirect_stdout
from unittest import mock

from mpicoll.__main__ import main
from pictures import PICTURES
from tables import TABLES

MARKER = r"<!-- (output|table|picture): ([^\n]*?) -->\n"
BLOCK = re.compile(f"({MARKER}).*?<!-- end -->", re.DOTALL)


def filled(page: str) -> str:
    """Return a page with all its blocks written anew; raises ValueError where one does not end."""
    if len(re.findall(MARKER, page)) != len(BLOCK.findall(page)):
        raise ValueError("a generated block has no `<!-- end -->`")
    return BLOCK.sub(lambda found: f"{found[1]}{CONTENT[found[2]](found[3])}<!-- end -->", page)


def _output(text: str) -> str:
    command, _, until = text.partition("; until: ")
    return f"```text\n$ python -m mpicoll {command}\n{shown(command, until)}```\n"


def shown(command: str, until: str = "") -> str:
    """Return what a command of `python -m mpicoll` prints, 80 columns wide and without colours.

    Args:
        command: its arguments.
        until: the first line that begins so, and all after it, are left out; empty: none.

    Raises:
        ValueError: the command fails, or no line begins so.
    """
    printed = io.StringIO()
    with mock.patch.dict(os.environ, COLUMNS="80", NO_COLOR="1"), redirect_stdout(printed):
        status = main(shlex.split(command))
    text = "".join(f"{line.rstrip()}\n" for line in printed.getvalue().rstrip().splitlines())
    before, found, _ = text.partition(f"\n{until}")
    if status or (until and not found):
        raise ValueError(f"python -m mpicoll {command}: " + (f"status {status}" if status else f"no line {until!r}"))
    return f"{before.rstrip()}\n...\n" if until else text


def _table(name: str) -> str:
    return f"\n{TABLES[name]()}\n\n"


def _picture(name: str) -> str:
    return f"\n![python -m mpicoll {PICTURES[name]}](pictures/{name})\n\n" if name in PICTURES else ""


CONTENT = {"output": _output, "table": _table, "picture": _picture}
