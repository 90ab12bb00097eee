"""Things that were made before, and are found again: tables with a bound, and tables by the identity of buffers."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, TypeVar

from mpicoll.runtime.arguments.bufspec import is_in_place
from mpicoll.runtime.call.buffer_check import buffer_check
from mpicoll.runtime.call.call_key import UnreadableError

#: things that a table has at most
MOST = 64
K = TypeVar("K")
T = TypeVar("T")


def kept(table: dict[K, T], key: K, make: Callable[[], T]) -> T:
    """Return the thing of a key, made now if the table has none; the oldest one goes where there are too many."""
    if key not in table:
        put(table, key, make())
    return table[key]


def put(table: dict[K, T], key: K, made: T) -> None:
    """Put a thing into a table; the oldest one goes where there are too many."""
    if key not in table and len(table) >= MOST:
        del table[next(iter(table))]
    table[key] = made


class Known(Generic[T]):
    """Things by a key that has the identity of the buffers of which they were made, as long as these are as they were.

    A CuPy array cannot be changed, so that its identity says all while it lives; others are compared.

        known.note((id(x), id(y)), made, [x, y], keep=None)
        known.find((id(x), id(y)), lambda: [x, y])  ->  made
    """

    def __init__(self) -> None:
        """Start empty."""
        self._entries: dict[Hashable, tuple[T, list[tuple[int, Callable[[Any], bool]]], Any]] = {}

    def find(self, key: Hashable, buffers: Callable[[], Sequence[Any]]) -> T | None:
        """Return what was made of buffers, None if nothing was or they have changed.

        Args:
            key: that was noted.
            buffers: returns them, if they must be looked at.
        """
        found = self._entries.get(key)
        if found is None:
            return None
        made, checks, _ = found
        if checks:
            now = buffers()
            if not all([check(now[place]) for place, check in checks]):
                return None
        return made

    def note(self, key: Hashable, made: T, buffers: Sequence[Any], keep: object) -> None:
        """Let something be found from now on, unless a buffer could change unseen.

        Args:
            key: under which it is found.
            made: what is found; it must hold none of the buffers.
            buffers: of which it was made.
            keep: all else whose identity is in the key.
        """
        here, cupy = weakref.ref(self), sys.modules.get("cupy")

        def gone(_: object) -> None:  # another array may then have its identity
            known = here()
            if known is not None:
                known._entries.pop(key, None)

        watched, checks = [], []
        try:
            for place, buffer in enumerate(buffers):
                if cupy is not None and type(buffer) is cupy.ndarray:
                    watched.append(weakref.ref(buffer, gone))
                elif not (buffer is None or is_in_place(buffer)):
                    checks.append((place, buffer_check(buffer)))
        except UnreadableError:
            return
        put(self._entries, key, (made, checks, (watched, keep)))
