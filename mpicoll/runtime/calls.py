"""The calls: for each method of mpi4py, how its arguments become operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpi4py import MPI

from mpicoll.runtime import operands as o
from mpicoll.runtime.operands import Operands


def _barrier(rank: int, size: int) -> Operands:
    return o.barrier()


def _bcast(rank: int, size: int, buf: Any, root: int = 0) -> Operands:
    return o.bcast(rank, size, buf, root)


def _gather(vector: bool) -> Callable[..., Operands]:
    def read(rank: int, size: int, sendbuf: Any, recvbuf: Any, root: int = 0) -> Operands:
        return o.gather(rank, size, sendbuf, recvbuf, root, vector)

    return read


def _scatter(vector: bool) -> Callable[..., Operands]:
    def read(rank: int, size: int, sendbuf: Any, recvbuf: Any, root: int = 0) -> Operands:
        return o.scatter(rank, size, sendbuf, recvbuf, root, vector)

    return read


def _allgather(vector: bool) -> Callable[..., Operands]:
    def read(rank: int, size: int, sendbuf: Any, recvbuf: Any) -> Operands:
        return o.allgather(rank, size, sendbuf, recvbuf, vector)

    return read


def _alltoall(vector: bool) -> Callable[..., Operands]:
    def read(rank: int, size: int, sendbuf: Any, recvbuf: Any) -> Operands:
        return o.alltoall(rank, size, sendbuf, recvbuf, vector)

    return read


def _reduce(rank: int, size: int, sendbuf: Any, recvbuf: Any, op: Any = MPI.SUM, root: int = 0) -> Operands:
    return o.reduction("reduce", rank, size, sendbuf, recvbuf, op, root)


def _reduction(name: str) -> Callable[..., Operands]:
    def read(rank: int, size: int, sendbuf: Any, recvbuf: Any, op: Any = MPI.SUM) -> Operands:
        return o.reduction(name, rank, size, sendbuf, recvbuf, op)

    return read


def _reduce_scatter_block(rank: int, size: int, sendbuf: Any, recvbuf: Any, op: Any = MPI.SUM) -> Operands:
    return o.reduce_scatter(rank, size, sendbuf, recvbuf, None, op)


def _reduce_scatter(
    rank: int, size: int, sendbuf: Any, recvbuf: Any, recvcounts: Any = None, op: Any = MPI.SUM
) -> Operands:
    return o.reduce_scatter(rank, size, sendbuf, recvbuf, recvcounts, op)


#: method -> (rank, size, *arguments of the method) -> operands
CALLS: dict[str, Callable[..., Operands]] = {
    "Barrier": _barrier,
    "Bcast": _bcast,
    "Gather": _gather(vector=False),
    "Gatherv": _gather(vector=True),
    "Scatter": _scatter(vector=False),
    "Scatterv": _scatter(vector=True),
    "Allgather": _allgather(vector=False),
    "Allgatherv": _allgather(vector=True),
    "Alltoall": _alltoall(vector=False),
    "Alltoallv": _alltoall(vector=True),
    "Reduce": _reduce,
    "Allreduce": _reduction("allreduce"),
    "Reduce_scatter_block": _reduce_scatter_block,
    "Reduce_scatter": _reduce_scatter,
    "Scan": _reduction("scan"),
    "Exscan": _reduction("exscan"),
}


def read_call(method: str, rank: int, size: int, arguments: tuple[Any, ...], named: dict[str, Any]) -> Operands:
    """Return a call's operands."""
    if method not in CALLS:
        raise ValueError(f"no collective method {method!r}; known: {', '.join(CALLS)}")
    return CALLS[method](rank, size, *arguments, **named)
