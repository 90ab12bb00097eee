"""The header: with what, where and how the numbers were made."""

from __future__ import annotations

import os
import platform
import shlex
from collections import Counter
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

import mpi4py
import numpy as np
from mpi4py import MPI

import mpicoll
from mpicoll.bench.memory import Memory
from mpicoll.communicator import Communicator
from mpicoll.runtime.context.contexts import context_of
from mpicoll.runtime.mpi.environment import prepared
from mpicoll.runtime.mpi.waiter import cores
from mpicoll.runtime.paths import offer
from mpicoll.version import __version__

#: variables that can change a result
_VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "MPICOLL_",
    "MPIR_CVAR_",
    "NCCL_",
    "OMP_NUM_THREADS",
    "OMPI_MCA_",
    "UCX_",
)
#: variables that the launcher sets for itself
_LAUNCHER = ("OMPI_MCA_PREFIXES", "OMPI_MCA_cpu_type", "OMPI_MCA_initial_wdir", "OMPI_MCA_num_procs")


def collect(arguments: list[str], world: MPI.Intracomm, comm: Communicator, memory: Memory) -> dict[str, Any]:
    """Return the facts, the same on all ranks; collective.

    Args:
        arguments: the command line, without the program's name.
        world: all ranks.
        comm: the communicator that is measured.
        memory: where this rank's arrays live.
    """
    aware = context_of(comm).cuda_aware
    places = world.allgather((MPI.Get_processor_name(), cores(), _device(memory)))
    hosts = Counter(host for host, _, _ in places)
    return {
        "command": shlex.join(["python", "-m", "mpicoll.bench", *arguments]),
        "date": datetime.now(timezone.utc).astimezone().isoformat(timespec="seconds"),
        "mpicoll": __version__,
        "commit": commit(Path(mpicoll.__file__).parent),
        "ranks": world.size,
        "hosts": dict(hosts),
        "cores": {host: number for host, number, _ in places},
        "cpu": _cpu(),
        "buffers": memory.kind,
        "mpi": " ".join(MPI.Get_library_version().split("\0")[0].split("\n")[0].split()).partition(", package")[0],
        "mpi_standard": ".".join(map(str, MPI.Get_version())),
        "mpi4py": mpi4py.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        **_cuda(memory),
        "ucx": prepared.ucx or f"none ({prepared.reason})",
        "aware": aware.aware,
        "aware_reason": aware.reason,
        "mapped": _mapped(comm, memory),
        "gpus": [device for _, _, device in places] if memory.kind == "cupy" else [],
        "variables": _variables(),
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


def _mapped(comm: Communicator, memory: Memory) -> str:
    """Return whether the path mapped is offered, or why not; "" for arrays on the host.  Collective."""
    if memory.kind == "numpy":
        return ""
    context = context_of(comm)
    device = int(memory.xp.cuda.Device().id)
    offer.connect(context, device)
    return offer.plainly(context, device)["mapped"] or "offered"


def commit(folder: Path) -> str:
    """Return the git commit of the work tree that a package lies in, "" if there is none."""
    try:
        git = folder.parent / ".git"
        if git.is_file():  # a work tree beside the repository
            git = (git.parent / git.read_text().partition("gitdir:")[2].strip()).resolve()
        head = (git / "HEAD").read_text().strip()
        if not head.startswith("ref:"):
            return head
        common = git / (git / "commondir").read_text().strip() if (git / "commondir").exists() else git
        return _reference(common, head.removeprefix("ref:").strip())
    except (OSError, StopIteration):
        return ""


def _reference(git: Path, name: str) -> str:
    if (git / name).exists():
        return (git / name).read_text().strip()
    packed = (line.split() for line in (git / "packed-refs").read_text().splitlines())
    return next(words[0] for words in packed if words[1:] == [name])


def _cpu() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    names = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _cuda(memory: Memory) -> dict[str, str]:
    if memory.kind == "numpy":
        found = _installed("cupy", "cupy-cuda12x", "cupy-cuda13x")
        return {"cupy": found, "cuda_runtime": "unused", "cuda_driver": "unused"}
    runtime = memory.xp.cuda.runtime
    return {
        "cupy": memory.xp.__version__,
        "cuda_runtime": _cuda_version(runtime.runtimeGetVersion()),
        "cuda_driver": _cuda_version(runtime.driverGetVersion()),
    }


def _cuda_version(number: int) -> str:
    """Write CUDA's 13010 as 13.1."""
    return f"{number // 1000}.{number % 1000 // 10}"


def _installed(*names: str) -> str:
    for name in names:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return "not installed"


def _device(memory: Memory) -> str:
    if memory.kind == "numpy":
        return ""
    properties = memory.xp.cuda.runtime.getDeviceProperties(memory.device)
    bus = memory.xp.cuda.Device(memory.device).pci_bus_id
    return f"GPU {memory.device} {properties['name'].decode()} at {bus}"


def _variables() -> dict[str, str]:
    found = {name: value for name, value in os.environ.items() if name.startswith(_VARIABLES)}
    return {name: found[name] for name in sorted(found) if name not in _LAUNCHER}


def _number(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")
