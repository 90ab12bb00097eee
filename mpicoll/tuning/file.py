"""The user's tuning tables on disk: one file for each machine."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

from mpicoll.dispatch.machine_facts import MachineFacts
from mpicoll.dispatch.table import Table, merged, parse_table
from mpicoll.dispatch.tuning import folder


def place(machine: MachineFacts) -> Path:
    """Return the file of a machine's table in the user's folder."""
    words = re.sub(r"[^a-z0-9]+", "-", str(machine).lower().replace("=", " "))
    return folder() / f"{words.strip('-')}.rules"


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
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.exists():
        old = parse_table(file.read_text(encoding="utf-8"), str(file))
        table = merged(old, table) if old.machine == table.machine else table
    text = "".join(f"# {line}\n" for line in head) + replace(table, name=str(file)).text()
    part = file.with_name(f"{file.name}.{os.getpid()}")
    part.write_text(text, encoding="utf-8")
    part.replace(file)
