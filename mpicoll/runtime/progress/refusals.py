"""Refusals: a rank whose call has raised tells the others, which may be waiting for its messages.

Posting one is local, and looking for one is a probe, which only those make that wait; a call that is
served pays nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mpi4py import MPI

from mpicoll.errors import MismatchError


@dataclass(frozen=True)
class Refusal:
    """A rank's word that its call has raised.

    `Refusal(1, 7, "ValueError('x')", final=False)`: rank 1's seventh call has raised, and later calls can be made.

    Attributes:
        rank: that has raised.
        number: of the call on its communicator.
        text: of the error.
        final: messages of the call are lost, so that no later call can be made, either.
    """

    rank: int
    number: int
    text: str
    final: bool


class Refusals:
    """The refusals of one communicator."""

    def __init__(self, comm: MPI.Intracomm, tag: int) -> None:
        """Speak on a private communicator, with a tag that nothing else has."""
        self.comm, self.tag = comm, tag
        self.posted: list[Any] = []
        self.heard: list[Refusal] = []

    def post(self, number: int, error: BaseException, final: bool) -> None:
        """Tell all others that a call has raised here; returns at once."""
        refusal = Refusal(self.comm.rank, number, repr(error), final)
        others = [rank for rank in range(self.comm.size) if rank != self.comm.rank]
        self.posted += [self.comm.isend(refusal, other, self.tag) for other in others]

    def look(self, number: int, name: str) -> MismatchError | None:
        """Return the error of a call that another rank has refused, None if no rank has."""
        while (message := self.comm.improbe(tag=self.tag)) is not None:
            self.heard.append(message.recv())
        self.heard = [r for r in self.heard if r.final or r.number >= number]
        for refusal in self.heard:
            if refusal.number <= number:
                return MismatchError(f"{name}: rank {refusal.rank} raised {refusal.text} in call #{refusal.number}")
        return None
