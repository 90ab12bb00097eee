"""The user's tuning tables on disk: one file for each machine."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from mpicoll.dispatch.machine_facts import MachineFacts
from mpicoll.dispatch.table import Table, merged, parse_table
from mpicoll.dispatch.tuning import folder


def place(machine: MachineFacts) -> Path:
    """Return the file of a machine's table in the user's folder."""
    words = re.sub(r"[^a-z0-9]+", "-", str(machine).lower().replace("=", " "))
    return folder() / f"{words.strip('-')}.rules"


def refusal(file: Path | None) -> str:
    """Return why no table can be written, "" where one can; nothing stays of the trial but the folder.

    Args:
        file: where; None: the user's folder.
    """
    try:
        wanted = file or place(MachineFacts(mpi="trial"))
        _older(wanted)
        with _part(wanted) as part:
            part.touch()
    except (OSError, ValueError) as error:
        return str(error)
    return ""


def write(table: Table, file: Path, head: list[str]) -> None:
    """Write a table, with what an older one of the same machine knows of other numbers of ranks; all of it or nothing.

    Args:
        table: what was measured.
        file: where; its folder is made.
        head: lines of comment.

    Raises:
        OSError: it cannot be written.
        ValueError: the file there is no tuning table.
    """
    old = _older(file)
    table = merged(old, table) if old and old.machine == table.machine else table
    text = "".join(f"# {line}\n" for line in head) + replace(table, name=str(file)).text()
    with _part(file) as part:
        part.write_text(text, encoding="utf-8")
        part.replace(file)


def _older(file: Path) -> Table | None:
    """Return the table that is there."""
    return parse_table(file.read_text(encoding="utf-8"), str(file)) if file.exists() else None


@contextmanager
def _part(file: Path) -> Iterator[Path]:
    """Return a file of this process beside another one, in a folder that is there; it is gone afterwards."""
    part = file.with_name(f"{file.name}.{os.getpid()}")
    part.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield part
    finally:
        part.unlink(missing_ok=True)
