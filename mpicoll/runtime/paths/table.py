"""The table of paths: one row for each way on which arrays can travel.

To add a path: a file or folder here with a subclass of `Path`, a row in `PATHS`, and a row with its cost in
`dispatch/paths.py`.  A row says where the class is, so that CuPy is imported only where it is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module

from mpicoll.runtime.paths.base import Path

#: module and class of each path, best first
PATHS: dict[str, tuple[str, str]] = {
    "host": ("mpicoll.runtime.paths.host", "HostPath"),
    "mapped": ("mpicoll.runtime.paths.mapped.path", "MappedPath"),
    "direct": ("mpicoll.runtime.paths.direct", "DirectPath"),
    "staged": ("mpicoll.runtime.paths.staged", "StagedPath"),
}


@cache
def path(name: str) -> Path:
    """Return a path by its name."""
    module, kind = PATHS[name]
    found: Path = getattr(import_module(module), kind)()
    return found


def serving(memory: str) -> Iterator[Path]:
    """Yield the paths for arrays in "host" or "device" memory, best first."""
    for name in PATHS:
        if (name == "host") == (memory == "host"):
            yield path(name)
