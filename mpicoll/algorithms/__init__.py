"""Algorithms: one file per collective, each algorithm a pure function of (rank, size[, root])."""

from mpicoll.algorithms import (  # noqa: F401  (imported so that they register)
    allgather,
    allreduce,
    alltoall,
    barrier,
    bcast,
    gather,
    on_hosts,
    reduce,
    reduce_scatter,
    scan,
    scatter,
)
from mpicoll.algorithms.card import Algorithm
from mpicoll.algorithms.registry import (
    catalogue,
    get,
    known,
    require,
    unregister,
    usable,
)

__all__ = [
    "Algorithm",
    "catalogue",
    "get",
    "known",
    "require",
    "unregister",
    "usable",
]
