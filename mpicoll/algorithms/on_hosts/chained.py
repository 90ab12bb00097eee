"""Chained algorithms: striped ones whose stripes pass along a chain of hosts."""

from __future__ import annotations

from mpicoll.algorithms.on_hosts.hierarchy import between, inside, on_hosts
from mpicoll.algorithms.on_hosts.stage import Stage
from mpicoll.algorithms.on_hosts.striped import bcast_in_stripes, reduce_in_stripes
from mpicoll.schedule.ir import Schedule


@on_hosts(
    "bcast",
    name="chained",
    cost="2*(α + (p-1)*o) + (2*p-1)/p*n*β",
    blocks="p",
    scratch="p",
    inner=(inside("scatter", "linear"), between("bcast", "ring"), inside("allgather", "linear")),
)
def chained_bcast(stage: Stage, root: int) -> Schedule:
    """Scatter inside the root's host, pass each stripe along a chain of hosts, allgather inside each host.

    One vector leaves each host, which is the least; cut into segments, all links work at once: long vectors.
    """
    return bcast_in_stripes(stage, root)


@on_hosts(
    "reduce",
    name="chained",
    cost="2*(α + (p-1)*o) + 2*(p-1)/p*n*β + 3*λ + n*γ",
    blocks="p",
    scratch="5*p",
    inner=(inside("reduce_scatter", "all_pairs"), between("reduce", "ring"), inside("gather", "linear")),
)
def chained_reduce(stage: Stage, root: int) -> Schedule:
    """Reduce-scatter inside each host, reduce each stripe along a chain of hosts, gather in the root's.

    One vector leaves each host, which is the least; cut into segments, all links work at once: long vectors.
    """
    return reduce_in_stripes(stage, root)
