"""The header: with what, where and how the numbers were made."""

from __future__ import annotations

import os
import platform
import re
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
from mpicoll.dispatch.explain import plural
from mpicoll.dispatch.machine_facts import cpu_name
from mpicoll.runtime.context.contexts import context_of
from mpicoll.runtime.mpi.environment import prepared
from mpicoll.runtime.mpi.waiter import cores
from mpicoll.runtime.paths import offer
from mpicoll.schedule.topology import FLAT
from mpicoll.version import __version__
from mpicoll.versions import mpi_library, variables, versions

#: seconds that another program may take
_PATIENCE = 5.0
#: topology of which nothing is said
ONE_HOST = str(FLAT)
#: folder of a core in Linux
CPU = "/sys/devices/system/cpu/cpu{}"
#: what nvidia-smi is asked for the state of all GPUs
CLOCKS = ("--query-gpu=index,uuid,pci.bus_id,clocks.sm,clocks.max.sm,clocks_throttle_reasons.active", "--format=csv")


def collect(
    arguments: list[str], world: MPI.Intracomm, comm: Communicator, backend: Backend, program: str = "mpicoll.bench"
) -> dict[str, Any]:
    """Return the facts with which the numbers are made, the same on all ranks; collective.

    Args:
        arguments: the command line, without the program's name.
        world: all ranks.
        comm: the communicator that is measured.
        backend: where this rank's arrays live.
        program: the module that measures.
    """
    context = context_of(comm)
    aware = context.cuda_aware
    places = world.allgather(place(backend))
    hosts = Counter(one["host"] for one in places)
    return {
        "command": shlex.join(["python", "-m", program, *arguments]),
        "date": datetime.now(timezone.utc).astimezone().isoformat(timespec="seconds"),
        "mpicoll": __version__,
        "commit": world.bcast(commit(Path(mpicoll.__file__).parents[1]) if world.rank == 0 else "", root=0),
        "ranks": world.size,
        "hosts": dict(hosts),
        "topology": str(context.topology),
        "cores": {one["host"]: one["cores"] for one in places},
        "places": places,
        "cpu": cpu_name(),
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
        "gpus": [one["gpu"] for one in places] if backend.kind == "cupy" else [],
        "gpu_links": world.bcast(_smi("topo", "-m") if world.rank == 0 and backend.kind == "cupy" else ""),
        "gpu_clocks": world.bcast(_smi(*CLOCKS) if world.rank == 0 and backend.kind == "cupy" else ""),
        "variables": variables(),
        "oversubscribed": sorted({one["host"] for one in places if hosts[one["host"]] > one["cores"]}),
    }


def lines(facts: dict[str, Any]) -> list[str]:
    """Return the header of the table."""
    cores_of = facts["cores"]
    where = ", ".join(
        f"{host}: {plural(ranks, 'rank')} on {plural(cores_of[host], 'core')}"
        for host, ranks in facts["hosts"].items()
    )
    version = f"mpicoll {facts['mpicoll']}" + (f", commit {facts['commit'][:12]}" if facts["commit"] else "")
    device = facts["buffers"] == "cupy"
    found = [
        facts["command"],
        f"{version}, {facts['date']}",
        f"{where} ({facts['cpu']}; {_masks(facts['places'])})",
        *([facts["topology"]] if facts.get("topology", ONE_HOST) != ONE_HOST else []),
        f"{facts['mpi']}, mpi4py {facts['mpi4py']}, NumPy {facts['numpy']}, Python {facts['python']}",
        f"buffers: {facts['buffers']}",
    ]
    found += _device_lines(facts) if device else []
    found += [_method(**facts["method"])] if "method" in facts else []
    beside = ", ".join(f"{name} {version}".rstrip() for name, version in facts.get("baselines", {}).items())
    found += [f"baselines: {beside}"] if beside else []
    found += [" ".join(f"{name}={value}" for name, value in facts["variables"].items())] if facts["variables"] else []
    crowded = facts["oversubscribed"]
    if crowded:
        found.append(f"WARNING: more ranks than cores on {', '.join(crowded)}; they wait for each other")
    return [f"# {line}" for line in found]


def _device_lines(facts: dict[str, Any]) -> list[str]:
    """Return the lines on GPUs, and on what reaches them."""
    return [
        f"CuPy {facts['cupy']}, CUDA runtime {facts['cuda_runtime']}, driver {facts['cuda_driver']}",
        f"UCX prepared: {facts['ucx']}",
        f"CUDA-aware: {'yes' if facts['aware'] else 'no'} ({facts['aware_reason']})",
        f"path mapped: {facts['mapped']}",
        *(f"rank {rank}: {device}" for rank, device in enumerate(facts["gpus"])),
    ]


def _method(sync: str, iterations: int | None, width: float | None, budget: float, shuffle: bool, seed: int) -> str:
    """Return how times are taken, in words; arguments as the options with these names, no width where none counts."""
    until = f"{iterations} calls each" if iterations else f"until ±{100 * width:g} %" if width else ""
    order = f"algorithms in random order (seed {seed})" if shuffle else "algorithms in order"
    return "; ".join(filter(None, (f"starts: {sync}", until, f"within {budget:g} s", order)))


def _masks(places: list[dict[str, Any]]) -> str:
    """Return the cores that ranks may use, in words: once where all may use the same."""
    masks = [one["cpus"] for one in places]
    if len(set(masks)) == 1:
        return f"each may use {masks[0]}"
    return "ranks may use " + ", ".join(masks)


def place(backend: Backend) -> dict[str, Any]:
    """Return where this rank runs: host, cores and their NUMA nodes, frequency in MHz where it is known, GPU."""
    own = sorted(os.sched_getaffinity(0))
    nodes = {found.name.removeprefix("node") for core in own for found in Path(CPU.format(core)).glob("node*")}
    return {
        "host": MPI.Get_processor_name(),
        "cores": cores(),
        "cpus": "cores " + ",".join(_runs(own)),
        "numa": ",".join(sorted(nodes)),
        "governor": _text(f"{CPU.format(own[0])}/cpufreq/scaling_governor"),
        "MHz": _megahertz(own[0]),
        "gpu": _device(backend),
    }


def _runs(numbers: list[int]) -> list[str]:
    """Return ascending numbers in words: 0, 1, 2 and 5 are 0-2 and 5."""
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][-1] == number - 1:
            found[-1].append(number)
        else:
            found.append([number])
    return [f"{one[0]}-{one[-1]}" if len(one) > 1 else str(one[0]) for one in found]


def _megahertz(core: int) -> float | None:
    """Return the frequency that Linux reports of a core now, None where it does not."""
    kilohertz = _text(f"{CPU.format(core)}/cpufreq/scaling_cur_freq")
    if kilohertz.isdecimal():
        return int(kilohertz) / 1e3
    lines = [line.partition(":")[2] for line in _text("/proc/cpuinfo").splitlines() if line.startswith("cpu MHz")]
    return float(lines[core]) if core < len(lines) else None


def _text(path: str) -> str:
    """Return what is in a file, "" where there is none."""
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _smi(*arguments: str) -> str:
    """Return what nvidia-smi says, without its legend and underlining; "" where it says nothing."""
    said = re.sub(r"\x1b\[[0-9;]*m", "", _said(["nvidia-smi", *arguments]))
    return said.partition("\nLegend:")[0].strip()


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
    return _said(["git", "-C", str(root), "rev-parse", "HEAD"])


def _said(command: list[str]) -> str:
    """Return the output of a program, "" where it fails or is not there."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


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
