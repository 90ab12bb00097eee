"""Refusals: a rank whose call has raised tells the others, which may be waiting for its messages.

They are told by UDP, desk to desk (see `roll_call.py`), so that nothing is left in MPI that nobody receives.
A blocking call that is served pays nothing.  What is waited for ends as follows; the numbers are of calls.

    rank 1 raises in 7, and tells all      others in 7 or later: their receives are cancelled, and they raise, too
                                           others before 7: they raise when they make 7
    all, at their next call                reunion: they exchange at which call they are, and throw away what
                                           messages are left; where all are at 7, they go on
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any

from mpicoll.errors import MismatchError
from mpicoll.runtime.program.bound import Bound

#: seconds from a refusal to the end of the calls that wait, in which those that need nothing of that rank may end
GRACE = 0.2
#: said instead of a number by a rank whose program ends: it does not meet the others again
LEFT = -1
#: refusals that are kept
MOST = 256
#: characters of an error's text that other ranks hear of
LONGEST = 600


@dataclass(frozen=True)
class Refusal:
    """A rank's word that its call has raised.

    `Refusal(1, 7, "ValueError('x')")`: rank 1's seventh call has raised.

    Attributes:
        rank: that has raised.
        number: of the call on its communicator, among those that were refused, too.
        text: of the error.
    """

    rank: int
    number: int
    text: str

    def error(self, name: str) -> MismatchError:
        """Return what a rank raises that makes the call, or a later one; `name` is the call with its number."""
        return MismatchError(f"{name}: rank {self.rank} raised {self.text}")


class Refusals:
    """The refusals of one communicator.

    Attributes:
        possible: all ranks can be told, and can end calls that wait.
        pending: the refusal after which ranks have not met again, None if there is none.
        since: when it was heard, in seconds of time.monotonic().
        out: ranks that are known not to be in that call any more.
        gone: ranks whose programs have ended.
        own: what this rank has told the others of it, None for nothing.
        last: number of the latest call after which ranks have met again.
        past: refusals after which they have, by their numbers.
        left: programs with messages under way, and what must live as long.
        reunions: is held by the thread that waits for a reunion.
        meeting: a reunion is on its way.
    """

    def __init__(self, rank: int, size: int) -> None:
        """Start with none, on this rank of so many."""
        self.rank, self.size = rank, size
        self.possible = False
        self.pending: Refusal | None = None
        self.since = 0.0
        self.out: set[int] = set()
        self.gone: set[int] = set()
        self.own: Refusal | None = None
        self.last = 0
        self.past: dict[int, Refusal] = {}
        self.left: list[tuple[Bound | None, Any]] = []
        self.reunions, self.meeting = threading.Lock(), False
        self._turn = threading.Lock()

    def is_due(self, number: int) -> bool:
        """Tell whether a call of a number that waits is to raise."""
        pending = self.pending
        return pending is not None and pending.number <= number and time.monotonic() - self.since > GRACE

    def take(self, refusal: Refusal) -> bool:
        """Hear a rank's word; tell whether it is news."""
        with self._turn:
            pending = self.pending
            if refusal.number == LEFT:
                self.gone.add(refusal.rank)
                return False
            if not self.possible or refusal.number <= self.last:
                return False
            if pending is None or refusal.number < pending.number:
                self.pending, self.since, self.out, self.own = refusal, time.monotonic(), set(), None
            elif refusal.number > pending.number:
                return False  # it has raised because of the one before
            news = refusal.rank not in self.out
            self.out.add(refusal.rank)
            if refusal.rank == self.rank:
                self.own = refusal
            return news

    def meet(self, number: int) -> None:
        """Forget the refusal that is pending: the ranks meet again, after a call of a number."""
        with self._turn:
            self.pending, self.last, self.out, self.own = None, number, set(), None

    def note(self, refusal: Refusal) -> None:
        """Keep a refusal after which ranks have met, so that what was made by that call is not used."""
        self.past[refusal.number] = refusal
        while len(self.past) > MOST:
            del self.past[next(iter(self.past))]

    @property
    def all_out(self) -> bool:
        """True once no rank is in the call that was refused."""
        return len(self.out) == self.size
