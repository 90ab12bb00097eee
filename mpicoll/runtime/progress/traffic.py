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
from mpicoll.runtime.progress import faults, turns
from mpicoll.runtime.progress.refusals import LEFT, LONGEST, Refusal, Refusals
from mpicoll.runtime.progress.rescuer import Rescuer
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
        refused_calls: calls that were refused before they counted as made.
        barred: a call must be checked before it is made: the communicator is broken, or a rank has refused a call.
        moved: steps that operations on it have made.
        busy: a call on it is in local work now.
        ended: when an operation on it ended last, in seconds of time.monotonic(), -inf if none has.
        last: the last operation of each tag lane, as long as it is in flight.
        refused: the error of its first call, None if that went well.
        refusals: what ranks tell each other of calls that raise.
        watch: how the other ranks are asked and told, None for a rank alone, and where the system has no sockets.
        caller: the thread that makes a blocking call now, 0 for none.
        recorder: the calls that were made last.
        recent: the recorder's calls by their places (see `recorder/recent.py`), at hand.
        began: when each of them began, at hand.
    """

    def __init__(self, parent: MPI.Intracomm) -> None:
        """Start with no calls."""
        self.rank, self.size = parent.rank, parent.size
        self.last: dict[int, Any] = {}
        self.calls = self.refused_calls = self.moved = self.caller = 0
        self.ended = -math.inf
        self.busy = self.freed = self.forked = self.barred = False
        self._broken = ""
        self.refused: Exception | None = None
        self.refusals = Refusals(self.rank, self.size)
        self.limit = settings.timeout
        self.watch = Watch.of(parent)
        self.recorder = Recorder(self, parent.Get_name(), (self.rank, self.size, MPI.COMM_WORLD.rank))
        self.recent, self.began = self.recorder.calls.what, self.recorder.calls.began

    @property
    def broken(self) -> str:
        """What has broken it, "" if nothing has."""
        return self._broken

    @broken.setter
    def broken(self, why: str) -> None:
        self._broken = why
        self.barred = bool(why) or self.refusals.pending is not None

    @property
    def attempts(self) -> int:
        """Calls made and calls refused, by which ranks number what they refuse."""
        return self.calls + self.refused_calls

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
        told = self.refusals.possible and isinstance(error, Exception) and not self.broken
        with turns.lock:  # which the rescuer has while it looks at requests
            if not bound.requests or (bound.settled(position, 0.0) if told else bound.settled(position)):
                bound.free()
            elif told:
                bound.running = False
                bound.cancel()
                self.refusals.left.append((bound, None))
            else:
                self.broken = f"{bound.name.format(self.calls)} raised {error!r}"

    def hear(self, rank: int, number: int, text: str) -> None:
        """Hear that a rank has refused a call; of the desk's thread."""
        if self.refusals.take(Refusal(rank, number, text)):
            self.barred = True
            Rescuer.wake(self)

    def refuse(self, error: BaseException, number: int) -> None:
        """Tell the other ranks that a call has raised here; returns at once.

        Args:
            error: that was raised.
            number: of the call among the attempts.
        """
        pending = self.refusals.pending  # of an earlier call, this one is out, too
        own = Refusal(self.rank, min(number, pending.number) if pending else number, repr(error)[:LONGEST])
        if not self.broken and isinstance(error, Exception) and self.refusals.take(own):
            self.barred = True
            self.tell_again()
            Rescuer.wake(self)

    def tell_again(self) -> None:
        """Tell the other ranks what this one has refused, if it has."""
        own = self.refusals.own
        if own is not None and self.watch is not None:
            self.watch.tell((own.rank, own.number, own.text))

    def tell_end(self) -> None:
        """Tell the other ranks that this one does not meet them again: its program ends."""
        if self.refusals.pending is not None and self.watch is not None:
            self.watch.tell((self.rank, LEFT, ""))

    def hold(self, *memory: object) -> None:
        """Keep memory into which messages of a call that raised may still come."""
        if self.broken:
            faults.abandoned.append((self, memory))
        elif self.refusals.left:
            self.refusals.left.append((None, memory))

    def stop(self, name: str, number: int) -> None:
        """Raise what another rank has raised in a call that was read, and whose messages are not started.

        Args:
            name: the call, with its number, for messages.
            number: of the call among the attempts.
        """
        pending = self.refusals.pending
        if pending is not None and pending.number <= number:
            raise pending.error(name)

    def meet_again(self) -> None:
        """Begin to meet the other ranks, while a call waits for their words: here, none does."""

    def rescue(self, refusal: Refusal) -> None:
        """End the blocking call that waits: here, there is none."""

    def drain(self) -> None:
        """Throw away messages of a call that was refused: here, there are none."""

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
