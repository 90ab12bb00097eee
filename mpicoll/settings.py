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
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import count
from math import inf
from operator import index
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


@dataclass(frozen=True)
class Kind:
    """Values that a setting takes.

    Attributes:
        allowed: what they are, for messages and the page of settings.
        read: returns the value that a text or a value stands for; raises for what is not allowed.
    """

    allowed: str
    read: Callable[[Any], Any]


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _name(value: Any) -> str | None:
    name = _text(value).lower()
    if not re.fullmatch("[a-z][a-z0-9_]*", name):
        raise ValueError
    return None if name == "auto" else name


def _file(value: Any) -> str:
    return os.fspath(_text(value) if not isinstance(value, os.PathLike) else value)


def _at_least(low: int, read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a reader of numbers that refuses lower ones, and True and False."""

    def bounded(value: Any) -> Any:
        number = read(value)
        if isinstance(value, bool) or not low <= number < inf:  # nor is NaN between them
            raise ValueError
        return number

    return bounded


def _integer(value: Any) -> int:
    return int(value) if isinstance(value, str) else index(value)


def _bytes(value: Any) -> int:
    return parse_bytes(value) if isinstance(value, str) else index(value)


def _word(**meanings: Any) -> Callable[[Any], Any]:
    """Return a reader of words that stand for values, which may be given themselves."""

    def read(value: Any) -> Any:
        if isinstance(value, str):
            return meanings[value.lower()]
        if not any(value is meaning for meaning in meanings.values()):
            raise ValueError
        return value

    return read


_SWITCH = {"yes": True, "no": False, "true": True, "false": False, "1": True, "0": False}
_YES_NO = Kind("`yes` or `no`", _word(**_SWITCH))
_YES_NO_AUTO = Kind("`yes`, `no` or `auto`", _word(**_SWITCH, auto=None))
_RULES = Kind("a text", _text)
_FILE = Kind("a file's name", _file)
_COUNT = Kind("a whole number, 0 or more", _at_least(0, _integer))
_SECONDS = Kind("a finite number of seconds, 0 or more", _at_least(0, float))
_BYTES = Kind("a number of bytes such as 65536, 64K or 2M", _at_least(0, _bytes))
_SOME_BYTES = Kind("a number of bytes such as 65536, 64K or 2M, 1 or more", _at_least(1, _bytes))
_BYTES_AUTO = Kind(f"{_BYTES.allowed}, or `auto`", lambda value: 0 if value == "auto" else _BYTES.read(value))
_AGREE = Kind("`agree` or nothing", _word(agree="agree"))
_PINNED = Kind("`runs`, `ranks` or nothing", _word(runs="runs", ranks="ranks"))
_ADVANCES = Kind("`thread` or nothing", _word(thread="thread"))
_PATH = Kind("the name of a path, or `auto`", lambda value: None if value is None else _name(value))


@dataclass(frozen=True)
class Setting:
    """One row: a setting's name, default, the values that it takes, and what it means."""

    name: str
    default: Any
    kind: Kind
    meaning: str

    @property
    def variable(self) -> str:
        """Name of the environment variable."""
        return f"MPICOLL_{self.name.upper()}"

    def read(self, value: Any, name: str) -> Any:
        """Return the value that a text or a value stands for; an empty text is the default.

        Raises:
            ValueError: it is not allowed; with `name`, the value, and what is.
        """
        if isinstance(value, str) and not value.strip():
            return self.default
        try:
            return self.kind.read(value)
        except (TypeError, LookupError, ValueError, OverflowError):
            raise ValueError(f"{name}: {value!r} is not {self.kind.allowed.replace('`', '')}") from None


TABLE: dict[str, Setting] = {
    row.name: row
    for row in (
        Setting("algorithms", "", _RULES, "rules before tuning table and cost model, such as `allreduce:0-64K:ring`"),
        Setting("tuning", "", _FILE, "tuning table: a file, a packaged name, `model` for none; empty: this machine's"),
        Setting("segment_bytes", 0, _BYTES_AUTO, "size of a segment of a block; `auto`: the cost model chooses"),
        Setting("scratch_limit", 1 << 28, _SOME_BYTES, "most bytes of scratch that one call may use at a time"),
        Setting("cuda_aware", None, _YES_NO_AUTO, "`yes` or `no` overrides what was found out about the MPI library"),
        Setting("path", None, _PATH, "how device arrays travel: a path that `python -m mpicoll info` lists, or `auto`"),
        Setting("mapped_bytes", 128 << 20, _BYTES, "bytes of inboxes on a GPU at most, for path `mapped`; 0: none"),
        Setting("mapped_shared", False, _YES_NO, "path mapped also where ranks share a GPU: slow, for tests"),
        Setting("debug", 0, _COUNT, "1 compares every call over the ranks before it starts; 2 prints its plan, too"),
        Setting(
            "timeout",
            0.0,
            _SECONDS,
            "seconds without progress after which a call raises StalledError; 0 waits for ever",
        ),
        Setting(
            "errors",
            "",
            Kind("`agree` or nothing", _word(agree="agree")),
            "`agree`: what one rank raises for a call, all ranks raise, at the cost of a message",
        ),
        Setting(
            "reproducible",
            "",
            Kind("`runs`, `ranks` or nothing", _word(runs="runs", ranks="ranks")),
            "`runs` or `ranks`: see docs/sharp-bits.md",
        ),
        Setting(
            "progress",
            "",
            Kind("`thread` or nothing", _word(thread="thread")),
            "`thread`: a thread of its own advances nonblocking calls",
        ),
        Setting("trace", "", _FILE, "file for a trace of all calls; each rank puts its number into the name"),
        Setting("plan_cache", 4096, _COUNT, "calls remembered for each communicator, with their bound programs"),
        Setting("yield_wait", None, _YES_NO_AUTO, "waiting ranks yield their core; `auto`: if ranks outnumber cores"),
        Setting("prepare", True, _YES_NO, "`import mpicoll` puts a CUDA-capable UCX under MPI, if there is a GPU"),
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
#: sets of overridden values that are known
MOST_SCOPES = 256


class Settings:
    """Current values; assigning an unknown name raises, so that a typing error cannot pass."""

    def __init__(self, environ: dict[str, str] | None = None) -> None:
        """Read defaults and environment variables."""
        environ = dict(os.environ) if environ is None else environ
        values = {row.name: row.read(environ.get(row.variable, ""), row.variable) for row in TABLE.values()}
        object.__setattr__(self, "_base", values)
        object.__setattr__(self, "_scoped", ContextVar("mpicoll_settings", default=_NO_SCOPE))
        object.__setattr__(self, "_changes", count(1))
        object.__setattr__(self, "_scopes", {})
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

    def _scope_of(self, values: dict[str, Any]) -> _Scope:
        """Return the scope of these values: the same one for the same, so that its calls are remembered."""
        key = tuple(sorted((name, type(value).__name__, value) for name, value in values.items()))
        found: _Scope | None = self._scopes.get(key)
        if found is None:
            if len(self._scopes) >= MOST_SCOPES:
                self._scopes.clear()
            found = self._scopes[key] = _Scope(next(self._changes), values)
        return found

    def same_values(self) -> Any:
        """Return another scope of the current values: calls are known by it, but none is known to be the same."""
        scope: _Scope = self.scope()
        return replace(scope)

    @contextmanager
    def within(self, scope: Any) -> Iterator[None]:
        """Take what was overridden when `scope` was current, for this thread (or task) within a with block."""
        token = self._scoped.set(scope)
        try:
            yield
        finally:
            self._scoped.reset(token)

    @contextmanager
    def override(self, **values: Any) -> Iterator[None]:
        """Change settings for the calls of this thread (or task) within a with block."""
        for name in values:
            _check_name(name)
        read = {name: _read(name, value) for name, value in values.items()}
        token = self._scoped.set(self._scope_of({**self.scope().values, **read}))
        try:
            yield
        finally:
            self._scoped.reset(token)


def _check_name(name: str) -> None:
    if name not in TABLE:
        raise AttributeError(f"no setting {name!r}; known: {', '.join(sorted(TABLE))}")


def _read(name: str, value: Any) -> Any:
    return TABLE[name].read(value, f"setting {name}")


settings = Settings()
override = settings.override
