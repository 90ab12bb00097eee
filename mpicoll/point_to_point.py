"""Messages on a communicator: mpi4py's methods, which let calls in flight go on while they wait.

MPI's own collectives go on inside every call of MPI; mpicoll's are Python's, so that a rank which waits
in a receive would keep the others waiting that need it as a way station.  Where nothing is in flight,
these methods are mpi4py's own.  Signatures that several methods share are written once, in `starts`, `sends`
and `sends_object`; a general `*arguments, **named` would cost each message with named arguments 0.3 us.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

from mpi4py import MPI

from mpicoll.forms import like
from mpicoll.request import MessageRequest
from mpicoll.runtime.progress.turns import in_flight, wait_for

ANY_SOURCE, ANY_TAG = MPI.ANY_SOURCE, MPI.ANY_TAG
Status = MPI.Status | None
P = ParamSpec("P")
F = TypeVar("F", bound=Callable[..., Any])


if TYPE_CHECKING:
    from mpi4py.MPI import Comm as Base
else:  # a class cannot be made from two of mpi4py's; what stands behind this one in `Communicator` is MPI.Comm
    Base = object


def starts(start: Callable[Concatenate[Any, P], object]) -> Callable[Concatenate[Any, P], MessageRequest]:
    """Return mpi4py's method with a request that lets calls in flight go on while it is waited for."""

    @like(start, "as mpi4py's")
    def method(self: Any, /, *arguments: P.args, **named: P.kwargs) -> MessageRequest:
        return MessageRequest(cast(MPI.Request, start(self, *arguments, **named)))

    return method


def sends(own: F, start: Callable[..., MPI.Request]) -> F:
    """Return mpi4py's method that sends a buffer; calls in flight go on while it waits.

    Args:
        own: mpi4py's method, which is called where nothing is in flight.
        start: the one that starts the same message.
    """

    @like(own, "as mpi4py's")
    def method(self: Any, buf: Any, dest: int, tag: int = 0) -> Any:
        if not in_flight:
            return own(self, buf, dest, tag)
        return _complete(start(self, buf, dest, tag))

    return cast(F, method)


def sends_object(own: F, start: Callable[..., MPI.Request]) -> F:
    """Return mpi4py's method that sends an object; the same as `sends` but for the first parameter's name."""

    @like(own, "as mpi4py's")
    def method(self: Any, obj: Any, dest: int, tag: int = 0) -> Any:
        if not in_flight:
            return own(self, obj, dest, tag)
        return _complete(start(self, obj, dest, tag))

    return cast(F, method)


class PointToPoint(Base):
    """Mixin of the messages that wait, or whose requests do."""

    Isend, isend = starts(MPI.Comm.Isend), starts(MPI.Comm.isend)
    Issend, issend = starts(MPI.Comm.Issend), starts(MPI.Comm.issend)
    Ibsend, ibsend = starts(MPI.Comm.Ibsend), starts(MPI.Comm.ibsend)
    Irsend = starts(MPI.Comm.Irsend)
    Irecv, irecv = starts(MPI.Comm.Irecv), starts(MPI.Comm.irecv)
    Isendrecv = starts(MPI.Comm.Isendrecv)
    Isendrecv_replace = starts(MPI.Comm.Isendrecv_replace)

    Send = sends(MPI.Comm.Send, MPI.Comm.Isend)
    Ssend = sends(MPI.Comm.Ssend, MPI.Comm.Issend)
    Rsend = sends(MPI.Comm.Rsend, MPI.Comm.Irsend)
    send = sends_object(MPI.Comm.send, MPI.Comm.isend)
    ssend = sends_object(MPI.Comm.ssend, MPI.Comm.issend)

    def Recv(self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status = None) -> None:
        """Receive a buffer; as mpi4py's."""
        if not in_flight:
            return super().Recv(buf, source, tag, status)
        return _complete(super().Irecv(buf, source, tag), status)

    def Sendrecv(
        self,
        sendbuf: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
        status: Status = None,
    ) -> None:
        """Send and receive a buffer; as mpi4py's."""
        if not in_flight:
            return super().Sendrecv(sendbuf, dest, sendtag, recvbuf, source, recvtag, status)
        received = super().Irecv(recvbuf, source, recvtag)
        _complete(super().Isend(sendbuf, dest, sendtag))
        return _complete(received, status)

    def Sendrecv_replace(
        self,
        buf: Any,
        dest: int,
        sendtag: int = 0,
        source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
        status: Status = None,
    ) -> None:
        """Send a buffer, and receive another one into it; as mpi4py's."""
        if not in_flight:
            return super().Sendrecv_replace(buf, dest, sendtag, source, recvtag, status)
        return _complete(super().Isendrecv_replace(buf, dest, sendtag, source, recvtag), status)

    def Probe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status = None) -> Any:
        """Wait for a message; as mpi4py's."""
        if not in_flight:
            return super().Probe(source, tag, status)
        wait_for(lambda: super(PointToPoint, self).Iprobe(source, tag, status))
        return True

    def Mprobe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status = None) -> MPI.Message:
        """Wait for a message and take it; as mpi4py's."""
        if not in_flight:
            return super().Mprobe(source, tag, status)
        return _found(lambda: super(PointToPoint, self).Improbe(source, tag, status))

    def recv(self, buf: Any = None, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status = None) -> Any:
        """Receive an object; as mpi4py's."""
        if not in_flight:
            return super().recv(buf, source, tag, status)
        message = _found(lambda: super(PointToPoint, self).improbe(source, tag))
        return message.recv(status)

    def sendrecv(
        self,
        sendobj: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
        status: Status = None,
    ) -> Any:
        """Send and receive an object; as mpi4py's."""
        if not in_flight:
            return super().sendrecv(sendobj, dest, sendtag, recvbuf, source, recvtag, status)
        sent = super().isend(sendobj, dest, sendtag)
        received = self.recv(recvbuf, source, recvtag, status)
        _complete(sent)
        return received

    def probe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status = None) -> Any:
        """Wait for an object's message; as mpi4py's."""
        return self.Probe(source, tag, status)

    def mprobe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status = None) -> MPI.Message:
        """Wait for an object's message and take it; as mpi4py's."""
        if not in_flight:
            return super().mprobe(source, tag, status)
        return _found(lambda: super(PointToPoint, self).improbe(source, tag, status))


def _complete(request: MPI.Request, status: Status = None) -> None:
    """Wait for a message, letting calls in flight go on; one that is interrupted is taken back."""
    try:
        wait_for(lambda: MPI.Request.Test(request, status))
    except BaseException:
        if request:  # an error of MPI's has ended it
            request.Cancel()
            request.Free()
        raise


def _found(look: Callable[[], MPI.Message | None]) -> MPI.Message:
    """Return the first message that a look finds."""
    found: list[MPI.Message | None] = []

    def is_found() -> bool:
        found[:] = [look()]
        return found[0] is not None

    wait_for(is_found)
    assert found[0] is not None
    return found[0]
