"""The facts of a call on which a choice may depend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mpicoll.schedule.topology import FLAT, Topology


@dataclass(frozen=True)
class Facts:
    """The facts on which a choice may depend: all of them equal on all ranks.

    `Facts("allreduce", 4, 4096)` is an allreduce of 4 KiB on 4 ranks, on the host.

    Attributes:
        collective: row of the table.
        size: number of ranks.
        nbytes: bytes of the full vector, None where not all ranks know them.
        memory: "host" or "device".
        commutative: the operator is, or there is none.
        counts_known: all ranks know all ranks' counts.
        paths: how the arrays may travel, best first.
        reproducible: "" or "runs" or "ranks", see `docs/sharp-bits.md`.
        segment_bytes: wanted size of a segment of a block, 0 to leave it to the cost model.
        root: the root, for which a user's algorithm is proven when it is first used.
        gpus: number of GPUs of all ranks, 0 where arrays are on the host or it is not known.
        topology: which ranks are on one host.
        not_native: why MPI's own collective would not do the same, "" where it would.
    """

    collective: str
    size: int
    nbytes: int | None
    memory: str = "host"
    commutative: bool = True
    counts_known: bool = True
    paths: tuple[str, ...] = ("host",)
    segment_bytes: int = 0
    reproducible: str = ""
    root: int = 0
    gpus: int = 0
    topology: Topology = FLAT
    not_native: str = ""

    @property
    def needs(self) -> dict[str, Any]:
        """Needs of the call, as `Algorithm.refuses` takes them."""
        return {
            "commutative": self.commutative,
            "counts_known": self.counts_known,
            "left_fold": self.reproducible == "ranks",
            "topology": self.topology,
        }
