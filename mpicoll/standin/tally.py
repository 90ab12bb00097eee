"""The tally: how many calls a rank has made on stand-ins, how long they took, and what became of them.

("served", "Allreduce", "ring/8@host") -> [12 calls, 50331648 bytes, 0.031 seconds]
("passed", "bcast", "mpi4py pickles Python objects") -> [1, 0, 0.0002]
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from mpicoll.recorder.entry import Entry, nbytes_of
from mpicoll.recorder.history import CallRecord

#: what became of a call, its method, and its algorithm, or the reason, or the error
Key = tuple[str, str, str]
#: calls, bytes and seconds by key
Counts = dict[Key, list[Any]]

#: kinds of what becomes of calls, in the order of the report
KINDS = ("served", "passed", "messages", "raised")
#: errors that are told apart
MOST_ERRORS = 20
#: characters of an error that are kept
LONGEST_ERROR = 200


class Tally:
    """The counts of one rank.

    Attributes:
        counts: calls, bytes and seconds.
        undecided: methods, entries and seconds of calls that had no plan yet when they were started.
    """

    def __init__(self) -> None:
        """Start with no calls."""
        self.counts: Counts = {}
        self.undecided: list[tuple[str, Entry, float]] = []
        self._turn = threading.Lock()

    def add(self, key: Key, seconds: float, nbytes: int = 0) -> None:
        """Count a call.

        Args:
            key: what became of it.
            seconds: how long it took, for the host.
            nbytes: its message size.
        """
        with self._turn:
            row = self.counts.setdefault(key, [0, 0, 0.0])
            row[0] += 1
            row[1] += nbytes
            row[2] += seconds

    def serve(self, method: str, what: Any, seconds: float) -> None:
        """Count a call that mpicoll has served.

        Args:
            method: such as "Allreduce".
            what: the recorder has of it: a remembered call, a decision or an entry; None if it was put into a group.
            seconds: how long it took, for the host.
        """
        if isinstance(what, Entry):
            if what.known is None:
                self.undecided.append((method, what, seconds))
                return
            what = what.known
        if what is None:
            self.add(("served", method, "made with its group"), seconds)
            return
        nbytes = 0 if method.endswith("_init") else nbytes_of(what.operands)  # which moves nothing yet
        self.add(("served", method, choice_of(what.plan)), seconds, nbytes)

    def refuse(self, method: str, error: Exception, seconds: float) -> None:
        """Count a call that has raised."""
        text = f"{type(error).__name__}: {error}".partition("\n")[0][:LONGEST_ERROR]
        known = {key[2] for key in list(self.counts) if key[0] == "raised"}
        self.add(("raised", method, text if len(known) < MOST_ERRORS or text in known else "other errors"), seconds)

    def closed(self) -> Counts:
        """Return all counts; a call that was never planned is among them."""
        undecided, self.undecided = self.undecided, []
        for method, entry, seconds in undecided:
            if entry.known is None:
                self.add(("served", method, "not planned"), seconds)
            else:
                self.serve(method, entry, seconds)
        return self.counts


tally = Tally()


def choice_of(plan: Any) -> str:
    """Return a plan's choice, such as "ring/8@host"."""
    record = CallRecord("", 0, "", "", algorithm=plan.algorithm, segments=plan.segments, path=plan.path)
    return record.plan


def merged(found: Iterable[Counts]) -> Counts:
    """Return the counts of several ranks: the sum of calls and bytes, the time of the slowest rank."""
    all_ranks: Counts = {}
    for counts in found:
        for key, (calls, nbytes, seconds) in counts.items():
            row = all_ranks.setdefault(key, [0, 0, 0.0])
            row[:] = row[0] + calls, row[1] + nbytes, max(row[2], seconds)
    return dict(sorted(all_ranks.items(), key=lambda item: (KINDS.index(item[0][0]), -item[1][2], item[0])))
