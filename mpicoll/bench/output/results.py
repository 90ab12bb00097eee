"""The file of results: JSON lines, each written when it is known, so that an interrupted run keeps the others.

    {"kind": "header", "schema": 2, "tool": "mpicoll.bench", "mode": "times", "measurements": 2, "facts": {...}, ...}
    {"kind": "refused", "what": "allgather", "name": "bruck", "reason": "..."}
    {"kind": "row", "mode": "times", "op": "bcast", "bytes": 8, ..., "times": {"mpicoll": {"median": 4.1, ...}}, ...}
    {"kind": "end", "verdict": "OK", "wrong": 0, "measured": 2, "of": 2, "seconds": 1.5}

A file without the last line is of a run that was killed.  `docs/results.md` says what every field is.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any, BinaryIO

from mpicoll.bench.output import schema1

#: of the file; raised when a reader must change
SCHEMA = 2
#: schemas that can be read
KNOWN = (1, SCHEMA)


class Results:
    """Writes the file.

    Args:
        path: where; None writes nothing.
        tool: the program that measures.
    """

    def __init__(self, path: Path | None, tool: str = "mpicoll.bench") -> None:
        self.path, self.tool = path, tool
        self._out: BinaryIO | None = None
        self._lock = threading.Lock()  # a signal's end comes from another thread

    def begin(self, **header: Any) -> None:
        """Write the header over what was there; raise OSError where there can be no such file."""
        if self.path:
            self._out = self.path.open("wb", buffering=0)
            try:
                self.add("header", schema=SCHEMA, tool=self.tool, **header)
            except OSError:
                self._close()
                raise

    def go_on(self) -> None:
        """Go on with the file that is there, without its last line; one that was cut is dropped, too."""
        if self.path:
            whole = [line for text in self.path.read_text(encoding="utf-8").splitlines() if (line := _line(text))]
            part = self.path.with_name(f"{self.path.name}.part")
            part.write_text("".join(json.dumps(line) + "\n" for line in whole if line["kind"] != "end"), "utf-8")
            part.replace(self.path)
            self._out = self.path.open("ab", buffering=0)

    def add(self, kind: str, **line: Any) -> None:
        """Write a line; nothing before the header, and nothing after the end."""
        with self._lock:
            if self._out:
                self._out.write(json.dumps({"kind": kind, **line}, default=str).encode() + b"\n")

    def end(self, **line: Any) -> None:
        """Write the last line."""
        self.add("end", **line)
        self._close()

    def _close(self) -> None:
        with self._lock:
            if self._out:
                self._out.close()
                self._out = None


def read(path: Path) -> dict[str, Any]:
    """Return a file's header, with its lists `rows` and `refused`, and `end`: the last line, or None.

    Rows of schema 1 are handed out as those of schema 2.

    Raises:
        ValueError: the file is something else.
    """
    lines = [found for text in path.read_text(encoding="utf-8").splitlines() if (found := _line(text))]
    if not lines or lines[0].get("kind") != "header" or lines[0].get("schema") not in KNOWN:
        raise ValueError(f"{path} does not begin with a header of schema {' or '.join(map(str, KNOWN))}")
    by_kind: dict[str, list[dict[str, Any]]] = {"header": [], "refused": [], "row": [], "end": []}
    for line in lines:
        by_kind[line.pop("kind")].append(line)
    end = by_kind["end"][0] if by_kind["end"] else None
    (header,), rows = by_kind["header"][:1], by_kind["row"]
    if header["schema"] == 1:
        rows = [schema1.converted(row, header.get("facts", {})) for row in rows]
    return {**header, "rows": rows, "refused": by_kind["refused"], "end": end}


def _line(text: str) -> dict[str, Any] | None:
    """Return a line, or None for one that was cut by the end of its program."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
