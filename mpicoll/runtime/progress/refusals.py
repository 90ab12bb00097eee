"""Refusals: a rank whose call has raised tells the others, which may be waiting for its messages.

Posting one is local, and looking for one is a probe, which only those make that wait; a call that is
served pays nothing.  Where ranks do not share their errors, those who wait look after a while only: a rank may have
made a call in vain that no other one has made, and then its messages come.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any

from mpi4py import MPI

from mpicoll.errors import MismatchError

#: seconds that a call waits before it looks, where ranks do not share their errors
GRACE = 2.0
#: seconds in which a message that was sent arrives
ON_THEIR_WAY = 5e-3


@dataclass(frozen=True)
class Refusal:
    """A rank's word that its call has raised.

    `Refusal(1, 7, "ValueError('x')", final=False)`: rank 1's seventh call has raised, and later calls can be made.

    Attributes:
        rank: that has raised.
        number: of the call on its communicator, among those that were refused at once, too.
        text: of the error.
        final: messages of the call are lost, so that no later call can be made, either.
        id: of the communicator: MPI may give its place to another one before this is heard.
    """

    rank: int
    number: int
    text: str
    final: bool
    id: str = ""


class Refusals:
    """The refusals of one communicator."""

    def __init__(self, comm: MPI.Intracomm, tag: int, id: str = "") -> None:
        """Speak on a private communicator with some id, with a tag that nothing else has."""
        self.comm, self.tag, self.id = comm, tag, id
        self.posted: list[Any] = []
        self.heard: list[Refusal] = []

    def post(self, number: int, error: BaseException, final: bool) -> None:
        """Tell all others that a call has raised here; returns at once."""
        refusal = Refusal(self.comm.rank, number, repr(error), final, self.id)
        self.hear()
        self.posted = [request for request in self.posted if not request.test()[0]]
        others = [rank for rank in range(self.comm.size) if rank != self.comm.rank]
        self.posted += [self.comm.isend(refusal, other, self.tag) for other in others]

    def look(self, number: int, name: str) -> MismatchError | None:
        """Return the error of a call that another rank has refused, None if no rank has."""
        self.hear()
        self.heard = [r for r in self.heard if r.final or r.number >= number]
        for refusal in self.heard:
            if refusal.number <= number:
                return MismatchError(f"{name}: rank {refusal.rank} raised {refusal.text} in call #{refusal.number}")
        return None

    def last_word(self, number: int, name: str) -> MismatchError | None:
        """Return the error of an earlier call that another rank has refused for good, None if no rank has."""
        error = self.look(number + 1, name)
        return error if any(refusal.final for refusal in self.heard) else None

    def hear_out(self, expected: bool) -> None:
        """Take the refusals that have come: MPICH frees no communicator with messages that nobody has taken.

        Args:
            expected: this rank has refused a call, so that others may have done so, too, and theirs are on their way.
        """
        end = time.monotonic() + (ON_THEIR_WAY if expected else 0)
        self.hear()
        while time.monotonic() < end:
            os.sched_yield()
            self.hear()

    def hear(self) -> None:
        """Take the refusals that have come."""
        while (message := self.comm.improbe(tag=self.tag)) is not None:
            refusal = message.recv()
            if refusal.id == self.id:
                self.heard.append(refusal)
