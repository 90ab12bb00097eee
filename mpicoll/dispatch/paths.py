"""The table of paths: one row for each way on which arrays can travel, with its cost.

What a path does is in `runtime/paths`, under the same name.
"""

from __future__ import annotations

from dataclasses import dataclass

from mpicoll.analysis.cost import CostModel
from mpicoll.analysis.host_traffic import HostLink
from mpicoll.settings import settings


@dataclass(frozen=True)
class PathRow:
    """One path, as far as dispatch knows it.

    On the path host no segment of a block is below 32 KiB; on the path mapped a block of 1 MiB has 2 waves.

    Attributes:
        name: as in rules, settings and plans.
        memory: "host" or "device": which arrays it serves.
        model: parameters of its cost.
        smallest_segment: bytes of a block below which a segment is not worth a message of its own; 0 where the path
            takes whole blocks, and needs no scratch.
        wave: bytes of a block that such a path moves at a time.
        enqueues: the host only enqueues a call, whose end comes on the device.
        one_host: it needs all ranks on one host.
        hosts_only: it serves algorithms for several hosts, and no others.
    """

    name: str
    memory: str
    model: CostModel
    smallest_segment: int = 0
    wave: int = 1 << 62
    by_host: bool = False
    enqueues: bool = False
    one_host: bool = False
    hosts_only: bool = False

    @property
    def takes_segments(self) -> bool:
        """True where blocks are cut into segments for it."""
        return self.smallest_segment > 0


#: best first
PATHS: dict[str, PathRow] = {
    row.name: row
    for row in (
        PathRow(
            "host",
            "host",
            CostModel(
                5e-6,
                1.5e-6,
                1 / 4e9,
                1 / 6e9,
                2e-6,
                source="2 cores, shared memory, persistent requests through mpi4py",
            ),
            smallest_segment=32 << 10,
        ),
        PathRow(
            "mapped",
            "device",
            CostModel(
                0.33e-6, 0.018e-6, 1 / 333e9, 0.0, 0.0, 15.4e-6, source="fitted to 314 times on 4 H200, 2026-11-28"
            ),
            wave=512 << 10,
            enqueues=True,
            one_host=True,
        ),
        PathRow(
            "bridged",
            "device",
            CostModel(0.33e-6, 0.018e-6, 1 / 333e9, 0.0, 0.0, 60e-6, source="as mapped; of a call: an estimate"),
            wave=512 << 10,
            hosts_only=True,
        ),
        PathRow(
            "direct",
            "device",
            CostModel(
                13.2e-6,
                0.36e-6,
                1 / 325e9,
                1 / 1770e9,
                13.8e-6,
                23.2e-6,
                source="fitted to 266 times on 4 H200, 2026-11-28",
            ),
            smallest_segment=1 << 20,
        ),
        PathRow(
            "staged",
            "device",
            CostModel(
                5e-6,
                1.5e-6,
                1 / 10e9,
                1 / 8e9,
                2e-6,
                21e-6,
                0.3e-9,
                source="host messages, copies over PCIe; of a call as in 152 times on 4 H100, to 64 KiB, 2026-11-28",
            ),
            smallest_segment=64 << 10,
            by_host=True,
        ),
    )
}


#: between hosts, until it is measured: a slow network, where a wrong choice costs the most
HOST_LINK = HostLink(15e-6, 1 / 1.2e9, source="not measured: as 10 Gbit/s Ethernet")


def serving(memory: str) -> tuple[str, ...]:
    """Return the names of the paths for arrays in "host" or "device" memory, best first."""
    return tuple(name for name, row in PATHS.items() if row.memory == memory)


def wanted() -> str | None:
    """Return the path that is set, None if none is; raises ValueError for a name that no path has."""
    name: str | None = settings.path
    if name is not None and name not in PATHS:
        raise ValueError(f"setting path: unknown path {name!r}; known: {', '.join(PATHS)}")
    return name
