"""The blocking collectives: signatures and documentation; all go through `Communicator._run`.

In every method, n is a number of elements, p the number of ranks, and dtypes are equal in both
buffers.  A buffer is an array, or a list of array, count and displacement (the element that it starts
at), or (in the v-variants) of array, counts and displacements, as in mpi4py.  Arrays are NumPy's or CuPy's, or share
their memory through DLPack or the CUDA array interface; others than C-contiguous ones are packed.

Keyword arguments of every method but Barrier:

    algorithm: a name from `mpicoll.algorithms(...)`, or name/segments, or name@path; None chooses.
    stream: CUDA stream that orders the call; None is CuPy's current one.

Raised by every method, before anything is sent:

    ValueError: sizes that do not fit, a root out of range, buffers or blocks to be received that overlap,
        an unknown algorithm.
    TypeError: dtypes that differ, or that the operator is not defined for; roots and counts that are no integers.
    UnsupportedError: the algorithm or the operator cannot serve these arguments.
"""

from __future__ import annotations

from typing import Any

from mpi4py import MPI

from mpicoll.buffers import AnyOp, BufferSpec, Counts, OrInPlace, OrNone

#: an algorithm's name, or None to choose
Algorithm = str | None
#: of a barrier, which is remembered as calls of two buffers are
NO_BUFFERS = None, None


class Blocking:
    """Mixin of the 16 blocking collectives."""

    def _run(self, method: str, arguments: tuple[Any, ...], algorithm: Algorithm, stream: Any) -> None:
        raise NotImplementedError

    def _gathered_counts(self, sendbuf: Any, recvbuf: Any) -> list[int]:
        raise NotImplementedError

    def Barrier(self, *, algorithm: Algorithm = None) -> None:
        """Return when every rank has called it."""
        return self._run("Barrier", NO_BUFFERS, algorithm, None)

    def Bcast(self, buf: BufferSpec, root: int = 0, *, algorithm: Algorithm = None, stream: Any = None) -> None:
        """Send n elements from the root to all ranks.

        Args:
            buf: n elements; read at the root, written elsewhere.
            root: rank that sends.
            algorithm: see the module.
            stream: see the module.
        """
        return self._run("Bcast", (buf, root), algorithm, stream)

    def Gather(
        self, sendbuf: OrInPlace, recvbuf: OrNone, root: int = 0, *, algorithm: Algorithm = None, stream: Any = None
    ) -> None:
        """Collect n elements of each rank at the root.

        Args:
            sendbuf: n elements; MPI.IN_PLACE at the root if its own block is in recvbuf already.
            recvbuf: p*n elements at the root; ignored elsewhere, may be None.
            root: rank that receives.
            algorithm: see the module.
            stream: see the module.
        """
        return self._run("Gather", (sendbuf, recvbuf, root), algorithm, stream)

    def Gatherv(
        self, sendbuf: OrInPlace, recvbuf: OrNone, root: int = 0, *, algorithm: Algorithm = None, stream: Any = None
    ) -> None:
        """Collect counts[r] elements of each rank r at the root.

        Args:
            sendbuf: counts[rank] elements; MPI.IN_PLACE at the root.
            recvbuf: at the root [array, counts] or [array, (counts, displs)] in elements;
                ignored elsewhere, may be None.
            root: rank that receives.
            algorithm: one that does not forward; see the module.
            stream: see the module.
        """
        return self._run("Gatherv", (sendbuf, recvbuf, root), algorithm, stream)

    def Scatter(
        self, sendbuf: OrNone, recvbuf: OrInPlace, root: int = 0, *, algorithm: Algorithm = None, stream: Any = None
    ) -> None:
        """Spread the root's p*n elements, n to each rank.

        Args:
            sendbuf: p*n elements at the root; ignored elsewhere, may be None.
            recvbuf: n elements; MPI.IN_PLACE at the root leaves its own block in sendbuf.
            root: rank that sends.
            algorithm: see the module.
            stream: see the module.
        """
        return self._run("Scatter", (sendbuf, recvbuf, root), algorithm, stream)

    def Scatterv(
        self, sendbuf: OrNone, recvbuf: OrInPlace, root: int = 0, *, algorithm: Algorithm = None, stream: Any = None
    ) -> None:
        """Spread the root's elements, counts[r] to each rank r.

        Args:
            sendbuf: at the root [array, counts] or [array, (counts, displs)] in elements;
                ignored elsewhere, may be None.
            recvbuf: counts[rank] elements; MPI.IN_PLACE at the root.
            root: rank that sends.
            algorithm: one that does not forward; see the module.
            stream: see the module.
        """
        return self._run("Scatterv", (sendbuf, recvbuf, root), algorithm, stream)

    def Allgather(
        self, sendbuf: OrInPlace, recvbuf: BufferSpec, *, algorithm: Algorithm = None, stream: Any = None
    ) -> None:
        """Collect n elements of each rank on all ranks.

        Args:
            sendbuf: n elements, or MPI.IN_PLACE, or this rank's own block of recvbuf.
            recvbuf: p*n elements.
            algorithm: see the module.
            stream: see the module.
        """
        return self._run("Allgather", (sendbuf, recvbuf), algorithm, stream)

    def Allgatherv(
        self, sendbuf: OrInPlace, recvbuf: BufferSpec, *, algorithm: Algorithm = None, stream: Any = None
    ) -> None:
        """Collect counts[r] elements of each rank r on all ranks.

        Args:
            sendbuf: counts[rank] elements, or MPI.IN_PLACE, or this rank's own block of recvbuf.
            recvbuf: [array, counts] or [array, (counts, displs)] in elements, counts equal on all ranks.
            algorithm: see the module.
            stream: see the module.
        """
        return self._run("Allgatherv", (sendbuf, recvbuf), algorithm, stream)

    def Alltoall(
        self, sendbuf: OrInPlace, recvbuf: BufferSpec, *, algorithm: Algorithm = None, stream: Any = None
    ) -> None:
        """Send block q of n elements to each rank q; its block for this rank becomes block q.

        Args:
            sendbuf: p*n elements, or MPI.IN_PLACE to replace recvbuf (which takes a copy of it).
            recvbuf: p*n elements.
            algorithm: see the module.
            stream: see the module.
        """
        return self._run("Alltoall", (sendbuf, recvbuf), algorithm, stream)

    def Alltoallv(
        self, sendbuf: OrInPlace, recvbuf: BufferSpec, *, algorithm: Algorithm = None, stream: Any = None
    ) -> None:
        """Send blocks of any counts to each rank.

        Args:
            sendbuf: [array, counts] or [array, (counts, displs)] in elements, or MPI.IN_PLACE.
            recvbuf: the same for what is received.
            algorithm: one that does not forward; see the module.
            stream: see the module.
        """
        return self._run("Alltoallv", (sendbuf, recvbuf), algorithm, stream)

    def Reduce(
        self,
        sendbuf: OrInPlace,
        recvbuf: OrNone,
        op: AnyOp = MPI.SUM,
        root: int = 0,
        *,
        algorithm: Algorithm = None,
        stream: Any = None,
    ) -> None:
        """Combine n elements of all ranks; the root gets the result.

        Args:
            sendbuf: n elements; at the root MPI.IN_PLACE (or recvbuf itself) takes them from recvbuf.
            recvbuf: n elements at the root; ignored elsewhere, may be None.
            op: MPI.SUM, PROD, MAX, MIN, LAND, LOR, LXOR, BAND, BOR, BXOR or mpicoll.AVG.
            root: rank that receives.
            algorithm: see the module.
            stream: see the module.
        """
        return self._run("Reduce", (sendbuf, recvbuf, op, root), algorithm, stream)

    def Allreduce(
        self,
        sendbuf: OrInPlace,
        recvbuf: BufferSpec,
        op: AnyOp = MPI.SUM,
        *,
        algorithm: Algorithm = None,
        stream: Any = None,
    ) -> None:
        """Combine n elements of all ranks; every rank gets the result, with the same bits.

        Args:
            sendbuf: n elements, or MPI.IN_PLACE (or recvbuf itself) to take them from recvbuf.
            recvbuf: n elements.
            op: as in Reduce.
            algorithm: see the module.
            stream: see the module.
        """
        return self._run("Allreduce", (sendbuf, recvbuf, op), algorithm, stream)

    def Reduce_scatter_block(
        self,
        sendbuf: OrInPlace,
        recvbuf: BufferSpec,
        op: AnyOp = MPI.SUM,
        *,
        algorithm: Algorithm = None,
        stream: Any = None,
    ) -> None:
        """Combine p blocks of n elements of all ranks; rank r gets block r.

        Args:
            sendbuf: p*n elements.  With MPI.IN_PLACE they are in recvbuf, and the result is put at its
                **front** (as MPI does).  recvbuf may also be sendbuf[rank*n:(rank+1)*n], so that the
                result replaces this rank's own block (as NCCL does).
            recvbuf: n elements.
            op: as in Reduce.
            algorithm: see the module.
            stream: see the module.
        """
        return self._run("Reduce_scatter_block", (sendbuf, recvbuf, op), algorithm, stream)

    def Reduce_scatter(
        self,
        sendbuf: OrInPlace,
        recvbuf: BufferSpec,
        recvcounts: Counts | None = None,
        op: AnyOp = MPI.SUM,
        *,
        algorithm: Algorithm = None,
        stream: Any = None,
    ) -> None:
        """Combine blocks of recvcounts[r] elements of all ranks; rank r gets block r.

        Args:
            sendbuf: sum(recvcounts) elements; in place as in Reduce_scatter_block.
            recvbuf: recvcounts[rank] elements.
            recvcounts: elements of each block, equal on all ranks; None gathers the sizes of recvbuf
                (one more message each way), which in-place calls do not allow.
            op: as in Reduce.
            algorithm: see the module.
            stream: see the module.
        """
        if recvcounts is None:
            recvcounts = self._gathered_counts(sendbuf, recvbuf)
        return self._run("Reduce_scatter", (sendbuf, recvbuf, recvcounts, op), algorithm, stream)

    def Scan(
        self,
        sendbuf: OrInPlace,
        recvbuf: BufferSpec,
        op: AnyOp = MPI.SUM,
        *,
        algorithm: Algorithm = None,
        stream: Any = None,
    ) -> None:
        """Combine n elements of ranks 0 to r on each rank r.

        Args:
            sendbuf: n elements, or MPI.IN_PLACE (or recvbuf itself) to take them from recvbuf.
            recvbuf: n elements.
            op: as in Reduce.
            algorithm: see the module.
            stream: see the module.
        """
        return self._run("Scan", (sendbuf, recvbuf, op), algorithm, stream)

    def Exscan(
        self,
        sendbuf: OrInPlace,
        recvbuf: BufferSpec,
        op: AnyOp = MPI.SUM,
        *,
        algorithm: Algorithm = None,
        stream: Any = None,
    ) -> None:
        """Combine n elements of ranks 0 to r-1 on each rank r; recvbuf of rank 0 is left alone.

        Args:
            sendbuf: n elements, or MPI.IN_PLACE (or recvbuf itself) to take them from recvbuf.
            recvbuf: n elements.
            op: as in Reduce.
            algorithm: see the module.
            stream: see the module.
        """
        return self._run("Exscan", (sendbuf, recvbuf, op), algorithm, stream)
