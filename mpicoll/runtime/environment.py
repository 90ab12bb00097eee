"""What must happen before MPI starts: a CUDA-capable UCX under the MPI library, and its variables.

The Open MPI and MPICH wheels call UCX but are built without CUDA.  The libucx-cu12/13 wheels
carry a UCX with CUDA under the same library names; loaded first, it makes device messages
work.  Nothing here starts MPI or CUDA.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

#: variables that make each MPI hand device messages to UCX; each can be overridden by setting it
VARIABLES = {
    "openmpi": {
        "OMPI_MCA_pml": "ucx",
        "OMPI_MCA_pml_ucx_tls": "any",
        "OMPI_MCA_pml_ucx_devices": "any",
    },
    "mpich": {"MPIR_CVAR_NOLOCAL": "1", "MPIR_CVAR_CH4_NETMOD": "ucx"},
}


@dataclass
class Prepared:
    """What was done before MPI started.

    Attributes:
        ucx: version of the CUDA-capable UCX that was loaded, "" if none.
        reason: why it was or was not.
        variables: what was set, by name.
        overridden: what the user had set, by name.
    """

    ucx: str = ""
    reason: str = "mpicoll has not prepared the environment"
    variables: dict[str, str] = field(default_factory=dict)
    overridden: dict[str, str] = field(default_factory=dict)


prepared = Prepared()


def has_driver() -> bool:
    """Tell whether this machine has an NVIDIA driver, without touching CUDA."""
    return Path("/proc/driver/nvidia/version").exists() or Path("/dev/nvidiactl").exists()


def prepare() -> Prepared:
    """Load the CUDA-capable UCX and set the MPI's variables, if that can help and is not too late."""
    if prepared.ucx:
        return prepared
    prepared.reason = _reason_not_to()
    if prepared.reason:
        return prepared
    import libucx

    libucx.load_library()
    prepared.ucx = _libucx_version()
    prepared.reason = "a GPU driver and the libucx wheel are here, and MPI had not started"
    for name, value in {**VARIABLES["openmpi"], **VARIABLES["mpich"]}.items():
        if name in os.environ:
            prepared.overridden[name] = os.environ[name]
        else:
            os.environ[name] = prepared.variables[name] = value
    return prepared


def local_rank() -> int:
    """Return this process's rank on its node as the launcher says, 0 without a launcher."""
    for name in (
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "MPI_LOCALRANKID",
        "SLURM_LOCALID",
        "PMI_LOCAL_RANK",
        "PALS_LOCAL_RANKID",
    ):
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    return 0


def _reason_not_to() -> str:
    if not has_driver():
        return "no NVIDIA driver on this machine"
    if "mpi4py.MPI" in sys.modules:
        return "MPI had already started: import mpicoll before mpi4py.MPI"
    if not _libucx_version():
        return "no libucx wheel installed (pip install mpicoll[cuda13])"
    return ""


def _libucx_version() -> str:
    for name in ("libucx-cu13", "libucx-cu12"):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return ""
