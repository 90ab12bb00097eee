"""The watch: the ranks' words on themselves, where a call has waited for too long."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import astuple

from mpi4py import MPI

from mpicoll.recorder.history import CallRecord
from mpicoll.runtime.mpi import roll_call
from mpicoll.runtime.progress.faults import Patience
from mpicoll.runtime.progress.notices import Notice, in_words
from mpicoll.settings import settings

#: bytes per second below which a link counts as stuck: what is on its way extends the limit accordingly
SLOWEST = 1e6
#: seconds for which bytes on their way excuse ranks that give no answer: a slow link lets some of them through
UNHEARD = 20.0
#: times that ranks are asked what they make
TRIES = 3
#: said where nobody can be asked
UNWATCHED = "set MPICOLL_TIMEOUT from the start, and the message names the ranks that are missing"


class Watch:
    """The questions to a communicator's ranks, their last answers, and what they are told.

    Attributes:
        id: the communicator's name among the desks, "" before ranks have agreed on it.
        address: of this process's desk.
        answers: of the other ranks, when they were asked last.
        silent: ranks with a desk that did not answer when a call stalled.
    """

    def __init__(self, parent: MPI.Intracomm) -> None:
        """Open this process's desk; local."""
        self.desk = roll_call.Desk.open()
        self.address = self.desk.address
        self.rank, self.size, self.id = parent.rank, parent.size, ""
        group, world = parent.Get_group(), MPI.COMM_WORLD.Get_group()
        self.world_ranks = tuple(MPI.Group.Translate_ranks(group, list(range(parent.size)), world))
        group.Free()
        world.Free()
        self.birth = self.desk.born(self.world_ranks)
        self.answers: dict[int, roll_call.Answer] = {}
        self.silent: dict[int, roll_call.Address] = {}

    @classmethod
    def of(cls, parent: MPI.Intracomm) -> Watch | None:
        """Return the watch of a communicator, None where there is nobody to ask, or no way to."""
        try:
            return cls(parent) if parent.size > 1 or settings.timeout > 0 else None
        except OSError:
            return None

    def tell(self, notice: Notice, ranks: Iterable[int] | None = None) -> None:
        """Tell other ranks of a notice, all if none are named; returns at once."""
        desks = self._desks()
        chosen = desks if ranks is None else desks.keys() & set(ranks)
        if len(chosen) < roll_call.MOST_TOLD:
            self.desk.tell([desks[rank] for rank in chosen], self.id, astuple(notice))

    def made(self, number: int) -> dict[int, str]:
        """Return in words what other ranks make as their call of a number, of those that are there and answer."""
        for _ in range(TRIES):
            if all(rank in self.answers or self.has_left(rank) for rank in self._ask()):
                break
        rows = self.last_calls(again=False)
        made = ((rank, call_made(rows[rank], number, answer.calls)) for rank, answer in self.answers.items())
        return {rank: words for rank, words in made if words}

    def agree(
        self, traffic: roll_call.Asked, name: str, addresses: Iterable[roll_call.Address | None], *, named: bool
    ) -> None:
        """Take what ranks have told each other.

        Args:
            traffic: that the desk tells of.
            name: the communicator's name among the desks.
            addresses: where its ranks are asked.
            named: these have the hosts' names, else digests.
        """
        self.id = name
        self.desk.contexts[name] = traffic
        for rank, address in zip(self.world_ranks, addresses, strict=True):
            if address is not None and rank >= 0 and (named or rank not in self.desk.directory):
                self.desk.directory[rank] = address

    def verdict(self, number: int, pending_bytes: int, patience: Patience) -> str | None:
        """Return why a call does not go on, None if it is only slow.

        Args:
            number: of the call on its communicator.
            pending_bytes: bytes of the messages that it waits for.
            patience: how long it has waited.
        """
        desks, me = self._ask(), self.rank
        answers = self.answers
        late = [r for r, answer in answers.items() if answer.calls < number]
        absent = sorted(r for r in late if self._is_absent(answers[r], patience.limit))
        silent = [r for r in range(self.size) if r != me and r not in answers]
        before, patience.moves = patience.moves, sum(answer.moved for answer in answers.values())
        moving = not silent and (before is None or before != patience.moves)
        working = bool(late) or any(answer.busy for answer in answers.values())  # late ones are in an earlier call
        slow = self._slow(pending_bytes, patience) and patience.unheard(bool(silent)) <= UNHEARD
        if not absent and (moving or working or slow):
            return None
        self.silent = {r: desks[r] for r in silent if r in desks and not self.has_left(r)}
        return self._words(absent, silent, desks)

    def missing(self) -> str:
        """Return in words the ranks that did not answer when a call stalled, and do not now; "" for none."""
        heard = roll_call.ask(self.silent, self.id, None) if self.silent else {}
        self.silent = {r: desk for r, desk in self.silent.items() if r not in heard and not self.has_left(r)}
        return _names(list(self.silent), self.silent) if self.silent else ""

    def has_left(self, rank: int) -> bool:
        """Tell whether a rank is at the end of its program, and has said so."""
        return self.world_ranks[rank] in self.desk.left

    def _ask(self) -> dict[int, roll_call.Address]:
        """Ask the other ranks, and return the desks of those that can be asked."""
        desks = self._desks()
        self.answers = roll_call.ask(desks, self.id, None if self.id else self.birth)
        return desks

    def _desks(self) -> dict[int, roll_call.Address]:
        """Return the desks of the other ranks, of those that can be asked."""
        directory, me = self.desk.directory, self.rank
        return {r: directory[w] for r, w in enumerate(self.world_ranks) if r != me and w in directory}

    def last_calls(self, *, again: bool = True) -> dict[int, list[CallRecord]]:
        """Return the last calls of the other ranks that answer, asked now or, not `again`, before."""
        if again:
            self._ask()
        now = time.monotonic()
        return {rank: answer.records(now) for rank, answer in self.answers.items()}

    @staticmethod
    def _is_absent(late: roll_call.Answer, limit: float) -> bool:
        """Tell whether a late rank is in no call, and was in none for the limit: a call before may have kept it."""
        return not (late.busy or late.waiting) and late.outside >= limit

    def _slow(self, pending_bytes: int, patience: Patience) -> bool:
        """Tell whether messages of so many bytes may still be on a slow link, which all ranks share."""
        return patience.idle <= patience.limit + pending_bytes * self.size / SLOWEST

    def _words(self, absent: list[int], silent: list[int], desks: dict[int, roll_call.Address]) -> str:
        unknown, left = [r for r in silent if r not in desks], list(filter(self.has_left, silent))
        silent = [r for r in silent if r in desks and r not in left]
        words = [f"{_ranks(absent, desks)} not made the call"] if absent else []
        words += [f"no answer from {_names(silent, desks)}"] if silent else []
        words += [f"{_names(left, desks)} at the end of the program"] if left else []
        if unknown and not absent:
            words.append(f"{_names(unknown, desks)} cannot be asked before the first call has been made")
        if words:
            return "; ".join(words)
        return "every rank has made the call, and none goes on: do all make the same one? MPICOLL_DEBUG=1 compares them"


def call_made(records: list[CallRecord], number: int, latest: int) -> str:
    """Return in words what a rank makes as its call of a number, "" if it has not decided to make it.

    Args:
        records: of its last calls, there and elsewhere.
        number: of the call on this communicator.
        latest: number of its latest call.
    """
    undecided = ("planning", "failed") if number == latest else ("planning",)  # one that failed may be taken back
    here = (one for one in records if one.sequence == number and not one.communicator and one.form != "start")
    made = (in_words(one.form, one.method) for one in here if number <= latest and one.state not in undecided)
    return next(made, "")


def _names(ranks: list[int], desks: dict[int, roll_call.Address]) -> str:
    hosts = {rank: f" on {desks[rank].host}" if rank in desks else "" for rank in ranks}
    return f"rank{'s'[: len(ranks) > 1]} " + ", ".join(f"{rank}{hosts[rank]}" for rank in ranks)


def _ranks(ranks: list[int], desks: dict[int, roll_call.Address]) -> str:
    return f"{_names(ranks, desks)} {'have' if len(ranks) > 1 else 'has'}"
