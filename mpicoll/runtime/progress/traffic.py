"""The traffic of one communicator: the calls on it, how far they are, and what has broken it."""

from __future__ import annotations

import math
import time
from typing import Any

from mpi4py import MPI

from mpicoll.errors import StalledError
from mpicoll.recorder import trace
from mpicoll.recorder.history import CallRecord, last_words
from mpicoll.recorder.recorder import Recorder
from mpicoll.runtime.program.bound import Bound
from mpicoll.runtime.progress import turns
from mpicoll.runtime.progress.refusals import Refusals
from mpicoll.runtime.progress.watch import Watch
from mpicoll.settings import settings

#: said in a forked child
FORKED = "this process was forked after mpicoll was used; MPI does not survive that: spawn instead"


class Traffic:
    """The common state of all operations on a communicator.

    While the fifth call waits for its second message, calls == 5 and last == {0: its operation}.

    Attributes:
        rank: this rank.
        size: number of ranks.
        calls: calls made on the communicator, this rank's latest included.
        moved: steps that operations on it have made.
        busy: a call on it is in local work now.
        ended: when an operation on it ended last, in seconds of time.monotonic(), -inf if none has.
        last: the last operation of each tag lane, as long as it is in flight.
        broken: what has broken it, "" if nothing has.
        refused: the error of its first call, None if that went well.
        refusals: what ranks tell each other of calls that raise, None before the first call.
        watch: how the other ranks are asked, None where there was no time limit.
        caller: the thread that makes a blocking call now, 0 for none.
        recorder: the calls that were made last.
        recent: the recorder's calls by their places (see `recorder/recent.py`), at hand.
        began: when each of them began, at hand.
    """

    def __init__(self, parent: MPI.Intracomm) -> None:
        """Start with no calls."""
        self.rank, self.size = parent.rank, parent.size
        self.last: dict[int, Any] = {}
        self.calls = self.moved = self.caller = 0
        self.ended = -math.inf
        self.busy = self.freed = self.forked = False
        self.broken = ""
        self.refused: Exception | None = None
        self.refusals: Refusals | None = None
        self.limit = settings.timeout
        self.watch = Watch(parent) if self.limit > 0 else None
        self.recorder = Recorder(self, parent.Get_name(), (self.rank, self.size, MPI.COMM_WORLD.rank))
        self.recent, self.began = self.recorder.calls.what, self.recorder.calls.began

    @property
    def waiting(self) -> bool:
        """True while a call on it waits here that has a limit of its own."""
        mine = (o.patience for o in tuple(turns.in_flight) if o.traffic is self)
        return any(patience is not None and patience.watched for patience in mine)

    def check(self) -> None:
        """Refuse a communicator that was freed, or on which a call has stalled or raised, and any after MPI's end."""
        refuse_after_finalize()
        if self.forked:
            raise RuntimeError(FORKED)
        if self.refused is not None:
            raise self.refused
        if self.freed:
            raise RuntimeError("the communicator was freed: no call can be made on it any more")
        if self.broken:
            raise StalledError(f"this communicator cannot be used after: {self.broken}")

    def spoiled(self, bound: Bound, position: int, error: BaseException) -> None:
        """Note that a call raised: unless its messages all arrived, later ones could be taken for them."""
        if not bound.requests or bound.settled(position):
            bound.free()
        else:
            self.broken = f"{bound.name.format(self.calls)} raised {error!r}"

    def stalled(self, what: str, why: str, said: dict[int, list[CallRecord]] | None = None) -> StalledError:
        """Return the error for a call that does not go on, with the ranks' last calls.

        Args:
            what: the call, and what it waits for.
            why: that is in vain.
            said: last calls of the other ranks; they are asked if it is None.
        """
        self.broken = what
        self.abort()
        trace.write()
        if said is None:
            said = self.watch.last_calls() if self.watch else {}
        now = time.monotonic()
        said |= {self.rank: [CallRecord.from_row(row, now) for row in self.recorder.told(now)]}
        return StalledError(f"{what}; {why}{last_words(said, now)}", history=dict(sorted(said.items())))

    def abort(self) -> None:
        """Make what waits without the host leave: here, nothing does."""


def refuse_after_finalize() -> None:
    """Raise RuntimeError if MPI has ended: asking it anything would end the process."""
    if MPI.Is_finalized():
        raise RuntimeError("MPI was finalized: no call can be made any more")
