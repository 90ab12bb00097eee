"""All settings, in one table: defaults, environment variables, and a scoped override.

Setting `x` is read from the variable MPICOLL_X once, when mpicoll is imported.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from decimal import Decimal
from itertools import count
from typing import Any


def parse_bytes(text: str | int) -> int:
    """Read a number of bytes such as 65536, 64K, 1.5M, 2GiB or inf (K, M, G are powers of 1024)."""
    if isinstance(text, int):
        return text
    if text.strip().lower() == "inf":
        return 1 << 62
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if not match:
        raise ValueError(f"{text!r} is not a number of bytes such as 65536, 64K or 2M")
    return int(Decimal(match[1]) * 1024 ** " KMGT".index(match[2].upper() or " "))


def format_bytes(number: int) -> str:
    """Write a number of bytes as parse_bytes reads it, such as 64K."""
    if number >= 1 << 62:
        return "inf"
    for power, unit in ((40, "T"), (30, "G"), (20, "M"), (10, "K")):
        if number >= 1 << power and number % (1 << power) == 0:
            return f"{number >> power}{unit}"
    return str(number)


def _yes_no_auto(text: str) -> bool | None:
    words = {"1": True, "yes": True, "true": True, "0": False, "no": False, "false": False, "auto": None, "": None}
    if text.lower() not in words:
        raise ValueError(f"{text!r} is none of yes, no, auto")
    return words[text.lower()]


def _positive_bytes(text: str | int) -> int:
    number = parse_bytes(text)
    if number < 1:
        raise ValueError(f"{text!r} is not at least 1 byte")
    return number


def _bytes_or_auto(text: str | int) -> int:
    return 0 if text == "auto" else parse_bytes(text)


def _path(text: str) -> str | None:
    if text not in ("", "auto", "mapped", "direct", "staged"):
        raise ValueError(f"{text!r} is none of auto, mapped, direct, staged")
    return None if text in ("", "auto") else text


def _one_of(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in ("", *words):
            raise ValueError(f"{text!r} is none of {', '.join(words)}")
        return text

    return parse


_errors, _reproducible = _one_of("agree"), _one_of("runs", "ranks")


@dataclass(frozen=True)
class Setting:
    """One row: a setting's name, default, how its text is read, and what it means."""

    name: str
    default: Any
    parse: Callable[[str], Any]
    meaning: str

    @property
    def variable(self) -> str:
        """Name of the environment variable."""
        return f"MPICOLL_{self.name.upper()}"


TABLE: dict[str, Setting] = {
    row.name: row
    for row in (
        Setting("algorithms", "", str, "rules before tuning table and cost model, such as `allreduce:0-64K:ring`"),
        Setting("tuning", "", str, "file with a tuning table; the packaged one if empty"),
        Setting("segment_bytes", 0, _bytes_or_auto, "size of a segment of a block; `auto`: the cost model chooses"),
        Setting("scratch_limit", 1 << 28, _positive_bytes, "most bytes of scratch that one call may use at a time"),
        Setting("cuda_aware", None, _yes_no_auto, "`yes` or `no` overrides what was found out about the MPI library"),
        Setting("path", None, _path, "how device arrays travel: `mapped`, `direct`, `staged`, or `auto`"),
        Setting("mapped_bytes", 128 << 20, parse_bytes, "a communicator's inboxes on a GPU for path `mapped`; 0: none"),
        Setting("mapped_shared", False, _yes_no_auto, "path mapped also where ranks share a GPU: slow, for tests"),
        Setting("debug", 0, int, "1 compares every call over the ranks before it starts; 2 prints its plan, too"),
        Setting(
            "timeout", 0.0, float, "seconds without progress after which a call raises StalledError; 0 waits for ever"
        ),
        Setting(
            "errors", "", _errors, "`agree`: what one rank raises for a call, all ranks raise, at the cost of a message"
        ),
        Setting("reproducible", "", _reproducible, "`runs` or `ranks`: see docs/sharp-bits.md"),
        Setting("progress", "", _one_of("thread"), "`thread`: a thread of its own advances nonblocking calls"),
        Setting("plan_cache", 256, int, "number of bound plans kept for each communicator"),
        Setting("yield_wait", None, _yes_no_auto, "waiting ranks yield their core; `auto`: if ranks outnumber cores"),
        Setting("prepare", True, _yes_no_auto, "`import mpicoll` puts a CUDA-capable UCX under MPI, if there is a GPU"),
    )
}

#: variables that belong to the test-suite or the benchmark, not to this table
_OTHER_VARIABLES = ("MPICOLL_TEST_", "MPICOLL_BENCH_")


@dataclass(frozen=True)
class _Scope:
    """Values overridden in a with block, with a number of its own."""

    version: int
    values: dict[str, Any]


_NO_SCOPE = _Scope(0, {})


class Settings:
    """Current values; assigning an unknown name raises, so that a typing error cannot pass."""

    def __init__(self, environ: dict[str, str] | None = None) -> None:
        """Read defaults and environment variables."""
        environ = dict(os.environ) if environ is None else environ
        values = {}
        for row in TABLE.values():
            text = environ.get(row.variable)
            try:
                values[row.name] = row.default if text is None else row.parse(text)
            except ValueError as error:
                raise ValueError(f"{row.variable}: {error}") from None
        object.__setattr__(self, "_base", values)
        object.__setattr__(self, "_scoped", ContextVar("mpicoll_settings", default=_NO_SCOPE))
        object.__setattr__(self, "_changes", count(1))
        object.__setattr__(self, "scope", self._scoped.get)  # what is overridden now, in this thread or task
        object.__setattr__(self, "assigned", 0)  # grows with every value that is assigned
        known = {row.variable for row in TABLE.values()}
        for name in environ:
            if name.startswith("MPICOLL_") and name not in known and not name.startswith(_OTHER_VARIABLES):
                warnings.warn(f"unknown setting {name}; known: {', '.join(sorted(known))}", stacklevel=3)

    def __getattr__(self, name: str) -> Any:
        _check_name(name)
        scoped = self.scope().values
        return scoped[name] if name in scoped else self._base[name]

    def __setattr__(self, name: str, value: Any) -> None:
        _check_name(name)
        self._base[name] = _read(name, value)
        object.__setattr__(self, "assigned", next(self._changes))

    def __dir__(self) -> list[str]:
        return list(TABLE)

    @property
    def version(self) -> int:
        """A number that changes whenever a value may have changed for this thread."""
        version: int = self.assigned << 32 | self.scope().version
        return version

    def as_dict(self) -> dict[str, Any]:
        """Return all current values."""
        return {**self._base, **self.scope().values}

    @contextmanager
    def override(self, **values: Any) -> Iterator[None]:
        """Change settings for the calls of this thread (or task) within a with block."""
        for name in values:
            _check_name(name)
        read = {name: _read(name, value) for name, value in values.items()}
        token = self._scoped.set(_Scope(next(self._changes), {**self.scope().values, **read}))
        try:
            yield
        finally:
            self._scoped.reset(token)


def _check_name(name: str) -> None:
    if name not in TABLE:
        raise AttributeError(f"no setting {name!r}; known: {', '.join(sorted(TABLE))}")


def _read(name: str, value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    try:
        return TABLE[name].parse(value)
    except ValueError as error:
        raise ValueError(f"setting {name}: {error}") from None


settings = Settings()
override = settings.override
