"""Requests for messages that are brought to their device array when they have come."""

from __future__ import annotations

from typing import Any, Literal

from mpi4py import MPI

from mpicoll.runtime.point_to_point.parcel import AnyParcel, arriving, is_on_device
from mpicoll.runtime.point_to_point.requests import ParcelRequest
from mpicoll.runtime.point_to_point.waiting import receive
from mpicoll.runtime.progress.turns import Helper, advance_all, in_flight, lock, wait_for


class Arrival(MPI.Grequest):
    """MPI's generalized request for a message and what comes after it.

    It goes on inside every call of mpicoll that waits.  MPI's own `Waitall` knows nothing of these, so a thread
    looks after it, too, where MPI allows threads.
    """

    traffic = None
    error: Exception | None
    _told: MPI.Status
    _parcel: AnyParcel
    _has_come = False
    _keep: object
    _received: MPI.Request | None
    _sent: tuple[MPI.Request, ...]

    def __new__(cls, parcel: AnyParcel, received: MPI.Request, *sent: MPI.Request, keep: object = None) -> Arrival:
        """Look after a message that was started.

        Args:
            parcel: into which it comes.
            received: the message.
            sent: messages that are complete with it.
            keep: lives until then.
        """
        told = MPI.Status()
        self = super().__new__(cls, MPI.Grequest.Start(lambda status: _tell(told, status), None, None))
        self._told, self._parcel, self._keep, self.error = told, parcel, keep, None
        self._received, self._sent = received, sent
        with lock:
            in_flight.append(self)
            self.advance()
        if self._received is not None and MPI.Query_thread() == MPI.THREAD_MULTIPLE:
            Helper.wake()
        return self

    def advance(self) -> None:
        """Bring the message to its array once it has come; an error is kept for the one who waits."""
        received = self._received
        if received is None or self._has_come:
            return
        try:
            if received and not MPI.Request.Test(received, self._told):
                return
            if not MPI.Request.Testall(self._sent):
                return
            self._has_come = True  # where it waits for a stream, this is asked again
            self._parcel.arrive(self._told.Get_count(MPI.BYTE))
        except Exception as error:
            self.error = error
        self.Complete()  # before anybody may take it for complete
        in_flight.remove(self)
        self._received = self._keep = None

    def Wait(self, status: MPI.Status | None = None) -> Literal[True]:
        """Return when the message is in its array; meanwhile all calls in flight go on."""
        wait_for(lambda: self._received is None)
        super().Wait(status)
        return self._checked()

    def Test(self, status: MPI.Status | None = None) -> bool:
        """Make progress on all calls; True once the message is in its array."""
        if self._received is not None:
            advance_all()
        return super().Test(status) and self._checked()

    def Cancel(self) -> None:
        """Cancel the receive, if no message has come yet."""
        with lock:
            if self._received is not None:
                self._received.Cancel()

    def _checked(self) -> Literal[True]:
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        return True


def _tell(told: MPI.Status, status: MPI.Status) -> None:
    """Write what is known of a message into the status of its request."""
    status.Set_source(told.Get_source())
    status.Set_tag(told.Get_tag())
    status.Set_elements(MPI.BYTE, told.Get_count(MPI.BYTE))
    status.Set_cancelled(told.Is_cancelled())


def coming(parcel: AnyParcel, received: MPI.Request) -> MPI.Request:
    """Return the request of a message that comes into a parcel and was started."""
    return ParcelRequest.of(received, parcel) if parcel.as_it_is else Arrival(parcel, received)


class IncomingMessage(MPI.Message):
    """A message that was probed and taken; it is received into host or device arrays."""

    _comm: Any

    @classmethod
    def of(cls, message: MPI.Message, comm: Any) -> MPI.Message:
        """Return mpi4py's message as this type.

        Args:
            message: what was found.
            comm: on which it was found.
        """
        self = cls(message)
        self._comm = comm
        return self

    def Recv(self, buf: Any, status: MPI.Status | None = None) -> None:
        """Receive the message; as mpi4py's."""
        if not is_on_device(buf):
            return super().Recv(buf, status)
        parcel = arriving(self._comm, "Recv", buf)
        return receive(parcel, super().Irecv(parcel.spec), status)

    def Irecv(self, buf: Any) -> MPI.Request:
        """Start to receive the message; as mpi4py's."""
        parcel = arriving(self._comm, "Irecv", buf)
        return coming(parcel, super().Irecv(parcel.spec))
