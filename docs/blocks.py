"""Fills the generated blocks of pages that are written by hand.

    <!-- output: show bcast ring/4 -->                        what `python -m mpicoll show ...` prints
    <!-- output: show bcast ring/4; from: bcast ring on -->   the same from the line on that begins so
    <!-- table: broadcasts -->                                a table of docs/tables.py
    <!-- picture: bcast.svg -->                               a picture of docs/pictures.py, once it is made
    <!-- claims: README -->                                   claims of docs/performance/claims.py that README quotes
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
from performance.page import quoted
from pictures import PICTURES, PLOTS
from tables import TABLES

MARKER = r"<!-- (output|table|picture|claims): ([^\n]*?) -->\n"
BLOCK = re.compile(f"({MARKER}).*?<!-- end -->", re.DOTALL)


def filled(page: str) -> str:
    """Return a page with all its blocks written anew; raises ValueError where one does not end."""
    if len(re.findall(MARKER, page)) != len(BLOCK.findall(page)):
        raise ValueError("a generated block has no `<!-- end -->`")
    return BLOCK.sub(lambda found: f"{found[1]}{CONTENT[found[2]](found[3])}<!-- end -->", page)


def _output(text: str) -> str:
    command, _, start = text.partition("; from: ")
    return f"```text\n$ python -m mpicoll {command}\n{shown(command, start)}```\n"


def shown(command: str, start: str = "") -> str:
    """Return what a command of `python -m mpicoll` prints, 80 columns wide and without colours.

    Args:
        command: its arguments.
        start: lines before the first that begins so are left out.

    Raises:
        ValueError: the command fails, or no line begins so.
    """
    printed = io.StringIO()
    with mock.patch.dict(os.environ, COLUMNS="80", NO_COLOR="1"), redirect_stdout(printed):
        status = main(shlex.split(command))
    lines = [line.rstrip() for line in printed.getvalue().rstrip().splitlines()]
    first = next((k for k, line in enumerate(lines) if line.startswith(start)), None)
    if status or first is None:
        raise ValueError(f"python -m mpicoll {command}: status {status}, no line {start!r}")
    return "\n".join([*["..."][:first], *lines[first:], ""])


def _table(name: str) -> str:
    return f"\n{TABLES[name]()}\n\n"


def _picture(name: str) -> str:
    return f"\n![python -m mpicoll {(PICTURES | PLOTS)[name]}](pictures/{name})\n\n"


def _claims(_page: str) -> str:
    return f"\n{quoted()}\n\n"


CONTENT = {"output": _output, "table": _table, "picture": _picture, "claims": _claims}
