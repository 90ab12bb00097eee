"""The traffic of one communicator: the calls on it, how far they are, and what has broken it."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

from mpi4py import MPI

from mpicoll.errors import MismatchError, StalledError
from mpicoll.recorder import trace
from mpicoll.recorder.history import CallRecord, last_words
from mpicoll.recorder.recent import MASK
from mpicoll.recorder.recorder import Recorder
from mpicoll.runtime.program.bound import Bound
from mpicoll.runtime.progress import faults, turns
from mpicoll.runtime.progress.modes import modes
from mpicoll.runtime.progress.notices import LONGEST, MOST_ASKED, Notice, Notices, in_words
from mpicoll.runtime.progress.refusals import Refusals
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
        moved: steps that operations on it have made.
        busy: a call on it is in local work now.
        ended: when an operation on it ended last, in seconds of time.monotonic(), -inf if none has.
        last: the last operation of each tag lane, as long as it is in flight.
        barred: there is more to making a call than to count it: the communicator is broken, or a call was refused.
        vain: the notice by which calls here wait in vain, None if they do not.
        notices: what ranks tell each other of calls that one rank alone cannot make.
        refused: the error of its first call, None if that went well.
        refusals: what ranks tell each other of calls that raise, None before the first call.
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
        self.calls = self.moved = self.caller = 0
        self.ended = -math.inf
        self.busy = self.freed = self.forked = self.barred = False
        self._broken = ""
        self.vain: Notice | None = None
        self.notices = Notices()
        self.refused: Exception | None = None
        self.refusals: Refusals | None = None
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
        self._broken, self.barred = why, bool(why)

    @property
    def waiting(self) -> bool:
        """True while a call on it waits here that has a limit of its own."""
        mine = (operation.patience for operation in turns.of(self))
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
        if self._broken:  # at hand: every call asks
            raise StalledError(f"this communicator cannot be used after: {self._broken}")

    def count(self) -> int:
        """Return the number of a call that is made now, of which nothing is known yet.

        The desk's thread may look at any time: it must not find an earlier call in this one's place.
        """
        number = self.calls + 1
        self.recent[number & MASK] = None
        self.calls = number
        return number

    def come(self, form: str, method: str, number: int) -> None:
        """Come to a call that is decided, before its first message.

        After one that this rank has refused it tells the others which one it makes now, and compares it with theirs.

        Args:
            form: as in `Entry`, as is the method.
            method: see there.
            number: of the call.

        Raises:
            MismatchError: this rank or another one has refused a call, and now they make different ones.
        """
        if not self.barred:
            return
        if self.broken:
            self.check()
        own, call = self.notices.own, in_words(form, method)
        pending = own is not None and not (own.next or own.broken)
        self.barred = False
        self.barred = pending or bool(self.notices.heard)  # looked at now, for one may have been heard meanwhile
        self._heed_broken(f"{call} #{number}")
        for one in tuple(self.notices.heard.values()):
            if one.next not in ("", call) and one.number == number:
                self._part(one, one.raised(f"{call} #{number}"))
        if own is not None and pending and number >= own.number:  # else a call before the refused one begins late
            self._go_on(replace(own, ordinal=own.ordinal + 1, next=call), number)

    def _go_on(self, own: Notice, number: int) -> None:
        """Tell the other ranks which call of a number this one makes, and compare it with theirs.

        Args:
            own: this rank's notice, with that call.
            number: see above.
        """
        self.barred = bool(self.notices.heard)
        self._give(own)
        made = self.watch.made(number) if self.watch and self.size <= MOST_ASKED else {}
        for rank, other in made.items():
            if other != own.next:
                self._part(own, MismatchError(f"{own.next} #{number}: {own}, where rank {rank} makes {other}"))
        self._heed_broken(f"{own.next} #{number}")

    def _heed_broken(self, name: str) -> None:
        """Raise what has broken the communicator meanwhile, or is told to have; `name` is a call with its number."""
        if self.vain is not None:
            raise self.vain.raised(name)
        for one in tuple(self.notices.heard.values()):
            if one.broken:
                self._part(one, one.raised(name))

    def _part(self, why: Notice, error: BaseException) -> None:
        """Break the communicator, since ranks make different calls, and raise an error."""
        self._break(why)
        raise error

    def _break(self, why: Notice) -> None:
        """Break the communicator because of a notice, and tell the other ranks."""
        self.vain, self.broken = why, str(why)
        self._give(replace(why, rank=self.rank, by=why.culprit, ordinal=1 + self._ordinal, broken=True))
        self.abort()

    def refuse(self, error: BaseException) -> None:
        """Tell the other ranks that this one does not make the call that it was asked for; returns at once."""
        if self.watch is not None and not self.broken:
            self._give(self._notice(self.calls + 1, error))
            self.barred = True

    def unmade(self, error: BaseException) -> None:
        """Take back the latest call, which has raised before its first message, and tell the other ranks."""
        if not self.broken:
            self.recent[self.calls & MASK] = None
            self.calls -= 1
            self.refuse(error)

    def lost(self, number: int, error: BaseException) -> None:
        """Tell the other ranks that a call which has begun, of a number, has raised before its first message."""
        if number == self.calls:
            self.unmade(error)
        elif not self.broken:
            self._ruin(f"call #{number} raised {error!r}", number, error)

    def _ruin(self, what: str, number: int, error: BaseException) -> None:
        """Break the communicator, for a call of a number has raised here while others may wait in it, and tell them."""
        self.broken = what
        if self.watch is not None and not modes().shares_errors:
            self.vain = self._notice(number, error, broken=True)
            self._give(self.vain)

    @property
    def _ordinal(self) -> int:
        """Number of this rank's notices."""
        return self.notices.own.ordinal if self.notices.own else 0

    def _notice(self, number: int, error: BaseException, *, broken: bool = False) -> Notice:
        return Notice(self.rank, 1 + self._ordinal, number, repr(error)[:LONGEST], broken=broken)

    def _give(self, notice: Notice) -> None:
        """Tell a notice of this rank's, now and some times more."""
        self.notices.own = notice
        self.tell_own()
        Rescuer.wake(self)

    def tell_own(self) -> bool:
        """Tell this rank's latest notice to the others; tell whether they can be told yet.

        Where many wait in vain because of one rank, all of them have its notice; it hears of theirs.
        """
        own, watch = self.notices.own, self.watch
        if own is None or watch is None or not watch.id:
            return False
        alone = self.vain is not None and self.vain.rank != self.rank and self.size > MOST_ASKED
        watch.tell(own, [self.vain.rank] if self.vain and alone else None)
        return True

    def hear(self, *notice: Any) -> None:
        """Hear another rank's notice, given by its fields: from the desk's thread."""
        if self.notices.take(Notice(*notice)):
            self.barred = True
            Rescuer.wake(self)

    def find_out(self, waited: float | None) -> None:
        """Break the communicator if a call waits in vain, or none can be made, by a notice.

        Args:
            waited: seconds for which this rank has not gone on in a call, None while it is in none.
        """
        if self.broken or self.watch is None:
            return
        found = self.notices.in_vain(self.calls, waited, self._call, self.watch.has_left)
        if found is not None:
            self._break(found)

    def _call(self, number: int) -> str | None:
        """Return in words the call that was made by a number, "" if it is forgotten, None if it is not decided."""
        latest, entry = self.calls, self.recorder.calls.entry(number & MASK, number)
        if number + MASK <= self.calls:  # asked afterwards: another call may have taken its place
            return ""
        if entry is None or entry.sequence != number:
            return None if number == latest else ""
        undecided = not entry.bound or (entry.error and number == latest)  # which may be taken back
        return None if undecided else in_words(entry.form, entry.method)

    def rescue(self) -> None:
        """End the blocking call that waits in vain, by another thread: here, there is none."""

    def end_job(self) -> None:
        """End the job, where a call waits in vain for what cannot be ended."""
        faults.end_job(f"{self._call(self.calls) or 'call'} #{self.calls} waits in vain: {self.vain}")

    def spoiled(self, bound: Bound, position: int, error: BaseException) -> None:
        """Note that a call raised: unless its messages all arrived, later ones could be taken for them."""
        if self.vain is not None:
            return
        if not bound.requests or bound.settled(position):
            bound.free()
            return
        self._ruin(f"{bound.name.format(self.calls)} raised {error!r}", self.calls, error)

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
