"""The identity of this host, by which ranks know who is on the same one."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from mpi4py import MPI

#: the name that Linux gives itself when it starts
_BOOT = Path("/proc/sys/kernel/random/boot_id")


@cache
def this_host() -> str:
    """Return a text that tells hosts apart: the processor's name that MPI gives, and that of the kernel's start."""
    try:
        boot = _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        boot = ""
    return f"{MPI.Get_processor_name()} {boot}"
