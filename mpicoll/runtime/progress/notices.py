"""Notices: what a rank tells the others, by UDP, of a call that it alone cannot make.

A call that a rank refuses before its first message is not made: the rank may repeat it, make another one, or none, as
with mpi4py.  The others may wait for its messages in their call of that number.  They go on waiting, until they know
that it is in vain:

    rank 1 refuses its call #7       rank 0 is in its call #7, an allreduce
    refused                          waits on: rank 1 may repeat it, or both may be at another call than the refused one
    refused, and now at an allreduce waits on: rank 1 comes, and the refused call is forgotten
    refused, and now at a barrier    raises, even if it needed nothing of rank 1: they do not make the same calls
    refused, and its program ends    raises; so it does after 30 s without another call of rank 1's
    broken                           raises, as in every call from then on

Before rank 1 makes its next call #7 it asks what the others make as theirs, and raises where that differs.  A rank that
raises so breaks the communicator, and tells that.  A call that is served pays nothing: a thread looks
after communicators of which there is a notice (see `rescuer.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from mpicoll.errors import MismatchError

#: seconds that a call waits after a notice by which it is in vain, in which messages on their way may end it
GRACE = 0.2
#: seconds that a call waits for a rank that has refused one and makes no other
PATIENCE = 30.0
#: characters of an error's text that other ranks hear of
LONGEST = 600
#: ranks up to which one that has refused a call asks all others what they make
MOST_ASKED = 64


@dataclass(frozen=True)
class Notice:
    """A rank's latest word on itself.

    `Notice(1, 3, 7, "TypeError('x')", "barrier")`: rank 1 has refused its seventh call, and makes a barrier instead.

    Attributes:
        rank: whose word it is.
        ordinal: of its words on this communicator; the latest one counts.
        number: of the call on its communicator.
        error: that was raised.
        next: the call that it makes instead, "" as long as it makes none.
        broken: it can make no call on the communicator any more.
        by: the rank that has raised, where that is another one; None: this one.
    """

    rank: int
    ordinal: int
    number: int
    error: str
    next: str = ""
    broken: bool = False
    by: int | None = None

    @property
    def culprit(self) -> int:
        """The rank that has raised."""
        return self.rank if self.by is None else self.by

    def ends(self, number: int, waited: float | None, left: bool) -> bool:
        """Tell whether a rank in a call of a number waits in vain, unless the two make the same calls.

        Args:
            number: of the call.
            waited: seconds for which it has waited in a call and not gone on, None if it is in none.
            left: the other rank's program is at its end.
        """
        if self.broken or self.next:
            return (self.broken or number >= self.number) and (waited is None or waited > GRACE)
        return waited is not None and number >= self.number and waited > (GRACE if left else PATIENCE)

    def raised(self, name: str) -> MismatchError:
        """Return what a rank raises that waits in vain; `name` is its call with its number."""
        return MismatchError(f"{name}: {self}")

    def __str__(self) -> str:
        instead = f", and makes {self.next} instead" if self.next else ""
        return f"rank {self.culprit} raised {self.error} in call #{self.number}{instead}"


def in_words(form: str, method: str) -> str:
    """Return a call in words that are the same on all ranks that make it together; arguments as in `Entry`."""
    return f"{'persistent ' * (form == 'persistent')}{method.lower()}"


class Notices:
    """The notices of one communicator.

    Attributes:
        own: this rank's latest one, None for none.
        heard: the other ranks' latest ones, by rank, as long as they matter.
    """

    def __init__(self) -> None:
        """Start with none."""
        self.own: Notice | None = None
        self.heard: dict[int, Notice] = {}
        self._ordinals: dict[int, int] = {}
        self._turn = threading.Lock()

    def take(self, notice: Notice) -> bool:
        """Hear another rank's word, and tell whether it is news: words are told several times, in any order."""
        with self._turn:
            if notice.ordinal <= self._ordinals.get(notice.rank, 0):
                return False
            self._ordinals[notice.rank] = notice.ordinal
            self.heard[notice.rank] = notice
            return True

    def in_vain(
        self, number: int, waited: float | None, call: Callable[[int], str | None], has_left: Callable[[int], bool]
    ) -> Notice | None:
        """Return the notice by which this rank waits in vain, None if it may not; forget those that do not matter.

        Args:
            number: of this rank's latest call.
            waited: seconds for which it has waited in a call and not gone on, None while it is in none.
            call: returns in words the call that it made by a number, "" if that is forgotten, None if it may refuse it.
            has_left: tells whether a rank's program is at its end.
        """
        with self._turn:
            for rank, one in tuple(self.heard.items()):
                made = call(one.number) if one.next and number >= one.number else ""
                if one.next and not one.broken and number >= one.number and made in ("", one.next):
                    del self.heard[rank]
                elif (made is not None or one.broken) and one.ends(number, waited, has_left(rank)):
                    return one
        return None
