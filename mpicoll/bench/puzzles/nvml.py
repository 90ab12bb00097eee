"""Links between GPUs of one host, as NVML reports them through nvidia-ml-py.

Two GPUs of an H200 server with switches: `NVLink 4, 18 links through switches`, 450 GB/s in one direction.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mpicoll.bench.puzzles.link import Link

#: NVML's number of a version -> (generation, GB/s of one link in one direction)
NVLINKS = {
    1: ("1", 20.0),
    2: ("2", 25.0),
    3: ("2.2", 25.0),
    4: ("3", 25.0),
    5: ("3.1", 25.0),
    6: ("4", 25.0),
    7: ("5", 50.0),
}
#: generation of PCI Express -> GB/s of one lane in one direction, its encoding counted
LANES = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
#: NVML_TOPOLOGY_*: what is on the way between two GPUs
WAYS = {
    0: "on one board",
    10: "through one PCIe switch",
    20: "through several PCIe switches",
    30: "through one host bridge",
    40: "between host bridges of one NUMA node",
    50: "between NUMA nodes",
}
#: NVML_P2P_CAPS_INDEX_NVLINK, NVML_P2P_STATUS_OK, NVML_NVLINK_DEVICE_TYPE_SWITCH
_NVLINK, _OK, _SWITCH = 2, 0, 2


def link(bus: str, other: str, nvml: Any = None) -> Link:
    """Return the link between two GPUs of this host, by their addresses on the bus.

    Args:
        bus: of the GPU that sends.
        other: of the GPU that receives.
        nvml: the module pynvml; imported if None.
    """
    try:
        nvml = nvml or _library()
        one, two = (nvml.nvmlDeviceGetHandleByPciBusId(address.encode()) for address in (bus, other))
        if nvml.nvmlDeviceGetP2PStatus(one, two, _NVLINK) == _OK:
            return _by_nvlink(nvml, one, other)
        return _by_pcie(nvml, one, two)
    except Exception as error:  # not installed, not allowed, or it does not know: all are reasons
        return Link(f"unknown: NVML does not tell ({type(error).__name__}: {error})")


def _library() -> Any:
    import pynvml  # nvidia-ml-py

    pynvml.nvmlInit()
    return pynvml


def _by_nvlink(nvml: Any, one: Any, other: str) -> Link:
    """Return the link of two GPUs with NVLink: those that end at the other GPU, or all that end at a switch."""
    active = list(_active(nvml, one))
    through = [number for number in active if nvml.nvmlDeviceGetNvLinkRemoteDeviceType(one, number) == _SWITCH]
    direct = [number for number in active if number not in through and _end(nvml, one, number) == _short(other)]
    used = direct or through
    if not used:
        return Link("NVLink, links not reported")
    generation, each = NVLINKS.get(int(nvml.nvmlDeviceGetNvLinkVersion(one, used[0])), ("", None))
    number = f"{len(used)} link" + ("s" if len(used) > 1 else "")
    words = " ".join(filter(None, ("NVLink", generation))) + f", {number}" + ("" if direct else " through switches")
    return Link(words, each and each * len(used))


def _active(nvml: Any, one: Any) -> Any:
    """Yield the numbers of a GPU's links that are up; the first that there is not ends them."""
    for number in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            up = nvml.nvmlDeviceGetNvLinkState(one, number)
        except nvml.NVMLError:
            return
        if up:
            yield number


def _end(nvml: Any, one: Any, number: int) -> str:
    """Return the address on the bus of what is at a link's other end."""
    address = nvml.nvmlDeviceGetNvLinkRemotePciInfo(one, number).busId
    return _short(address.decode() if isinstance(address, bytes) else str(address))


def _short(bus: str) -> str:
    """Return an address with its domain in four digits: CUDA has four, NVML eight."""
    domain, _, rest = bus.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"


def _by_pcie(nvml: Any, one: Any, two: Any) -> Link:
    """Return the link of two GPUs over PCI Express: the slower GPU's slot limits it."""
    slots = [
        (int(nvml.nvmlDeviceGetMaxPcieLinkGeneration(gpu)), int(nvml.nvmlDeviceGetMaxPcieLinkWidth(gpu)))
        for gpu in (one, two)
    ]
    generation, width = min(slots, key=lambda slot: LANES.get(slot[0], 0.0) * slot[1])
    way = WAYS.get(int(nvml.nvmlDeviceGetTopologyCommonAncestor(one, two)), "")
    each = LANES.get(generation)
    return Link(f"PCIe {generation} x{width} {way}".rstrip(), each and each * width)


def numa_node(bus: str, devices: Path = Path("/sys/bus/pci/devices")) -> str:
    """Return the NUMA node of a GPU as Linux tells it; "" if it does not."""
    try:
        number = (devices / _short(bus) / "numa_node").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""
    return "" if number == "-1" else number
