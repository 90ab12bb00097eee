"""The preparation before MPI starts: a CUDA-capable UCX under the MPI library, and its variables.

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


@dataclass(frozen=True)
class Variable:
    """One row: a variable that is set before MPI starts, unless the user has set it.

    Attributes:
        name: of the environment variable.
        value: what it is set to.
        reader: the library that reads it.
        why: what it does.
        measured: effect and where it was seen, "" if it is no matter of speed.
        needed: device messages fail, or crash, if the user has set it to something else.
    """

    name: str
    value: str
    reader: str
    why: str
    measured: str = ""
    needed: bool = True


#: for one UCX setting to be added, one row; `bench/ucx_settings.py` measures candidates
VARIABLES = (
    Variable("OMPI_MCA_pml", "ucx", "Open MPI", "messages go through UCX, which knows CUDA"),
    Variable("OMPI_MCA_pml_ucx_tls", "any", "Open MPI", "UCX is taken where there is no InfiniBand, too"),
    Variable("OMPI_MCA_pml_ucx_devices", "any", "Open MPI", "UCX is taken where there is no InfiniBand, too"),
    Variable("MPIR_CVAR_NOLOCAL", "1", "MPICH", "messages within a node go through UCX, not shared memory"),
    Variable("MPIR_CVAR_CH4_NETMOD", "ucx", "MPICH", "messages go through UCX, which knows CUDA"),
    Variable(
        "UCX_RNDV_SCHEME",
        "put_zcopy",
        "UCX",
        "the sender writes into the receiver's memory, instead of the receiver reading the sender's",
        "2 H200, 28 November 2026: 256 MiB around a ring 736 to 703 us, a 256 MiB ring allreduce 805 to 750",
        needed=False,
    ),
)


@dataclass
class Preparation:
    """The preparation as it was done before MPI started.

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


prepared = Preparation()


def has_driver() -> bool:
    """Tell whether this machine has an NVIDIA driver, without touching CUDA."""
    return Path("/proc/driver/nvidia/version").exists() or Path("/dev/nvidiactl").exists()


def prepare() -> Preparation:
    """Load the CUDA-capable UCX and set the VARIABLES, if that can help and is not too late."""
    if prepared.ucx:
        return prepared
    prepared.reason = _reason_not_to()
    if prepared.reason:
        return prepared
    import libucx

    libucx.load_library()
    prepared.ucx = _libucx_version()
    prepared.reason = "a GPU driver and the libucx wheel are here, and MPI had not started"
    for row in VARIABLES:
        if row.name in os.environ:
            prepared.overridden[row.name] = os.environ[row.name]
        else:
            os.environ[row.name] = prepared.variables[row.name] = row.value
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
