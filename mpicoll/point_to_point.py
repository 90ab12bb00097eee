"""Messages on a communicator: mpi4py's methods, which take device arrays, and let calls in flight go on.

A device array travels in a parcel, in order with its stream (see `runtime/point_to_point/parcel.py`).

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
from mpicoll.runtime.point_to_point.arrival import Arrival, IncomingMessage, coming
from mpicoll.runtime.point_to_point.parcel import AnyParcel, Plain, arriving, is_on_device, leaving
from mpicoll.runtime.point_to_point.requests import MessageRequest, ParcelRequest, PersistentMessage
from mpicoll.runtime.point_to_point.waiting import complete, found_message, receive
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


def sends(own: F, start: Callable[..., MPI.Request], *, buffered: bool = False) -> F:
    """Return mpi4py's method that sends a buffer; calls in flight go on while it waits.

    Args:
        own: mpi4py's method, which is called where nothing is in flight.
        start: the one that starts the same message.
        buffered: MPI itself copies the buffer.
    """

    @like(own, "as mpi4py's")
    def method(self: Any, buf: Any, dest: int, tag: int = 0) -> Any:
        parcel: AnyParcel | None = None  # a copy lives until the message has gone
        if is_on_device(buf):
            parcel = leaving(self, own.__name__, buf, staged=buffered)
            buf = parcel.spec
        if not in_flight:
            return own(self, buf, dest, tag)
        return complete(start(self, buf, dest, tag))

    return cast(F, method)


def starts_send(start: F, *, buffered: bool = False) -> F:
    """Return mpi4py's method that starts to send a buffer; `buffered` as in `sends`."""

    @like(start, "as mpi4py's")
    def method(self: Any, buf: Any, dest: int, tag: int = 0) -> Any:
        if not is_on_device(buf):
            return MessageRequest(start(self, buf, dest, tag))
        parcel = leaving(self, start.__name__, buf, staged=buffered)
        return ParcelRequest.of(start(self, parcel.spec, dest, tag), parcel)

    return cast(F, method)


def prepares(own: F, begin: str) -> F:
    """Return mpi4py's method that makes a persistent message; one of a device array is mpicoll's own.

    Args:
        own: mpi4py's method.
        begin: name of the method that starts the same message once.
    """

    @like(own, "as mpi4py's")
    def method(self: Any, buf: Any, *arguments: Any, **named: Any) -> Any:
        if not is_on_device(buf):
            return own(self, buf, *arguments, **named)
        return PersistentMessage(own.__name__, lambda: getattr(self, begin)(buf, *arguments, **named))

    return cast(F, method)


def sends_object(own: F, start: Callable[..., MPI.Request]) -> F:
    """Return mpi4py's method that sends an object; the same as `sends` but for the first parameter's name."""

    @like(own, "as mpi4py's")
    def method(self: Any, obj: Any, dest: int, tag: int = 0) -> Any:
        if not in_flight:
            return own(self, obj, dest, tag)
        return complete(start(self, obj, dest, tag))

    return cast(F, method)


class PointToPoint(Base):
    """Mixin of the messages: all that wait, whose requests do, or that have a buffer."""

    Isend, isend = starts_send(MPI.Comm.Isend), starts(MPI.Comm.isend)
    Issend, issend = starts_send(MPI.Comm.Issend), starts(MPI.Comm.issend)
    Ibsend, ibsend = starts_send(MPI.Comm.Ibsend, buffered=True), starts(MPI.Comm.ibsend)
    Irsend = starts_send(MPI.Comm.Irsend)
    irecv = starts(MPI.Comm.irecv)

    Send = sends(MPI.Comm.Send, MPI.Comm.Isend)
    Ssend = sends(MPI.Comm.Ssend, MPI.Comm.Issend)
    Bsend = sends(MPI.Comm.Bsend, MPI.Comm.Ibsend, buffered=True)
    Rsend = sends(MPI.Comm.Rsend, MPI.Comm.Irsend)
    send = sends_object(MPI.Comm.send, MPI.Comm.isend)
    ssend = sends_object(MPI.Comm.ssend, MPI.Comm.issend)

    Send_init, Ssend_init = prepares(MPI.Comm.Send_init, "Isend"), prepares(MPI.Comm.Ssend_init, "Issend")
    Bsend_init, Rsend_init = prepares(MPI.Comm.Bsend_init, "Ibsend"), prepares(MPI.Comm.Rsend_init, "Irsend")
    Recv_init = prepares(MPI.Comm.Recv_init, "Irecv")

    def Recv(self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status = None) -> None:
        """Receive a buffer; as mpi4py's."""
        if is_on_device(buf):
            parcel = arriving(self, "Recv", buf)
            return receive(parcel, super().Irecv(parcel.spec, source, tag), status)
        if not in_flight:
            return super().Recv(buf, source, tag, status)
        return complete(super().Irecv(buf, source, tag), status)

    def Irecv(self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> MPI.Request:
        """Start to receive a buffer; as mpi4py's."""
        if not is_on_device(buf):
            return MessageRequest(super().Irecv(buf, source, tag))
        parcel = arriving(self, "Irecv", buf)
        return coming(parcel, super().Irecv(parcel.spec, source, tag))

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
        if is_on_device(sendbuf) or is_on_device(recvbuf):
            ours, theirs = leaving(self, "Sendrecv", sendbuf), arriving(self, "Sendrecv", recvbuf)
            return self._sendrecv(ours, dest, sendtag, theirs, source, recvtag, status)
        if not in_flight:
            return super().Sendrecv(sendbuf, dest, sendtag, recvbuf, source, recvtag, status)
        return self._sendrecv(Plain(sendbuf), dest, sendtag, Plain(recvbuf), source, recvtag, status)

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
        if is_on_device(buf):
            ours, theirs = leaving(self, "Sendrecv_replace", buf, copied=True), arriving(self, "Sendrecv_replace", buf)
            return self._sendrecv(ours, dest, sendtag, theirs, source, recvtag, status)
        if not in_flight:
            return super().Sendrecv_replace(buf, dest, sendtag, source, recvtag, status)
        return complete(super().Isendrecv_replace(buf, dest, sendtag, source, recvtag), status)

    def _sendrecv(
        self, ours: AnyParcel, dest: int, sendtag: int, theirs: AnyParcel, source: int, recvtag: int, status: Status
    ) -> None:
        """Send one parcel and receive another; arguments as in `Sendrecv`."""
        received = super().Irecv(theirs.spec, source, recvtag)
        complete(super().Isend(ours.spec, dest, sendtag))
        receive(theirs, received, status)

    def Isendrecv(
        self,
        sendbuf: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
    ) -> MPI.Request:
        """Start to send and receive a buffer; as mpi4py's."""
        if not (is_on_device(sendbuf) or is_on_device(recvbuf)):
            return MessageRequest(super().Isendrecv(sendbuf, dest, sendtag, recvbuf, source, recvtag))
        ours, theirs = leaving(self, "Isendrecv", sendbuf), arriving(self, "Isendrecv", recvbuf)
        return self._isendrecv(ours, dest, sendtag, theirs, source, recvtag)

    def Isendrecv_replace(
        self, buf: Any, dest: int, sendtag: int = 0, source: int = ANY_SOURCE, recvtag: int = ANY_TAG
    ) -> MPI.Request:
        """Start to send a buffer and to receive another one into it; as mpi4py's."""
        if not is_on_device(buf):
            return MessageRequest(super().Isendrecv_replace(buf, dest, sendtag, source, recvtag))
        ours, theirs = leaving(self, "Isendrecv_replace", buf, copied=True), arriving(self, "Isendrecv_replace", buf)
        return self._isendrecv(ours, dest, sendtag, theirs, source, recvtag)

    def _isendrecv(
        self, ours: AnyParcel, dest: int, sendtag: int, theirs: AnyParcel, source: int, recvtag: int
    ) -> MPI.Request:
        """Start to send one parcel and to receive another; arguments as in `Isendrecv`."""
        received = super().Irecv(theirs.spec, source, recvtag)  # MPICH's Isendrecv does not tell how much has come
        return Arrival(theirs, received, super().Isend(ours.spec, dest, sendtag), keep=ours)

    def Probe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status = None) -> Any:
        """Wait for a message; as mpi4py's."""
        if not in_flight:
            return super().Probe(source, tag, status)
        wait_for(lambda: super(PointToPoint, self).Iprobe(source, tag, status))
        return True

    def Mprobe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status = None) -> MPI.Message:
        """Wait for a message and take it; as mpi4py's."""
        if not in_flight:
            return IncomingMessage.of(super().Mprobe(source, tag, status), self)
        look = super().Improbe
        return IncomingMessage.of(found_message(lambda: look(source, tag, status)), self)

    def Improbe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status = None) -> MPI.Message | None:
        """Return a message that is there, and take it; as mpi4py's."""
        message = super().Improbe(source, tag, status)
        return None if message is None else IncomingMessage.of(message, self)

    def recv(self, buf: Any = None, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status = None) -> Any:
        """Receive an object; as mpi4py's."""
        if not in_flight:
            return super().recv(buf, source, tag, status)
        message = found_message(lambda: super(PointToPoint, self).improbe(source, tag))
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
        complete(sent)
        return received

    def probe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status = None) -> Any:
        """Wait for an object's message; as mpi4py's."""
        return self.Probe(source, tag, status)

    def mprobe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status = None) -> MPI.Message:
        """Wait for an object's message and take it; as mpi4py's."""
        if not in_flight:
            return super().mprobe(source, tag, status)
        return found_message(lambda: super(PointToPoint, self).improbe(source, tag, status))
