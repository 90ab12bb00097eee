"""`Alltoallw`, the collective with a datatype for each block: packed, sent and unpacked.

That of neighbours is in `neighbours.py`, with the others of theirs.
"""

from __future__ import annotations

from typing import Any

from mpicoll.nonblocking import started
from mpicoll.persistent import prepared


class Typed:
    """Mixin of Alltoallw in its three forms, which every communicator has."""

    def _run(self, method: str, arguments: tuple[Any, ...], algorithm: str | None, stream: Any) -> None:
        raise NotImplementedError

    def Alltoallw(self, sendbuf: Any, recvbuf: Any, *, algorithm: str | None = None) -> None:
        """Send a block of a datatype of its own to each rank; on a device, of one that has strides.

        Args:
            sendbuf: [array, (counts, displs), types], displs in bytes, or [array, types] of one item each; or
                MPI.IN_PLACE, to replace what is in recvbuf.
            recvbuf: the same for what is received.
            algorithm: one that does not forward; see `mpicoll.blocking`.
        """
        return self._run("Alltoallw", (sendbuf, recvbuf), algorithm, None)

    Ialltoallw = started(Alltoallw)
    Alltoallw_init = prepared(Alltoallw)
