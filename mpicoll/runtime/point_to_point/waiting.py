"""Waiting for messages, while calls in flight go on."""

from __future__ import annotations

from collections.abc import Callable

from mpi4py import MPI

from mpicoll.runtime.point_to_point.parcel import AnyParcel
from mpicoll.runtime.progress.turns import in_flight, wait_for


def complete(request: MPI.Request, status: MPI.Status | None = None) -> None:
    """Wait for a message, letting calls in flight go on; one that is interrupted is taken back."""
    try:
        if not in_flight:
            MPI.Request.Wait(request, status)
            return
        wait_for(lambda: MPI.Request.Test(request, status))
    except BaseException:
        if request:  # an error of MPI's has ended it
            request.Cancel()
            request.Free()
        raise


def receive(parcel: AnyParcel, received: MPI.Request, status: MPI.Status | None) -> None:
    """Receive a message that was started into a parcel.

    Args:
        parcel: into whose buffer it comes.
        received: the message.
        status: is filled, if there is one.
    """
    told = status or MPI.Status()
    complete(received, told)
    parcel.arrive(told.Get_count(MPI.BYTE))


def found_message(look: Callable[[], MPI.Message | None]) -> MPI.Message:
    """Return the first message that a look finds."""
    found: list[MPI.Message | None] = []

    def is_found() -> bool:
        found[:] = [look()]
        return found[0] is not None

    wait_for(is_found)
    assert found[0] is not None
    return found[0]
