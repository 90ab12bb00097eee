"""The nonblocking collectives: arguments as in `blocking.py`; all go through `Communicator._begin`.

A call starts at once and goes on inside `Test`, `Wait` and every other call of mpicoll that waits.
The arrays must not be touched until it is complete; the request holds them.
"""

from __future__ import annotations

from typing import Any

from mpi4py import MPI

from mpicoll.blocking import Algorithm
from mpicoll.request import Request


class Nonblocking:
    """Mixin of the 16 nonblocking collectives."""

    def _begin(self, method: str, arguments: tuple[Any, ...], algorithm: Algorithm, stream: Any) -> Request:
        raise NotImplementedError

    def _gathered_counts(self, sendbuf: Any, recvbuf: Any) -> list[int]:
        raise NotImplementedError

    def Ibarrier(self, *, algorithm: Algorithm = None) -> Request:
        """Start a nonblocking Barrier."""
        return self._begin("Barrier", (), algorithm, None)

    def Ibcast(self, buf: Any, root: int = 0, *, algorithm: Algorithm = None, stream: Any = None) -> Request:
        """Start a nonblocking Bcast."""
        return self._begin("Bcast", (buf, root), algorithm, stream)

    def Igather(
        self,
        sendbuf: Any,
        recvbuf: Any,
        root: int = 0,
        *,
        algorithm: Algorithm = None,
        stream: Any = None,
    ) -> Request:
        """Start a nonblocking Gather."""
        return self._begin("Gather", (sendbuf, recvbuf, root), algorithm, stream)

    def Igatherv(
        self,
        sendbuf: Any,
        recvbuf: Any,
        root: int = 0,
        *,
        algorithm: Algorithm = None,
        stream: Any = None,
    ) -> Request:
        """Start a nonblocking Gatherv."""
        return self._begin("Gatherv", (sendbuf, recvbuf, root), algorithm, stream)

    def Iscatter(
        self,
        sendbuf: Any,
        recvbuf: Any,
        root: int = 0,
        *,
        algorithm: Algorithm = None,
        stream: Any = None,
    ) -> Request:
        """Start a nonblocking Scatter."""
        return self._begin("Scatter", (sendbuf, recvbuf, root), algorithm, stream)

    def Iscatterv(
        self,
        sendbuf: Any,
        recvbuf: Any,
        root: int = 0,
        *,
        algorithm: Algorithm = None,
        stream: Any = None,
    ) -> Request:
        """Start a nonblocking Scatterv."""
        return self._begin("Scatterv", (sendbuf, recvbuf, root), algorithm, stream)

    def Iallgather(self, sendbuf: Any, recvbuf: Any, *, algorithm: Algorithm = None, stream: Any = None) -> Request:
        """Start a nonblocking Allgather."""
        return self._begin("Allgather", (sendbuf, recvbuf), algorithm, stream)

    def Iallgatherv(self, sendbuf: Any, recvbuf: Any, *, algorithm: Algorithm = None, stream: Any = None) -> Request:
        """Start a nonblocking Allgatherv."""
        return self._begin("Allgatherv", (sendbuf, recvbuf), algorithm, stream)

    def Ialltoall(self, sendbuf: Any, recvbuf: Any, *, algorithm: Algorithm = None, stream: Any = None) -> Request:
        """Start a nonblocking Alltoall."""
        return self._begin("Alltoall", (sendbuf, recvbuf), algorithm, stream)

    def Ialltoallv(self, sendbuf: Any, recvbuf: Any, *, algorithm: Algorithm = None, stream: Any = None) -> Request:
        """Start a nonblocking Alltoallv."""
        return self._begin("Alltoallv", (sendbuf, recvbuf), algorithm, stream)

    def Ireduce(
        self,
        sendbuf: Any,
        recvbuf: Any,
        op: Any = MPI.SUM,
        root: int = 0,
        *,
        algorithm: Algorithm = None,
        stream: Any = None,
    ) -> Request:
        """Start a nonblocking Reduce."""
        return self._begin("Reduce", (sendbuf, recvbuf, op, root), algorithm, stream)

    def Iallreduce(
        self,
        sendbuf: Any,
        recvbuf: Any,
        op: Any = MPI.SUM,
        *,
        algorithm: Algorithm = None,
        stream: Any = None,
    ) -> Request:
        """Start a nonblocking Allreduce."""
        return self._begin("Allreduce", (sendbuf, recvbuf, op), algorithm, stream)

    def Ireduce_scatter_block(
        self,
        sendbuf: Any,
        recvbuf: Any,
        op: Any = MPI.SUM,
        *,
        algorithm: Algorithm = None,
        stream: Any = None,
    ) -> Request:
        """Start a nonblocking Reduce_scatter_block."""
        return self._begin("Reduce_scatter_block", (sendbuf, recvbuf, op), algorithm, stream)

    def Ireduce_scatter(
        self,
        sendbuf: Any,
        recvbuf: Any,
        recvcounts: Any = None,
        op: Any = MPI.SUM,
        *,
        algorithm: Algorithm = None,
        stream: Any = None,
    ) -> Request:
        """Start a nonblocking Reduce_scatter."""
        if recvcounts is None:
            recvcounts = self._gathered_counts(sendbuf, recvbuf)
        return self._begin("Reduce_scatter", (sendbuf, recvbuf, recvcounts, op), algorithm, stream)

    def Iscan(
        self,
        sendbuf: Any,
        recvbuf: Any,
        op: Any = MPI.SUM,
        *,
        algorithm: Algorithm = None,
        stream: Any = None,
    ) -> Request:
        """Start a nonblocking Scan."""
        return self._begin("Scan", (sendbuf, recvbuf, op), algorithm, stream)

    def Iexscan(
        self,
        sendbuf: Any,
        recvbuf: Any,
        op: Any = MPI.SUM,
        *,
        algorithm: Algorithm = None,
        stream: Any = None,
    ) -> Request:
        """Start a nonblocking Exscan."""
        return self._begin("Exscan", (sendbuf, recvbuf, op), algorithm, stream)
