"""All settings, in one table: defaults, environment variables, and a scoped override.

Setting `x` is read from the variable MPICOLL_X once, when mpicoll is imported.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any, TypedDict

from mpicoll.kinds import (
    ADVANCES,
    AGREE,
    BYTES,
    BYTES_AUTO,
    COUNT,
    DEBUG,
    FILE,
    PATH,
    PINNED,
    RULES,
    SECONDS,
    SOME_BYTES,
    STANDIN,
    TOPOLOGY,
    YES_NO,
    YES_NO_AUTO,
    Kind,
)
from mpicoll.kinds import format_bytes as format_bytes
from mpicoll.kinds import parse_bytes as parse_bytes

if TYPE_CHECKING:
    from typing_extensions import Unpack


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
        Setting("algorithms", "", RULES, "rules before tuning table and cost model, such as `allreduce:0-64K:ring`"),
        Setting("tuning", "", FILE, "tuning table: a file, a packaged name, `model` for none; empty: this machine's"),
        Setting("segment_bytes", 0, BYTES_AUTO, "size of a segment of a block; `auto`: the cost model chooses"),
        Setting("scratch_limit", 1 << 28, SOME_BYTES, "most bytes of scratch that one call may use at a time"),
        Setting("cuda_aware", None, YES_NO_AUTO, "`yes` or `no` overrides what was found out about the MPI library"),
        Setting("path", None, PATH, "how device arrays travel: a path that `python -m mpicoll info` lists, or `auto`"),
        Setting("topology", "auto", TOPOLOGY, "which ranks count as on one host, and hosts as in one rack"),
        Setting("mapped_bytes", 128 << 20, BYTES, "bytes of inboxes on a GPU at most, for path `mapped`; 0: none"),
        Setting("mapped_shared", False, YES_NO, "path mapped also where ranks share a GPU: slow, for tests"),
        Setting(
            "debug",
            0,
            DEBUG,
            "1 compares every call over the ranks; 2 prints its plan, too; `plan` tells each new choice once",
        ),
        Setting(
            "timeout",
            0.0,
            SECONDS,
            "seconds without progress after which a call raises StalledError; 0 waits for ever",
        ),
        Setting(
            "errors", "", AGREE, "`agree`: what one rank raises for a call, all ranks raise, at the cost of a message"
        ),
        Setting("reproducible", "", PINNED, "`runs` or `ranks`: see docs/sharp-bits.md"),
        Setting("progress", "", ADVANCES, "`thread`: a thread of its own advances nonblocking calls"),
        Setting("trace", "", FILE, "file for a trace of all calls; each rank puts its number into the name"),
        Setting("plan_cache", 4096, COUNT, "calls remembered for each communicator, with their bound programs"),
        Setting("yield_wait", None, YES_NO_AUTO, "waiting ranks yield their core; `auto`: if ranks outnumber cores"),
        Setting(
            "mpi_requests",
            True,
            YES_NO,
            "requests on the host are MPI's, too; `no`, set before the first call, saves 1 us of each call",
        ),
        Setting(
            "native", False, YES_NO, "`yes`: blocking calls on the host are MPI's own collectives, see docs/drop-in.md"
        ),
        Setting("prepare", True, YES_NO, "`import mpicoll` puts a CUDA-capable UCX under MPI, if there is a GPU"),
        Setting(
            "standin",
            False,
            STANDIN,
            "`yes`: communicators of mpicoll's are MPI.COMM_WORLD and COMM_SELF; see docs/drop-in.md",
        ),
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


class SettingValues(TypedDict, total=False):
    """Values by the names of settings, for type checkers; a test compares them with the table."""

    algorithms: Any
    tuning: Any
    segment_bytes: Any
    scratch_limit: Any
    cuda_aware: Any
    path: Any
    topology: Any
    mapped_bytes: Any
    mapped_shared: Any
    debug: Any
    timeout: Any
    errors: Any
    reproducible: Any
    progress: Any
    trace: Any
    plan_cache: Any
    yield_wait: Any
    mpi_requests: Any
    native: Any
    prepare: Any
    standin: Any


class Settings:
    """Current values; assigning an unknown name raises, so that a typing error cannot pass."""

    # For type checkers, which then know a misspelt name; values are as in the table, or texts.
    algorithms: Any
    tuning: Any
    segment_bytes: Any
    scratch_limit: Any
    cuda_aware: Any
    path: Any
    topology: Any
    mapped_bytes: Any
    mapped_shared: Any
    debug: Any
    timeout: Any
    errors: Any
    reproducible: Any
    progress: Any
    trace: Any
    plan_cache: Any
    yield_wait: Any
    mpi_requests: Any
    native: Any
    prepare: Any
    standin: Any
    _base: dict[str, Any]
    _scoped: ContextVar[_Scope]
    _changes: Iterator[int]
    _scopes: dict[Any, _Scope]
    scope: Callable[[], _Scope]
    assigned: int

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

    if not TYPE_CHECKING:  # to a checker they would say that every name exists

        def __getattr__(self, name: str) -> Any:
            _check_name(name)
            scoped = self.scope().values
            return scoped[name] if name in scoped else self._base[name]

        def __setattr__(self, name: str, value: Any) -> None:
            _check_name(name)
            self._base[name] = _read(name, value)
            object.__setattr__(self, "assigned", next(self._changes))

    def __repr__(self) -> str:
        """Return what differs from the defaults, for this thread."""
        changed = [f"{name}={value!r}" for name, value in self.as_dict().items() if value != TABLE[name].default]
        return f"Settings({', '.join(changed) or 'all as by default'})"

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
    def override(self, **values: Unpack[SettingValues]) -> Iterator[None]:
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
