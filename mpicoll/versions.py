"""Versions and environment variables that can change a result: for `info`, the benchmark and the tests."""

from __future__ import annotations

import os
import platform
from importlib import metadata

#: packages in whose versions results can differ; of CuPy's the one that is installed
PACKAGES = {
    "numpy": ("numpy",),
    "mpi4py": ("mpi4py",),
    "cupy": ("cupy", "cupy-cuda12x", "cupy-cuda13x"),
    "libucx": ("libucx-cu12", "libucx-cu13"),
}
#: variables of libraries that change how messages travel, how many cores are used, or which devices are seen
PREFIXES = (
    *("CUDA_VISIBLE_DEVICES", "MPICH_", "MPICOLL_", "MPIR_CVAR_", "NCCL_"),
    *("OMPI_MCA_", "OMP_NUM_THREADS", "PRTE_MCA_", "UCX_"),
)
#: variables that a launcher sets for itself
_LAUNCHERS = ("OMPI_MCA_PREFIXES", "OMPI_MCA_cpu_type", "OMPI_MCA_initial_wdir", "OMPI_MCA_num_procs")


def versions() -> dict[str, str]:
    """Return the versions of Python and of PACKAGES, "not installed" of those that are missing."""
    return {"python": platform.python_version()} | {name: _version(*known) for name, known in PACKAGES.items()}


def _version(*names: str) -> str:
    for name in names:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return "not installed"


def variables() -> dict[str, str]:
    """Return the variables of PREFIXES that are set, sorted by name."""
    return {n: v for n, v in sorted(os.environ.items()) if n.startswith(PREFIXES) and n not in _LAUNCHERS}


def mpi_library() -> str:
    """Return the MPI library's name and version; starts MPI."""
    from mpi4py import MPI

    first = MPI.Get_library_version().split("\0")[0].split("\n")[0]
    return " ".join(first.split()).partition(", package")[0]
