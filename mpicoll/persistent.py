"""The persistent collectives: arguments as in `blocking.py`; all go through `Communicator._prepare`.

A call is planned and bound once, and `Start`ed as often as it is needed.  The arrays stay the same;
the request holds them until it is freed.
"""

from __future__ import annotations

from typing import Any

from mpi4py import MPI

from mpicoll.blocking import Algorithm
from mpicoll.request import PersistentRequest


class Persistent:
    """Mixin of the 16 persistent collectives."""

    def _prepare(self, method: str, arguments: tuple[Any, ...], algorithm: Algorithm, stream: Any) -> PersistentRequest:
        raise NotImplementedError

    def _gathered_counts(self, sendbuf: Any, recvbuf: Any) -> list[int]:
        raise NotImplementedError

    def Barrier_init(self, info: MPI.Info = MPI.INFO_NULL, *, algorithm: Algorithm = None) -> PersistentRequest:
        """Make a persistent Barrier; info is not used."""
        return self._prepare("Barrier", (), algorithm, None)

    def Bcast_init(
        self,
        buf: Any,
        root: int = 0,
        info: MPI.Info = MPI.INFO_NULL,
        *,
        algorithm: Algorithm = None,
        stream: Any = None,
    ) -> PersistentRequest:
        """Make a persistent Bcast; info is not used."""
        return self._prepare("Bcast", (buf, root), algorithm, stream)

    def Gather_init(
        self,
        sendbuf: Any,
        recvbuf: Any,
        root: int = 0,
        info: MPI.Info = MPI.INFO_NULL,
        *,
        algorithm: Algorithm = None,
        stream: Any = None,
    ) -> PersistentRequest:
        """Make a persistent Gather; info is not used."""
        return self._prepare("Gather", (sendbuf, recvbuf, root), algorithm, stream)

    def Gatherv_init(
        self,
        sendbuf: Any,
        recvbuf: Any,
        root: int = 0,
        info: MPI.Info = MPI.INFO_NULL,
        *,
        algorithm: Algorithm = None,
        stream: Any = None,
    ) -> PersistentRequest:
        """Make a persistent Gatherv; info is not used."""
        return self._prepare("Gatherv", (sendbuf, recvbuf, root), algorithm, stream)

    def Scatter_init(
        self,
        sendbuf: Any,
        recvbuf: Any,
        root: int = 0,
        info: MPI.Info = MPI.INFO_NULL,
        *,
        algorithm: Algorithm = None,
        stream: Any = None,
    ) -> PersistentRequest:
        """Make a persistent Scatter; info is not used."""
        return self._prepare("Scatter", (sendbuf, recvbuf, root), algorithm, stream)

    def Scatterv_init(
        self,
        sendbuf: Any,
        recvbuf: Any,
        root: int = 0,
        info: MPI.Info = MPI.INFO_NULL,
        *,
        algorithm: Algorithm = None,
        stream: Any = None,
    ) -> PersistentRequest:
        """Make a persistent Scatterv; info is not used."""
        return self._prepare("Scatterv", (sendbuf, recvbuf, root), algorithm, stream)

    def Allgather_init(
        self,
        sendbuf: Any,
        recvbuf: Any,
        info: MPI.Info = MPI.INFO_NULL,
        *,
        algorithm: Algorithm = None,
        stream: Any = None,
    ) -> PersistentRequest:
        """Make a persistent Allgather; info is not used."""
        return self._prepare("Allgather", (sendbuf, recvbuf), algorithm, stream)

    def Allgatherv_init(
        self,
        sendbuf: Any,
        recvbuf: Any,
        info: MPI.Info = MPI.INFO_NULL,
        *,
        algorithm: Algorithm = None,
        stream: Any = None,
    ) -> PersistentRequest:
        """Make a persistent Allgatherv; info is not used."""
        return self._prepare("Allgatherv", (sendbuf, recvbuf), algorithm, stream)

    def Alltoall_init(
        self,
        sendbuf: Any,
        recvbuf: Any,
        info: MPI.Info = MPI.INFO_NULL,
        *,
        algorithm: Algorithm = None,
        stream: Any = None,
    ) -> PersistentRequest:
        """Make a persistent Alltoall; info is not used."""
        return self._prepare("Alltoall", (sendbuf, recvbuf), algorithm, stream)

    def Alltoallv_init(
        self,
        sendbuf: Any,
        recvbuf: Any,
        info: MPI.Info = MPI.INFO_NULL,
        *,
        algorithm: Algorithm = None,
        stream: Any = None,
    ) -> PersistentRequest:
        """Make a persistent Alltoallv; info is not used."""
        return self._prepare("Alltoallv", (sendbuf, recvbuf), algorithm, stream)

    def Reduce_init(
        self,
        sendbuf: Any,
        recvbuf: Any,
        op: Any = MPI.SUM,
        root: int = 0,
        info: MPI.Info = MPI.INFO_NULL,
        *,
        algorithm: Algorithm = None,
        stream: Any = None,
    ) -> PersistentRequest:
        """Make a persistent Reduce; info is not used."""
        return self._prepare("Reduce", (sendbuf, recvbuf, op, root), algorithm, stream)

    def Allreduce_init(
        self,
        sendbuf: Any,
        recvbuf: Any,
        op: Any = MPI.SUM,
        info: MPI.Info = MPI.INFO_NULL,
        *,
        algorithm: Algorithm = None,
        stream: Any = None,
    ) -> PersistentRequest:
        """Make a persistent Allreduce; info is not used."""
        return self._prepare("Allreduce", (sendbuf, recvbuf, op), algorithm, stream)

    def Reduce_scatter_block_init(
        self,
        sendbuf: Any,
        recvbuf: Any,
        op: Any = MPI.SUM,
        info: MPI.Info = MPI.INFO_NULL,
        *,
        algorithm: Algorithm = None,
        stream: Any = None,
    ) -> PersistentRequest:
        """Make a persistent Reduce_scatter_block; info is not used."""
        return self._prepare("Reduce_scatter_block", (sendbuf, recvbuf, op), algorithm, stream)

    def Reduce_scatter_init(
        self,
        sendbuf: Any,
        recvbuf: Any,
        recvcounts: Any = None,
        op: Any = MPI.SUM,
        info: MPI.Info = MPI.INFO_NULL,
        *,
        algorithm: Algorithm = None,
        stream: Any = None,
    ) -> PersistentRequest:
        """Make a persistent Reduce_scatter; info is not used."""
        if recvcounts is None:
            recvcounts = self._gathered_counts(sendbuf, recvbuf)
        return self._prepare("Reduce_scatter", (sendbuf, recvbuf, recvcounts, op), algorithm, stream)

    def Scan_init(
        self,
        sendbuf: Any,
        recvbuf: Any,
        op: Any = MPI.SUM,
        info: MPI.Info = MPI.INFO_NULL,
        *,
        algorithm: Algorithm = None,
        stream: Any = None,
    ) -> PersistentRequest:
        """Make a persistent Scan; info is not used."""
        return self._prepare("Scan", (sendbuf, recvbuf, op), algorithm, stream)

    def Exscan_init(
        self,
        sendbuf: Any,
        recvbuf: Any,
        op: Any = MPI.SUM,
        info: MPI.Info = MPI.INFO_NULL,
        *,
        algorithm: Algorithm = None,
        stream: Any = None,
    ) -> PersistentRequest:
        """Make a persistent Exscan; info is not used."""
        return self._prepare("Exscan", (sendbuf, recvbuf, op), algorithm, stream)
