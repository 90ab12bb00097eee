"""Who has not arrived?  Ranks that wait ask each other, once a time limit has passed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

if TYPE_CHECKING:
    from mpicoll.runtime.channel import Channel

#: seconds that a rank waits for the others' answers
GRACE = 0.5
#: seconds between looks at others' questions
EVERY = 0.02


class Watch:
    """Asks and answers on a communicator of its own: how many calls has each rank made?"""

    ASK, ANSWER = 1, 2

    def __init__(self, channel: Channel) -> None:
        """Duplicate the channel's communicator; collective."""
        self.channel = channel
        self.comm = channel.comm.Dup()
        self.looked = 0.0
        self.sent: list[Any] = []

    def look(self) -> None:
        """Answer what others have asked, now and then."""
        now = time.monotonic()
        if now - self.looked >= EVERY:
            self.looked = now
            self._answer()

    def absent(self) -> list[int]:
        """Return the ranks that have not made this rank's latest call, or do not answer."""
        rank, size = self.comm.rank, self.comm.size
        for other in range(size):
            if other != rank:
                self._send(other, self.ASK)
        calls = {rank: self.channel.calls}
        end = time.monotonic() + GRACE
        while time.monotonic() < end and len(calls) < size:
            self._answer()
            self._collect(calls)
            time.sleep(EVERY / 4)
        return [other for other in range(size) if calls.get(other, -1) < self.channel.calls]

    def _send(self, other: int, tag: int) -> None:
        message = np.array([self.channel.calls], "i8")
        self.sent.append((self.comm.Isend(message, other, tag), message))

    def _answer(self) -> None:
        status = MPI.Status()
        while self.comm.Iprobe(MPI.ANY_SOURCE, self.ASK, status):
            self.comm.Recv(np.empty(1, "i8"), status.source, self.ASK)
            self._send(status.source, self.ANSWER)

    def _collect(self, calls: dict[int, int]) -> None:
        status, message = MPI.Status(), np.empty(1, "i8")
        while self.comm.Iprobe(MPI.ANY_SOURCE, self.ANSWER, status):
            self.comm.Recv(message, status.source, self.ANSWER)
            calls[status.source] = int(message[0])
