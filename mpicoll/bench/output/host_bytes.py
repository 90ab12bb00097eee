"""Bytes between hosts: what a call sends out of the busiest host, beside what must leave one at least.

An allreduce of 1 MiB by two_shot on 2 hosts of 4 ranks sends 4 MiB out of a host.  1 MiB is the least: the ratio is 4.
"""

from __future__ import annotations

from dataclasses import dataclass

from mpicoll.algorithms import registry
from mpicoll.analysis.host_bounds import UNKNOWN, least_host_bytes
from mpicoll.analysis.host_traffic import host_bytes
from mpicoll.bench.request.cases import Case
from mpicoll.bench.request.numbers import dtype_named
from mpicoll.dispatch.predict import MOST_COUNTED
from mpicoll.dispatch.rules import NATIVE
from mpicoll.schedule.partition import split
from mpicoll.schedule.topology import Topology


@dataclass(frozen=True)
class HostBytes:
    """The bytes that a call sends between hosts.

    Attributes:
        nbytes: bytes that leave or enter the busiest host; None where they are not counted.
        least: bytes that do so whatever the algorithm; None where they are not known.
        why: the ratio of both is not known; "" where it is.
    """

    nbytes: float | None = None
    least: float | None = None
    why: str = ""

    @property
    def ratio(self) -> float | None:
        """Bytes over the least possible."""
        return self.nbytes / self.least if self.nbytes is not None and self.least else None


def host_bytes_of(case: Case, algorithm: str, topology: Topology) -> HostBytes:
    """Return what a call sends between hosts.

    Args:
        case: what is called.
        algorithm: the name of that which carries it out.
        topology: where the ranks are, on several hosts.
    """
    row = case.call.row
    if algorithm == NATIVE:
        return HostBytes(why="the messages of MPI's own collective are not known")
    if case.size > MOST_COUNTED:
        return HostBytes(why=f"messages of more than {MOST_COUNTED} ranks are not counted")
    if row.name in UNKNOWN:
        return HostBytes(why=UNKNOWN[row.name])
    card = registry.get(row.name, algorithm)
    counts = split(case.count, card.vector_blocks(case.size)) if row.free else case.counts()
    sizes = [count * dtype_named(case.dtype).itemsize for count in counts]
    nbytes, least = host_bytes(card, topology, case.root, sizes), least_host_bytes(row.name, topology, case.root, sizes)
    return HostBytes(nbytes, least, "" if least else "no bytes must be sent")
