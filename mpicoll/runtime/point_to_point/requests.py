"""Requests of messages."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, Literal

from mpi4py import MPI

from mpicoll.runtime.point_to_point.parcel import AnyParcel
from mpicoll.runtime.progress.turns import advance_all, in_flight, wait_for


class MessageRequest(MPI.Request):
    """A message's request whose waiting lets mpicoll's calls go on, as one of MPI's own would let MPI's."""

    def Wait(self, status: MPI.Status | None = None) -> Literal[True]:
        """Return when the message is complete; meanwhile all calls in flight go on."""
        if not in_flight:
            return super().Wait(status)
        wait_for(lambda: super(MessageRequest, self).Test(status))
        return True

    def Test(self, status: MPI.Status | None = None) -> bool:
        """Make progress on all calls; True once the message is complete."""
        if in_flight:
            advance_all()
        return super().Test(status)

    def wait(self, status: MPI.Status | None = None) -> Any:
        """Return the object of a message once it is there; meanwhile all calls in flight go on."""
        if not in_flight:
            return super().wait(status)
        while not (found := super().test(status))[0]:
            advance_all()
            os.sched_yield()
        return found[1]

    def test(self, status: MPI.Status | None = None) -> tuple[bool, Any]:
        """Return (whether the message is complete, its object); makes progress on all calls."""
        if in_flight:
            advance_all()
        return super().test(status)


class ParcelRequest(MessageRequest):
    """A message's request that holds what it reads or writes, even if it is dropped before its end."""

    _parcels: tuple[AnyParcel, ...]

    @classmethod
    def of(cls, request: MPI.Request, *parcels: AnyParcel) -> MPI.Request:
        """Return mpi4py's request as this type, which holds the parcels."""
        self = cls(request)
        self._parcels = parcels
        return self

    def __del__(self) -> None:
        if self and not sys.is_finalizing() and not MPI.Is_finalized():
            _dropped.append((MPI.Request(self), self._parcels))
            _dropped[:] = [(request, kept) for request, kept in _dropped if not request.Test()]


#: requests that were dropped before the end of their messages, and what these read
_dropped: list[tuple[MPI.Request, tuple[AnyParcel, ...]]] = []


class PersistentMessage:
    """A message of a device array that can be started many times; each start is ordered with the stream of then.

    It is no MPI.Prequest, whose `Startall` would not wait for a stream.
    """

    def __init__(self, method: str, begin: Callable[[], MPI.Request]) -> None:
        """Belong to a message that is not started.

        Args:
            method: the method's name, for messages.
            begin: starts the message.
        """
        self._method, self._begin = method, begin
        self._request: MPI.Request | None = None

    def Start(self) -> None:
        """Start the message (again)."""
        if self._request is not None:
            raise RuntimeError(f"{self._method}: the persistent request is still active")
        self._request = self._begin()

    def Wait(self, status: MPI.Status | None = None) -> Literal[True]:
        """Return when the message is complete; meanwhile all calls in flight go on."""
        if self._request is not None:
            self._request.Wait(status)
        self._request = None
        return True

    def Test(self, status: MPI.Status | None = None) -> bool:
        """Make progress on all calls; True once the message is complete."""
        if self._request is None or self._request.Test(status):
            self._request = None
        return self._request is None

    wait, test = Wait, Test

    def Cancel(self) -> None:
        """Cancel the message, if it has not been matched yet."""
        if self._request is not None:
            self._request.Cancel()

    def Free(self) -> None:
        """Let go of the request; an active message is completed first."""
        self.Wait()

    @staticmethod
    def Startall(requests: Sequence[PersistentMessage]) -> None:
        """Start all requests in order."""
        for request in requests:
            request.Start()
