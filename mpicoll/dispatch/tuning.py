"""Which tuning tables are in force: the one that is set, else the user's own and the packaged ones of this machine.

The user's tables are in `$XDG_CONFIG_HOME/mpicoll/tuning` (else `~/.config/mpicoll/tuning`), one for each machine, as
`python -m mpicoll tune` writes them.  The setting `tuning` is the name of a file or of a packaged table, or `model`
for none.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any
from zlib import crc32

from mpicoll.analysis.cost import CostModel
from mpicoll.analysis.host_traffic import HostLink
from mpicoll.dispatch.machine_facts import MachineFacts, local
from mpicoll.dispatch.measured import Curve, Timing
from mpicoll.dispatch.paths import HOST_LINK, PATHS
from mpicoll.dispatch.rules import Rule
from mpicoll.dispatch.table import Table, parse_table
from mpicoll.schedule.topology import FLAT, Topology
from mpicoll.settings import settings

#: no fact of the machine is known
UNKNOWN = MachineFacts()
#: a table's name, its statements, and why they cannot be read
Text = tuple[str, str, str]
#: value of the setting for which there is no table
MODEL = "model"
#: before the name of a packaged table
PACKAGED = "packaged "


@dataclass(frozen=True, eq=False)
class Tuning:
    """The tables in force on a machine; the first one that knows something decides.

    Attributes:
        tables: the first one first.
        machine: on which they are in force.
        unused: tables that were found, and why each is not in force.
    """

    tables: tuple[Table, ...] = ()
    machine: MachineFacts = UNKNOWN
    unused: tuple[tuple[str, str], ...] = ()

    def rules(
        self, collective: str, size: int, memory: str, gpus: int, topology: Topology = FLAT
    ) -> tuple[tuple[Table, Rule], ...]:
        """Return the rules that speak for calls of some number of ranks, with their tables.

        Args:
            collective: what is called.
            size: number of ranks.
            memory: "host" or "device".
            gpus: of all ranks.
            topology: which ranks are on one host.
        """
        return _rules(self, collective, size, memory, gpus, topology)

    def model(self, path: str) -> CostModel:
        """Return the parameters of a path's cost."""
        return next((table.models[path] for table in self.tables if path in table.models), PATHS[path].model)

    @property
    def link(self) -> HostLink:
        """The link between hosts, as a table has measured it."""
        return next((table.link for table in self.tables if table.link), HOST_LINK)

    def curve(self, collective: str, size: int, memory: str, gpus: int, algorithm: str, path: str) -> Curve | None:
        """Return what was measured of an algorithm; arguments as in `rules`, with the algorithm and its path."""
        found = (t.measured.curve((collective, memory, n, algorithm, path), size) for t, n in self._knowing(gpus))
        return next(filter(None, found), None)

    def timing(self, collective: str, size: int, memory: str, gpus: int, nbytes: int) -> Timing | None:
        """Return the times of just this message size, None if it was not measured; arguments as in `rules`."""
        found = (t.measured.timing(collective, memory, n, size, nbytes) for t, n in self._knowing(gpus))
        return next(filter(None, found), None)

    def _knowing(self, gpus: int) -> Iterator[tuple[Table, int]]:
        """Yield the tables, each with the numbers of GPUs under which it may know something."""
        return ((table, number) for table in self.tables for number in (gpus, 0))

    def note(self, table: Table) -> str:
        """Return in words that a table is of another machine, "" if it is of this one."""
        why = table.machine.differs(self.machine)
        return f", of another machine ({why})" if why else ""

    def described(self) -> str:
        """Return the tables in words."""
        return "; ".join(f"{table.name}{self.note(table)}" for table in self.tables) or "none, the cost model alone"


@lru_cache(maxsize=4096)
def _rules(tuning: Tuning, *calls: Any) -> tuple[tuple[Table, Rule], ...]:
    return tuple((t, rule) for t in tuning.tables for rule in t.rules if rule.serves(*calls))


@lru_cache(maxsize=64)
def in_force(wanted: Text, users: tuple[Text, ...], machine: MachineFacts) -> Tuning:
    """Return the tables in force; the same object for the same arguments.

    Args:
        wanted: the table that is set, as `asked_for` returns it.
        users: the user's tables.
        machine: on which calls are made.

    Raises:
        ValueError: a table has a mistake, or there is none of that name.
    """
    if wanted[0] == MODEL:
        return Tuning((), machine)
    if wanted[0]:  # what is asked for is in force on any machine, and said
        return Tuning((_set(wanted),), machine)
    used, unused = list[Table](), [(name, trouble) for name, _, trouble in users if trouble]
    for table in (*(_parsed(text) for text in users if not text[2]), *packaged().values()):
        why = table.machine.differs(machine)
        if why:
            unused.append((table.name, why))
        else:
            used.append(table)
    return Tuning(tuple(used), machine, tuple(unused))


def here(hosts: int = 1) -> Tuning:
    """Return the tables in force for a job on so many hosts like this one; its MPI library is known once loaded."""
    loaded = sys.modules.get("mpi4py.MPI")
    machine = replace(local(loaded.get_vendor()[0] if loaded else ""), hosts=str(hosts))
    return in_force(asked_for(settings.tuning), users_tables(), machine)


@lru_cache(maxsize=1)
def packaged() -> dict[str, Table]:
    """Return the packaged tables by their names."""
    found = (file for file in (files("mpicoll.dispatch") / "tables").iterdir() if file.name.endswith(".rules"))
    named = {file.name.removesuffix(".rules"): file for file in sorted(found, key=lambda file: file.name)}
    return {name: parse_table(file.read_text(encoding="utf-8"), PACKAGED + name) for name, file in named.items()}


def _set(wanted: Text) -> Table:
    """Return a packaged table, or that of a file."""
    name, _, trouble = wanted
    if name in packaged():
        return packaged()[name]
    if trouble:
        known = ", ".join((MODEL, *packaged()))
        raise ValueError(f"the setting `tuning`, {name}: {trouble}; beside files there are: {known}")
    try:
        return _parsed(wanted)
    except ValueError as error:
        raise ValueError(f"the setting `tuning`, {error}") from None


@lru_cache(maxsize=64)
def _parsed(text: Text) -> Table:
    return parse_table(text[1], text[0])


def folder() -> Path:
    """Return the folder of the user's tables.

    Raises:
        OSError: the user has no home.
    """
    root = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    try:  # a relative folder is none, says the standard of that variable
        return (root if root.is_absolute() else Path.home() / ".config") / "mpicoll" / "tuning"
    except RuntimeError as error:
        raise FileNotFoundError(f"no folder for tuning tables: {error} Set XDG_CONFIG_HOME") from None


def users_tables() -> tuple[Text, ...]:
    """Return the user's tables, as they are now."""
    try:
        return tuple(_read(str(file)) for file in sorted(folder().glob("*.rules")))
    except OSError:  # no home, or no folder that may be read
        return ()


def asked_for(name: str) -> Text:
    """Return the table of a value of the setting `tuning`, as it is now; only a file has statements."""
    return (name, "", "") if name in ("", MODEL) or name in packaged() else _read(name)


def _read(file: str) -> Text:
    """Return a file's statements; what is no text is a mistake in them."""
    name = file.encode(errors="replace").decode()
    try:
        return name, Path(file).read_text(encoding="utf-8", errors="replace"), ""
    except OSError as error:
        return name, "", error.strerror or str(error)


def fingerprint(text: Text) -> str:
    """Return what differs where tables differ, in words; "" for one without statements."""
    _, statements, trouble = text
    lines = len(statements.splitlines())
    return trouble or (f"{lines} lines, checksum {crc32(statements.encode()):08x}" if statements else "")
