"""The messages of a group between arrays on hosts, as persistent requests of MPI's."""

from __future__ import annotations

import sys
from typing import Any

from mpi4py import MPI

from mpicoll.runtime.groups.letters import Letter, Packet, travelling
from mpicoll.runtime.program.local_work import Action
from mpicoll.runtime.progress import faults
from mpicoll.runtime.progress.turns import in_flight, wait_for


class HostExchange:
    """Messages that are sent and received again and again; it holds addresses, and none of the arrays.

    Attributes:
        failed: one of its messages has raised, so that it must not be used again.
    """

    failed = False

    def __init__(self, letters: list[Letter], comm: Any) -> None:
        """Prepare the messages, those that are received first, so that they have a place before one comes.

        Args:
            letters: of arrays on the host.
            comm: the communicator.
        """
        self._requests: list[MPI.Prequest] = []
        self._closing: list[Action] = []
        self._opening: list[Action] = []
        for same in travelling(letters):
            first = same[0]
            start = MPI.Comm.Send_init if first.sends else MPI.Comm.Recv_init
            if len(same) > 1:
                packet = Packet(same, 0)
                (self._closing if first.sends else self._opening).append(packet.move)
                self._requests.append(start(comm, packet.array, first.peer, first.tag))
                continue
            memory = MPI.buffer.fromaddress(first.flat.pointer, first.nbytes)
            self._requests.append(start(comm, [memory, first.nbytes, MPI.BYTE], first.peer, first.tag))

    def __call__(self) -> None:
        """Send and receive; calls in flight go on meanwhile."""
        for act in self._closing:
            act()
        requests = self._requests
        try:
            MPI.Prequest.Startall(requests)
            if in_flight:
                wait_for(lambda: MPI.Request.Testall(requests))
            else:
                MPI.Request.Waitall(requests)
        except BaseException:
            self.failed = True
            faults.abandoned.append(self)  # a message may still come into its memory
            raise
        for act in self._opening:
            act()

    def __del__(self) -> None:
        if not (self.failed or sys.is_finalizing() or MPI.Is_finalized()):
            for request in self._requests:
                request.Free()
