"""The calls made last on one communicator, written down in as little time and memory as can be.

A blocking call that was made before is two stores, at the place of its number.  Call 1041 is in place 17:

    calls.what[17], calls.began[17] = remembered call, 5021.25

Half of the time that this takes is the clock's.  So the end is not written down: the call is over once the next one is
there.  A remembered call on the host that does not block is a `Decision` and two times.  All other calls, and those
of a trace, are entries.  Sizes, plan and names are looked up once somebody asks (see `history.py`); nothing
here keeps an array alive.
"""

from __future__ import annotations

from typing import Any

from mpicoll.recorder.entry import UNKNOWN, Entry

#: the place of a call is its number and this
MASK = 1023


class Recent:
    """The calls made last, by place.

    Attributes:
        what: a remembered call, a `Decision` or an entry; None at first.
        began: when it began, in seconds of time.monotonic(), unless it is an entry.
        ended: when it ended, earlier than it began before that, if it is a `Decision`.
        number: of the latest call, where they have numbers of their own.
    """

    def __init__(self) -> None:
        """Start with no calls."""
        self.what: list[Any] = [None] * (MASK + 1)
        self.began = [0.0] * (MASK + 1)
        self.ended = [0.0] * (MASK + 1)
        self.number = 0

    def fail(self, place: int, number: int, error: BaseException) -> None:
        """Put an entry in the place of a call that has raised; `number` is that of the call."""
        entry = self.entry(place, number)
        if entry is not None:
            self.what[place] = entry
            entry.end(error)

    def entry(self, place: int, number: int) -> Entry | None:
        """Return the entry of a call, None if nothing was kept of it; the end of a blocking one is not known."""
        what, began = self.what[place], self.began[place]
        if what is None or isinstance(what, Entry):
            return what
        form, ended = getattr(what, "form", "blocking"), UNKNOWN
        if form != "blocking":
            number = what.sequence or number
            ended = self.ended[place] if self.ended[place] >= began else 0.0
        entry = Entry(form, what.operands.method.capitalize(), number, what, bound=True)
        entry.began, entry.ended = began, ended
        return entry
