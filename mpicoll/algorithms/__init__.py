"""How: one file per collective, each algorithm a pure function of (rank, size[, root])."""

from mpicoll.algorithms import (  # noqa: F401  (imported so that they register)
    allgather,
    allreduce,
    alltoall,
    barrier,
    bcast,
    gather,
    reduce,
    reduce_scatter,
    scan,
    scatter,
)
from mpicoll.algorithms.card import Algorithm
from mpicoll.algorithms.registry import (
    algorithm,
    catalogue,
    get,
    known,
    require,
    unregister,
    usable,
    verify_algorithm,
)

__all__ = [
    "Algorithm",
    "algorithm",
    "catalogue",
    "get",
    "known",
    "require",
    "unregister",
    "usable",
    "verify_algorithm",
]
