"""The recorder of one communicator: what is kept of its calls, and what is told of them."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import replace
from itertools import count, islice
from typing import Any, Protocol

from mpicoll.recorder import nvtx, trace
from mpicoll.recorder.entry import UNKNOWN, Entry
from mpicoll.recorder.history import CallRecord, History
from mpicoll.recorder.recent import MASK, Recent

#: calls of a communicator that are shown
LAST = 1000
#: calls of a rank that other ranks are told
TOLD = 8


class Counted(Protocol):
    """State of a communicator's context that a recorder reads.

    Attributes:
        calls: number of calls so far.
        caller: thread that makes a blocking call now, 0 for none.
    """

    calls: int
    caller: int


#: those of this process
_recorders: weakref.WeakSet[Recorder] = weakref.WeakSet()
_numbers = count(1)


class Recorder:
    """The calls made last on one communicator.

    Attributes:
        track: the communicator.
        calls: by the numbers of the calls.
        starts: starts of persistent calls, by numbers of their own.
    """

    def __init__(self, counted: Counted, name: str, place: tuple[int, int, int]) -> None:
        """Start with no calls.

        Args:
            counted: the context, which is not kept alive.
            name: of the communicator, "" if it has none.
            place: this process's rank on it, its size, and this process's rank in COMM_WORLD.
        """
        number = next(_numbers)
        self.track = trace.Track(name or f"communicator {number}", number, *place)
        self.calls, self.starts = Recent(), Recent()
        self._counted = weakref.ref(counted)
        _recorders.add(self)

    def begin(self, form: str, method: str, sequence: int, known: Any, file: str, *, bound: bool = False) -> Entry:
        """Return the entry of a call that begins now.

        Args:
            form: as in `Entry`, as are the next three.
            method: such as "Allreduce".
            sequence: number of the call.
            known: what has its operands and its plan.
            file: of the trace to which it belongs, "" for none.
            bound: its program is there.
        """
        entry = Entry(form, method, sequence, known, bound=bound)
        if form == "start":
            self.starts.number = number = self.starts.number + 1
            self.starts.what[number & MASK] = entry
        else:
            self.calls.what[sequence & MASK] = entry
        if file:
            trace.keep(file, self.track, entry)
            entry.ranges = nvtx.module()
        return entry

    def history(self, most: int = LAST) -> History:
        """Return so many calls that were made last, in the order in which they began."""
        most = max(min(most, LAST), 0)
        latest = [*islice(self._entries(), most), *islice(self._starts(), most)]
        entries = sorted(latest, key=lambda entry: entry.began)
        return History(CallRecord.of(entry, self.track.name) for entry in entries[max(len(entries) - most, 0) :])

    def told(self, now: float) -> list[list[Any]]:
        """Return rows of the last calls for other ranks, and of a later one on another communicator."""
        mine = [replace(one, communicator="") for one in self.history(TOLD)]
        others = [one for other in list(_recorders) if other is not self for one in other.history(1)]
        elsewhere = max(others, key=lambda one: one.begin, default=None)
        if elsewhere is not None and not (mine and mine[-1].begin > elsewhere.begin):
            mine.append(elsewhere)
        return [one.row(now) for one in mine]

    def _entries(self) -> Iterator[Entry]:
        """Yield entries of the numbered calls, the latest one first."""
        counted = self._counted()
        calls, in_call = (counted.calls, counted.caller != 0) if counted is not None else (0, False)
        for number in range(calls, max(calls - LAST, 0), -1):
            entry = self.calls.entry(number & MASK, number)
            if entry is None or entry.sequence != number:
                in_call = in_call and number != calls  # it is the latest one, of which nothing is kept yet
                continue
            if in_call and entry.form == "blocking":  # the latest one: they come one after the other
                in_call, entry.ended = False, 0.0 if entry.ended == UNKNOWN else entry.ended
            yield entry

    def _starts(self) -> Iterator[Entry]:
        """Yield entries of the starts, the latest one first."""
        numbers = range(self.starts.number, max(self.starts.number - LAST, 0), -1)
        found = (self.starts.entry(number & MASK, number) for number in numbers)
        return (entry for entry in found if entry is not None)
