"""The functional layer: arrays in, arrays of the same kind out.

    total = mpicoll.allreduce(x)                     # shape, dtype and device are kept
    everything, counts = mpicoll.allgatherv(x)       # finds out by itself how much each rank has

Takes NumPy and CuPy arrays, PyTorch tensors (CPU and CUDA, without copying), scalars, and anything
that speaks DLPack or the CUDA array interface.  `out` receives the result if it is given, and is
returned.  `comm` is any intracommunicator; None is COMM_WORLD.  `algorithm` and `stream` are as in
the methods of `Communicator`.
"""

from __future__ import annotations

from mpicoll.functional.joins import allgatherv, gatherv
from mpicoll.functional.moves import allgather, alltoall, barrier, bcast, gather
from mpicoll.functional.reductions import allreduce, exscan, reduce, reduce_scatter, scan
from mpicoll.functional.results import communicator
from mpicoll.functional.scatters import scatter

__all__ = [
    "allgather",
    "allgatherv",
    "allreduce",
    "alltoall",
    "barrier",
    "bcast",
    "communicator",
    "exscan",
    "gather",
    "gatherv",
    "reduce",
    "reduce_scatter",
    "scan",
    "scatter",
]
