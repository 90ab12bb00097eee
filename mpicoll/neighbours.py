"""The neighbour collectives, of communicators with a topology: a block to each neighbour, a block from each.

They take the arrays that the other collectives take, in all three forms, on the paths host, direct and staged.  The
neighbours of a rank are those of MPI: on a grid, for each dimension, the lower one and the higher one.  Beyond an edge
there is nobody: that block is not sent, and what is in the place of it in `recvbuf` is left alone.

In every method dtypes are equal in both buffers, and `stream` is the CUDA stream that orders the call (None: CuPy's
current one).  Errors are as in `mpicoll.blocking`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from mpi4py import MPI

from mpicoll.nonblocking import started
from mpicoll.persistent import prepared
from mpicoll.schedule.neighbourhood import Neighbourhood

if TYPE_CHECKING:
    from mpicoll.dispatch.plan import Plan


class Neighbours:
    """Mixin of the neighbour collectives; they have one algorithm, which cannot be captured into a CUDA graph."""

    if TYPE_CHECKING:  # what stands behind this class has it
        _run: Callable[..., None]

    @cached_property
    def _neighbourhood(self) -> Neighbourhood:
        """This rank's neighbours."""
        comm: Any = self
        sources, targets = comm.inoutedges
        return Neighbourhood.of_grid(sources) if comm.topology == MPI.CART else Neighbourhood.of_graph(sources, targets)

    def Neighbor_allgather(self, sendbuf: Any, recvbuf: Any, *, stream: Any = None) -> None:
        """Send n elements to all neighbours, and collect those of all.

        Args:
            sendbuf: n elements.
            recvbuf: n elements for each neighbour that sends.
            stream: see the module.
        """
        return self._run("Neighbor_allgather", (sendbuf, recvbuf, self._neighbourhood), None, stream)

    def Neighbor_allgatherv(self, sendbuf: Any, recvbuf: Any, *, stream: Any = None) -> None:
        """Send a block to all neighbours, and collect theirs, of any counts.

        Args:
            sendbuf: the block.
            recvbuf: [array, counts] or [array, (counts, displs)] in elements, for each neighbour that sends.
            stream: see the module.
        """
        return self._run("Neighbor_allgatherv", (sendbuf, recvbuf, self._neighbourhood), None, stream)

    def Neighbor_alltoall(self, sendbuf: Any, recvbuf: Any, *, stream: Any = None) -> None:
        """Send n elements to each neighbour, others to each.

        Args:
            sendbuf: n elements for each neighbour that receives.
            recvbuf: n elements for each neighbour that sends.
            stream: see the module.
        """
        return self._run("Neighbor_alltoall", (sendbuf, recvbuf, self._neighbourhood), None, stream)

    def Neighbor_alltoallv(self, sendbuf: Any, recvbuf: Any, *, stream: Any = None) -> None:
        """Send a block of any count to each neighbour.

        Args:
            sendbuf: [array, counts] or [array, (counts, displs)] in elements, for each neighbour that receives.
            recvbuf: the same for each neighbour that sends.
            stream: see the module.
        """
        return self._run("Neighbor_alltoallv", (sendbuf, recvbuf, self._neighbourhood), None, stream)

    def Neighbor_alltoallw(self, sendbuf: Any, recvbuf: Any) -> None:
        """Send a block of a datatype of its own to each neighbour; on a device, of one that has strides.

        Args:
            sendbuf: [array, (counts, displs), types], displs in bytes, or [array, types] of one item each, for each
                neighbour that receives.
            recvbuf: the same for each neighbour that sends.
        """
        return self._run("Neighbor_alltoallw", (sendbuf, recvbuf, self._neighbourhood), None, None)

    Ineighbor_allgather = started(Neighbor_allgather)
    Ineighbor_allgatherv = started(Neighbor_allgatherv)
    Ineighbor_alltoall = started(Neighbor_alltoall)
    Ineighbor_alltoallv = started(Neighbor_alltoallv)
    Ineighbor_alltoallw = started(Neighbor_alltoallw)
    Neighbor_allgather_init = prepared(Neighbor_allgather)
    Neighbor_allgatherv_init = prepared(Neighbor_allgatherv)
    Neighbor_alltoall_init = prepared(Neighbor_alltoall)
    Neighbor_alltoallv_init = prepared(Neighbor_alltoallv)
    Neighbor_alltoallw_init = prepared(Neighbor_alltoallw)

    def Get_plan(self, method: str, *arguments: Any, algorithm: str | None = None, **named: Any) -> Plan:
        """Return the plan of a call, with the reasons; as `Communicator.Get_plan`."""
        if method.startswith("Neighbor_"):
            named["neighbourhood"] = self._neighbourhood
        return cast("Plan", cast(Any, super()).Get_plan(method, *arguments, algorithm=algorithm, **named))
