"""Links between ranks, as the machine reports them: hosts by MPI, NUMA nodes by Linux, GPUs by NVML."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

from mpi4py import MPI

from mpicoll.bench.measure.backends import Backend
from mpicoll.bench.puzzles import nvml
from mpicoll.bench.puzzles.chains import Pair
from mpicoll.bench.puzzles.link import Link

#: where Linux tells of NUMA nodes
NODES = Path("/sys/devices/system/node")


@dataclass(frozen=True)
class Site:
    """Where a rank is.

    Attributes:
        host: MPI's name of the processor.
        numa: the NUMA node of the rank's cores, or of its GPU; "" if there is not one.
        bus: the GPU's address on the bus; "" for arrays on the host.
    """

    host: str
    numa: str = ""
    bus: str = ""

    def __str__(self) -> str:
        return ", ".join(filter(None, (self.host, f"NUMA node {self.numa}" if self.numa else "", self.bus)))


def site(backend: Backend) -> Site:
    """Return where this rank is."""
    host = MPI.Get_processor_name()
    if backend.kind == "numpy":
        return Site(host, numa_of_cores(os.sched_getaffinity(0), NODES))
    bus = str(backend.xp.cuda.Device(backend.device).pci_bus_id)
    return Site(host, nvml.numa_node(bus), bus)


def numa_of_cores(cores: set[int], nodes: Path) -> str:
    """Return the NUMA node that has all of some cores; "" if no one has."""
    for node in sorted(nodes.glob("node[0-9]*")):
        if cores <= _listed((node / "cpulist").read_text(encoding="ascii")):
            return node.name.removeprefix("node")
    return ""


def _listed(text: str) -> set[int]:
    """Return the numbers of Linux's lists: {0, 1, 2, 8} for "0-2,8"."""
    ends = [word.split("-") for word in text.strip().split(",") if word]
    return {core for word in ends for core in range(int(word[0]), int(word[-1]) + 1)}


def links(world: MPI.Intracomm, backend: Backend) -> tuple[list[Site], dict[Pair, Link]]:
    """Return where each rank is, and the link of each pair; collective. A rank asks for its own GPU."""
    sites = world.allgather(site(backend))
    mine = {target: between(sites[world.rank], other) for target, other in enumerate(sites)}
    found = world.allgather(mine)
    return sites, {(a, b): found[a][b] for a, b in permutations(range(world.size), 2)}


def between(one: Site, other: Site) -> Link:
    """Return the link from one rank to another, as it is seen on the first one's host."""
    if one.host != other.host:
        return Link("the network between hosts")
    if one.bus and other.bus:
        return Link("the memory of one GPU") if one.bus == other.bus else nvml.link(one.bus, other.bus)
    if one.numa and other.numa and one.numa != other.numa:
        return Link("the memory of one host, between NUMA nodes")
    return Link("the memory of one host")
