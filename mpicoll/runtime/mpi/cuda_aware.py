"""May a device pointer be given to this MPI?  Found out without ever risking a crash.

First that answers: the setting `cuda_aware`; the UCX that mpicoll loaded under the MPI; the
library's own answer; a probe in a child process; else no, and device arrays travel through
the host.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import lru_cache

from mpi4py import MPI

from mpicoll.runtime.mpi.environment import VARIABLES, has_driver, prepared
from mpicoll.settings import TABLE, settings

_PROBE = """
import cupy
import mpicoll
from mpi4py import MPI
a = cupy.arange(100000, dtype="f4"); b = cupy.zeros_like(a)
cupy.cuda.get_current_stream().synchronize()
MPI.COMM_SELF.Sendrecv(a, 0, 0, b, 0, 0)
raise SystemExit(0 if bool((a == b).all()) else 3)
"""
#: launchers' variables that would make the child think that it is one of our ranks
_LAUNCHER = ("OMPI_", "PMIX_", "PMI_", "PRTE_", "MPI_LOCAL", "HYDRA", "HYDI", "PALS_", "SLURM_")


#: what the variables of both MPIs must be for device messages
REQUIRED = {row.name: row.value for row in VARIABLES if row.needed}


@dataclass(frozen=True)
class Awareness:
    """MPI's ability to take device pointers, and how that was found out."""

    aware: bool
    reason: str


@lru_cache(maxsize=1)
def decide() -> Awareness:
    """Return this rank's answer."""
    if settings.cuda_aware is not None:
        return Awareness(settings.cuda_aware, "setting cuda_aware")
    if not has_driver():
        return Awareness(False, "no NVIDIA driver on this machine")
    if prepared.ucx and not switched_off():
        return Awareness(True, f"UCX {prepared.ucx} with CUDA was loaded under the MPI library")
    own = library_answer()
    if own:
        return own
    return probe()


def switched_off() -> bool:
    """Tell whether the user keeps MPI from the UCX that was loaded, or UCX from CUDA."""
    if any(value != REQUIRED[name] for name, value in prepared.overridden.items() if name in REQUIRED):
        return True
    transports = os.environ.get("UCX_TLS", "all")
    if transports.startswith("^"):
        return "cuda" in transports
    return not any(word in ("all", "cuda") or word.startswith("cuda_ipc") for word in transports.split(","))


def agree(decisions: list[Awareness]) -> Awareness:
    """Return the answer for a communicator: yes only if every rank says yes."""
    for rank, decision in enumerate(decisions):
        if not decision.aware:
            return Awareness(False, f"rank {rank}: {decision.reason}")
    return decisions[0]


def library_answer() -> Awareness | None:
    """Return the MPI library's own word, None if it has none."""
    info = MPI.COMM_WORLD.Get_info()
    kinds = info.Get("mpi_memory_alloc_kinds") or ""
    info.Free()
    if "cuda" in kinds:
        return Awareness(True, f"the library's mpi_memory_alloc_kinds is {kinds!r}")
    try:
        query = ctypes.CDLL(None).MPIX_Query_cuda_support
    except AttributeError:
        return None
    if query():
        return Awareness(True, "the library's MPIX_Query_cuda_support says yes")
    return None  # "no" may mean only that the library itself was built without CUDA; UCX may know more


def probe_environment(environ: dict[str, str]) -> dict[str, str]:
    """Return the child's environment: no rank of ours, MPI's own messages, and this process's UCX."""
    kept = {k: v for k, v in environ.items() if not k.startswith(_LAUNCHER) or k.startswith("OMPI_MCA")}
    own = {TABLE["standin"].variable: "no", TABLE["prepare"].variable: "yes" if prepared.ucx else "no"}
    return {**kept, **own}


def probe() -> Awareness:
    """Send a device array to oneself in a child process, where a crash harms nobody."""
    environ = probe_environment(dict(os.environ))
    try:
        done = subprocess.run([sys.executable, "-c", _PROBE], env=environ, timeout=60, capture_output=True, check=False)
    except subprocess.TimeoutExpired:
        return Awareness(False, "a probe in a child process did not end within 60 s")
    if done.returncode == 0:
        return Awareness(True, "a probe in a child process sent a device array to itself")
    return Awareness(False, f"a probe in a child process failed (exit status {done.returncode})")
