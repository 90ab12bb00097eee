"""What is on this machine, what was decided, and why: `python -m mpicoll info`."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version

from mpicoll.runtime.mpi.environment import VARIABLES, prepared
from mpicoll.settings import TABLE, settings
from mpicoll.version import __version__

#: variables of other libraries that change how messages travel
PREFIXES = ("UCX_", "OMPI_MCA_", "MPIR_CVAR_", "MPICH_", "NCCL_", "CUDA_VISIBLE_DEVICES", "PRTE_MCA_")
#: launchers' variables that say how many ranks there are
SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")


def lines() -> list[str]:
    """Return the report; starts MPI."""
    table = [("mpicoll", __version__), ("python", f"{platform.python_version()} on {platform.node()}")]
    table += [(name, _version(name)) for name in ("numpy", "mpi4py", "cupy-cuda13x", "cupy-cuda12x", "libucx-cu13")]
    table += _mpi() + _devices()
    table += [("UCX under MPI", f"{prepared.ucx or 'as the MPI brings it'}: {prepared.reason}")]
    table += _variables()
    seen = {n: v for n, v in sorted(os.environ.items()) if n.startswith(PREFIXES) and n not in prepared.variables}
    table += [(f"  environment {name}", value) for name, value in seen.items()]
    table += [(f"setting {name}", _setting(name)) for name in TABLE]
    width = max(len(name) for name, _ in table)
    return [f"{name:<{width}}  {value}" for name, value in table]


def _variables() -> list[tuple[str, str]]:
    """Say what was set before MPI started and why, and what the user has set instead."""
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


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _mpi() -> list[tuple[str, str]]:
    from mpi4py import MPI

    from mpicoll.runtime.mpi.cuda_aware import decide

    library = MPI.Get_library_version().split("\n")[0].strip("\0 ")
    ranks = MPI.COMM_WORLD.size
    found = [("MPI library", library), ("ranks", str(ranks))]
    said = {int(os.environ[name]) for name in SIZES if os.environ.get(name, "").isdigit()}
    if said and ranks not in said:
        found.append(
            ("WARNING", f"the launcher started {max(said)} ranks, MPI sees {ranks}: mpirun and mpi4py's MPI differ")
        )
    decision = decide()
    found.append(("device pointers in MPI", f"{'yes' if decision.aware else 'no'}: {decision.reason}"))
    found.append(("paths for device arrays", "direct, staged" if decision.aware else "staged"))
    found.append(("path mapped", _mapped()))
    return found


def _mapped() -> str:
    """Return whether the ranks of this job have the path mapped; collective."""
    from mpi4py import MPI

    from mpicoll.runtime.context.contexts import context_of
    from mpicoll.runtime.mpi.environment import local_rank
    from mpicoll.runtime.paths import offer

    if MPI.COMM_WORLD.size == 1:
        return "decided for each communicator: start this on several ranks to see"
    try:
        import cupy

        device = local_rank() % cupy.cuda.runtime.getDeviceCount()
    except Exception as error:  # no CuPy, or no device
        device, why = -1, f"{type(error).__name__}: {error}"
    if min(MPI.COMM_WORLD.allgather(device)) < 0:
        return f"no: {why if device < 0 else 'a rank has no device'}"
    context = context_of(MPI.COMM_WORLD)
    offer.connect(context, device)
    why = offer.plainly(context, device)["mapped"]
    if why:
        return f"no: {why}"
    return f"yes, on all {context.size} ranks" + (
        "" if context.attached["mapped"].linked else "; the GPUs are not linked by NVLink"
    )


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
