"""The report on this machine, with decisions and their reasons: `python -m mpicoll info`."""

from __future__ import annotations

import os
import platform
import sys

from rich.console import Console
from rich.table import Table

from mpicoll.dispatch.paths import serving
from mpicoll.dispatch.tuning import MODEL
from mpicoll.errors import MismatchError
from mpicoll.runtime.mpi.environment import VARIABLES, prepared
from mpicoll.settings import TABLE, override, settings
from mpicoll.version import __version__
from mpicoll.versions import mpi_library, variables, versions

#: launchers' variables that say how many ranks there are
SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")


def show() -> None:
    """Print the rows; starts MPI."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")  # a file's name is shown to its end
    for row in rows():
        table.add_row(*row)
    width = None if sys.stdout.isatty() else 10_000  # what is read by programs has a row a line
    Console(width=width, markup=False, highlight=False, emoji=False).print(table)


def rows() -> list[tuple[str, str]]:
    """Return names and what is known of them; starts MPI."""
    found = [("mpicoll", __version__), *versions().items(), ("machine", platform.node()), *_mpi(), *_devices()]
    found += [("UCX under MPI", f"{prepared.ucx or 'as the MPI brings it'}: {prepared.reason}"), *_prepared()]
    others = {name: value for name, value in variables().items() if name not in prepared.variables}
    found += [(f"  environment {name}", value) for name, value in others.items()]
    return [*found, *((f"setting {name}", _setting(name)) for name in TABLE)]


def _prepared() -> list[tuple[str, str]]:
    """Return the variables that were set before MPI started, and what the user has set instead, with reasons."""
    found = []
    for row in VARIABLES:
        why = f"{row.reader}: {row.why}" + (f"; {row.measured}" if row.measured else "")
        if row.name in prepared.variables:
            found.append((f"  set {row.name}", f"{prepared.variables[row.name]} ({why})"))
        if row.name in prepared.overridden:
            found.append(
                (f"  kept {row.name}", f"{prepared.overridden[row.name]} (set by you, not {row.value}; {why})")
            )
    return found


def _mpi() -> list[tuple[str, str]]:
    from mpi4py import MPI

    from mpicoll.runtime.mpi.cuda_aware import decide

    ranks = MPI.COMM_WORLD.size
    found = [("MPI library", mpi_library()), ("ranks", str(ranks))]
    said = {int(os.environ[name]) for name in SIZES if os.environ.get(name, "").isdigit()}
    if said and ranks not in said:
        found.append(
            ("WARNING", f"the launcher started {max(said)} ranks, MPI sees {ranks}: mpirun and mpi4py's MPI differ")
        )
    found += _tuning()
    decision = decide()
    found.append(("device pointers in MPI", f"{'yes' if decision.aware else 'no'}: {decision.reason}"))
    return found + _paths()


def _tuning() -> list[tuple[str, str]]:
    """Return the machine's fingerprint, and the tuning tables that are in force and those that are not; collective."""
    from mpi4py import MPI

    from mpicoll.runtime.context.contexts import context_of

    try:
        context = context_of(MPI.COMM_WORLD)
    except (ValueError, MismatchError) as error:  # a table has a mistake, or ranks have others; all calls raise that
        return [("WARNING", str(error))]
    tuning = context.tuning()
    found = [("topology", str(context.topology)), ("machine fingerprint", str(context.machine))]
    found += [("link between hosts", str(tuning.link))] if context.topology.host_of else []
    found += [("tuning tables in force", tuning.described())]
    return found + [("  not in force", f"{name}: {why}") for name, why in tuning.unused]


def _paths() -> list[tuple[str, str]]:
    """Return for each path of device arrays whether the ranks of this job have it; collective."""
    from mpi4py import MPI

    from mpicoll.runtime.context.contexts import context_of
    from mpicoll.runtime.mpi.environment import local_rank
    from mpicoll.runtime.paths import offer

    names, trouble, device = serving("device"), "", -1
    try:
        import cupy

        device = local_rank() % cupy.cuda.runtime.getDeviceCount()
    except Exception as error:  # no CuPy, or no device
        trouble = f"{type(error).__name__}: {error}"
    if min(MPI.COMM_WORLD.allgather(device)) < 0:
        return [(f"path {name}", f"no: {trouble or 'a rank has no device'}") for name in names]
    with override(tuning=MODEL):  # paths do not depend on it, and a table may have a mistake
        context = context_of(MPI.COMM_WORLD)
        offer.connect(context, device)
    return [(f"path {name}", offer.described(context, device, name)) for name in names]


def _devices() -> list[tuple[str, str]]:
    try:
        import cupy
    except ImportError:
        return [("devices", "CuPy is not installed")]
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return [("devices", f"none: {error}")]
    names = [cupy.cuda.runtime.getDeviceProperties(d)["name"].decode() for d in range(count)]
    runtime = cupy.cuda.runtime.runtimeGetVersion()
    return [("devices", f"{count}: {', '.join(sorted(set(names)))}; CUDA runtime {runtime}")]


def _setting(name: str) -> str:
    row, value = TABLE[name], getattr(settings, name)
    where = row.variable if row.variable in os.environ else "default" if value == row.default else "changed"
    return f"{value!r} ({where})"
