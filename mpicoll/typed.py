"""The collectives with a datatype for each block, for arrays on hosts.

`Alltoallw` is packed and unpacked.  Those of neighbours are MPI's own, and let calls in flight go on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec

from mpi4py import MPI

from mpicoll.errors import UnsupportedError
from mpicoll.forms import like
from mpicoll.nonblocking import started
from mpicoll.persistent import prepared
from mpicoll.runtime.point_to_point.parcel import is_on_device
from mpicoll.runtime.point_to_point.requests import MessageRequest
from mpicoll.runtime.progress.turns import in_flight, wait_for

P = ParamSpec("P")
_HOW = "as mpi4py's, for arrays on hosts"


def on_hosts(own: Callable[Concatenate[Any, P], Any]) -> Callable[Concatenate[Any, P], Any]:
    """Return mpi4py's method, which refuses arrays on devices; a request of it lets calls in flight go on."""

    @like(own, _HOW)
    def method(self: Any, /, *arguments: P.args, **named: P.kwargs) -> Any:
        _refuse_devices(own.__name__, (*arguments, *named.values()))
        made = own(self, *arguments, **named)
        return MessageRequest(made) if type(made) is MPI.Request else made

    return method


def waiting_on_hosts(
    own: Callable[Concatenate[Any, P], None], start: Callable[Concatenate[Any, P], MPI.Request]
) -> Callable[Concatenate[Any, P], None]:
    """Return mpi4py's method that waits, which refuses arrays on devices; calls in flight go on while it waits.

    Args:
        own: mpi4py's method.
        start: the one that starts the same call; it is called on all ranks, for blocking calls of MPI do not match it.
    """

    @like(own, _HOW)
    def method(self: Any, /, *arguments: P.args, **named: P.kwargs) -> None:
        _refuse_devices(own.__name__, (*arguments, *named.values()))
        request = start(self, *arguments, **named)
        if in_flight:
            wait_for(request.Test)
        request.Wait()

    return method


def _refuse_devices(method: str, arguments: tuple[Any, ...]) -> None:
    for name, argument in zip(("sendbuf", "recvbuf"), arguments, strict=False):
        if is_on_device(argument):
            instead = method.replace("alltoallw", "alltoallv")
            raise UnsupportedError(
                f"{method}: {name} is on a device, which MPI's own call does not take; use {instead} where all blocks "
                "have one type"
            )


class Typed:
    """Mixin of Alltoallw in its three forms, which every communicator has."""

    def _run(self, method: str, arguments: tuple[Any, ...], algorithm: str | None, stream: Any) -> None:
        raise NotImplementedError

    def Alltoallw(self, sendbuf: Any, recvbuf: Any, *, algorithm: str | None = None) -> None:
        """Send a block of a datatype of its own to each rank; for arrays on hosts.

        Args:
            sendbuf: [array, (counts, displs), types], displs in bytes, or [array, types] of one item each; or
                MPI.IN_PLACE, to replace what is in recvbuf.
            recvbuf: the same for what is received.
            algorithm: one that does not forward; see `mpicoll.blocking`.
        """
        return self._run("Alltoallw", (sendbuf, recvbuf), algorithm, None)

    Ialltoallw = started(Alltoallw)
    Alltoallw_init = prepared(Alltoallw)
