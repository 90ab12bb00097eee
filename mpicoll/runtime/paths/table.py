"""The table of paths: where the class of each is.

To add a path: a file or folder here with a subclass of `Path`, a row in `CLASSES`, and a row with its cost in
`dispatch/paths.py`.  A row names the class, so that CuPy is imported only where it is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module

from mpicoll.dispatch import paths
from mpicoll.runtime.paths.base import Path

#: module and class of each path
CLASSES: dict[str, tuple[str, str]] = {
    "host": ("mpicoll.runtime.paths.host", "HostPath"),
    "mapped": ("mpicoll.runtime.paths.mapped.path", "MappedPath"),
    "bridged": ("mpicoll.runtime.paths.bridged.path", "BridgedPath"),
    "direct": ("mpicoll.runtime.paths.direct", "DirectPath"),
    "staged": ("mpicoll.runtime.paths.staged", "StagedPath"),
}


@cache
def path(name: str) -> Path:
    """Return a path by its name."""
    module, kind = CLASSES[name]
    found: Path = getattr(import_module(module), kind)()
    return found


def serving(memory: str) -> Iterator[Path]:
    """Yield the paths for arrays in "host" or "device" memory, best first."""
    return map(path, paths.serving(memory))
