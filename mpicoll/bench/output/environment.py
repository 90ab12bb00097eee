"""The header: with what, where and how the numbers were made."""

from __future__ import annotations

import platform
import shlex
import subprocess
from collections import Counter
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from mpi4py import MPI

import mpicoll
from mpicoll.bench.measure.backends import Backend
from mpicoll.communicator import Communicator
from mpicoll.runtime.context.contexts import context_of
from mpicoll.runtime.mpi.environment import prepared
from mpicoll.runtime.mpi.waiter import cores
from mpicoll.runtime.paths import offer
from mpicoll.version import __version__
from mpicoll.versions import mpi_library, variables, versions

#: seconds that git may take
_GIT = 5.0

def collect(arguments: list[str], world: MPI.Intracomm, comm: Communicator, backend: Backend) -> dict[str, Any]:
    """Return the facts with which the numbers are made, the same on all ranks; collective.

    Args:
        arguments: the command line, without the program's name.
        world: all ranks.
        comm: the communicator that is measured.
        backend: where this rank's arrays live.
    """
    aware = context_of(comm).cuda_aware
    places = world.allgather((MPI.Get_processor_name(), cores(), _device(backend)))
    hosts = Counter(host for host, _, _ in places)
    return {
        "command": shlex.join(["python", "-m", "mpicoll.bench", *arguments]),
        "date": datetime.now(timezone.utc).astimezone().isoformat(timespec="seconds"),
        "mpicoll": __version__,
        "commit": world.bcast(commit(Path(mpicoll.__file__).parents[1]) if world.rank == 0 else "", root=0),
        "ranks": world.size,
        "hosts": dict(hosts),
        "cores": {host: number for host, number, _ in places},
        "cpu": _cpu(),
        "buffers": backend.kind,
        "mpi": mpi_library(),
        "mpi_standard": ".".join(map(str, MPI.Get_version())),
        **versions(),
        "system": platform.platform(),
        **_cuda(backend),
        "ucx": prepared.ucx or f"none ({prepared.reason})",
        "aware": aware.aware,
        "aware_reason": aware.reason,
        "mapped": _mapped(comm, backend),
        "gpus": [device for _, _, device in places] if backend.kind == "cupy" else [],
        "variables": variables(),
        "oversubscribed": sorted({host for host, number, _ in places if hosts[host] > number}),
    }


def lines(facts: dict[str, Any]) -> list[str]:
    """Return the header of the table."""
    cores_of = facts["cores"]
    where = ", ".join(
        f"{host}: {_number(ranks, 'rank')} on {_number(cores_of[host], 'core')}"
        for host, ranks in facts["hosts"].items()
    )
    version = f"mpicoll {facts['mpicoll']}" + (f", commit {facts['commit'][:12]}" if facts["commit"] else "")
    found = [
        facts["command"],
        f"{version}, {facts['date']}",
        f"{where} ({facts['cpu']})",
        f"{facts['mpi']}, mpi4py {facts['mpi4py']}, NumPy {facts['numpy']}, Python {facts['python']}",
        f"CuPy {facts['cupy']}, CUDA runtime {facts['cuda_runtime']}, driver {facts['cuda_driver']}",
        f"UCX prepared: {facts['ucx']}",
        f"CUDA-aware: {'yes' if facts['aware'] else 'no'} ({facts['aware_reason']})",
        f"buffers: {facts['buffers']}",
    ]
    found += [f"path mapped: {facts['mapped']}"] if facts["mapped"] else []
    found += [f"rank {rank}: {device}" for rank, device in enumerate(facts["gpus"])]
    found += [f"baseline: {name} {version}".rstrip() for name, version in facts.get("baselines", {}).items()]
    found += [f"{name}={value}" for name, value in facts["variables"].items()]
    crowded = facts["oversubscribed"]
    if crowded:
        found.append(f"WARNING: more ranks than cores on {', '.join(crowded)}; they wait for each other")
    return [f"# {line}" for line in found]


def _mapped(comm: Communicator, backend: Backend) -> str:
    """Return in words whether the path mapped is offered; "" for arrays on the host.  Collective."""
    if backend.kind == "numpy":
        return ""
    context = context_of(comm)
    device = int(backend.xp.cuda.Device().id)
    offer.connect(context, device)
    return offer.plainly(context, device)["mapped"] or "offered"


def commit(root: Path) -> str:
    """Return the git commit of a work tree, "" if it is none."""
    if not (root / ".git").exists():  # what is installed may lie within somebody else's work tree
        return ""
    command = ["git", "-C", str(root), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=_GIT, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def _cpu() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    names = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _cuda(backend: Backend) -> dict[str, str]:
    """Return the versions of CUDA, which CuPy knows."""
    if backend.kind == "numpy":
        return {"cuda_runtime": "unused", "cuda_driver": "unused"}
    runtime = backend.xp.cuda.runtime
    return {
        "cuda_runtime": _cuda_version(runtime.runtimeGetVersion()),
        "cuda_driver": _cuda_version(runtime.driverGetVersion()),
    }


def _cuda_version(number: int) -> str:
    """Write CUDA's 13010 as 13.1."""
    return f"{number // 1000}.{number % 1000 // 10}"


def _device(backend: Backend) -> str:
    if backend.kind == "numpy":
        return ""
    properties = backend.xp.cuda.runtime.getDeviceProperties(backend.device)
    bus = backend.xp.cuda.Device(backend.device).pci_bus_id
    return f"GPU {backend.device} {properties['name'].decode()} at {bus}"


def _number(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")
