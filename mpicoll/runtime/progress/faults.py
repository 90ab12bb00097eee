"""Time limits: how long a call may wait, who keeps it, and how a job ends in which a call has stalled."""

from __future__ import annotations

import faulthandler
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from mpi4py import MPI

from mpicoll.errors import MismatchError, StalledError, TransportError
from mpicoll.runtime.mpi import roll_call

if TYPE_CHECKING:
    from mpicoll.runtime.context.context import Context
    from mpicoll.runtime.progress.operations import Operation

#: bytes per second below which a link counts as stuck: what is on its way extends the limit accordingly
SLOWEST = 1e6
#: said where nobody can be asked
UNWATCHED = "set MPICOLL_TIMEOUT from the start, and the message names the ranks that are missing"
#: looks at least before a limit has passed: time between two looks, when nobody looked, is the program's own
LOOKS = 3
#: seconds after a look in which an operation counts as one that is waited for; asking the others takes some itself
WATCHED = 2 * roll_call.GRACE

#: memory of calls that broke their communicators, into which messages may still come: it is never given back
abandoned: list[object] = []


class Patience:
    """The time in which an operation has not gone on, although somebody looked.

    Attributes:
        limit: seconds that it may take.
        idle: seconds so far.
        moves: steps of the other ranks when they were asked, None before that.
    """

    def __init__(self, limit: float) -> None:
        """Start with none."""
        self.limit = self.most = limit
        self.moved, self.idle, self.looked = -1, 0.0, time.monotonic()
        self.moves: int | None = None

    def is_over(self, moved: int) -> bool:
        """Tell whether an operation that has made so many moves has waited for too long."""
        now = time.monotonic()
        if moved != self.moved:
            self.moved, self.idle, self.most, self.moves = moved, 0.0, self.limit, None
        else:
            self.idle += min(now - self.looked, self.limit / LOOKS)
        self.looked = now
        return self.idle > self.most

    @property
    def watched(self) -> bool:
        """Whether somebody looks, so that the limit is kept."""
        return time.monotonic() - self.looked < WATCHED

    def extend(self) -> None:
        """Grant half of the limit more."""
        self.most = self.idle + self.limit / 2


class Watch:
    """What a communicator's ranks can be asked, and what they said the last time.

    Attributes:
        id: the communicator's name among the desks, "" before ranks have agreed on it.
        address: of this process's desk.
    """

    def __init__(self, context: Context, parent: MPI.Intracomm) -> None:
        """Open this process's desk; local."""
        self.desk = roll_call.Desk.open()
        self.address = self.desk.address
        self.context, self.id = context, ""
        group, world = parent.Get_group(), MPI.COMM_WORLD.Get_group()
        self.world_ranks = tuple(MPI.Group.Translate_ranks(group, list(range(parent.size)), world))
        group.Free()
        world.Free()
        self.birth = self.desk.born(self.world_ranks)

    def agree(self, context_id: str, addresses: Iterable[roll_call.Address | None]) -> None:
        """Take the communicator's name, and where its ranks are asked."""
        self.id = context_id
        self.desk.contexts[context_id] = self.context
        for rank, address in zip(self.world_ranks, addresses, strict=True):
            if address is not None and rank >= 0:
                self.desk.directory[rank] = address

    def verdict(self, operation: Operation, patience: Patience) -> str | None:
        """Return why an operation does not go on, None if it is only slow."""
        directory, me = self.desk.directory, self.context.rank
        desks = {r: directory[w] for r, w in enumerate(self.world_ranks) if r != me and w in directory}
        answers = roll_call.ask(desks, self.id, None if self.id else self.birth)
        late = [r for r, answer in answers.items() if answer.calls < operation.number]
        absent = sorted(r for r in late if not (answers[r].busy or answers[r].waiting))
        silent = [r for r in range(self.context.size) if r != me and r not in answers]
        before, patience.moves = patience.moves, sum(answer.moved for answer in answers.values())
        moving = not silent and (before is None or before != patience.moves)
        working = bool(late) or any(answer.busy for answer in answers.values())  # late ones are in an earlier call
        if not absent and (moving or working or self._slow(operation, patience)):
            return None
        return self._words(absent, silent, desks)

    def _slow(self, operation: Operation, patience: Patience) -> bool:
        """Tell whether what the operation waits for may still be on a slow link, which all ranks share."""
        return patience.idle <= patience.limit + operation.pending_bytes() * self.context.size / SLOWEST

    def _words(self, absent: list[int], silent: list[int], desks: dict[int, roll_call.Address]) -> str:
        unknown = [r for r in silent if r not in desks]
        silent = [r for r in silent if r in desks]
        words = [f"{_ranks(absent, desks)} not made the call"] if absent else []
        words += [f"no answer from {_names(silent, desks)}"] if silent else []
        if unknown and not absent:
            words.append(f"{_names(unknown, desks)} cannot be asked before the first call has been made")
        if words:
            return "; ".join(words)
        return "every rank has made the call, and none goes on: do all make the same one? MPICOLL_DEBUG=1 compares them"


def _names(ranks: list[int], desks: dict[int, roll_call.Address]) -> str:
    hosts = {rank: f" on {desks[rank].host}" if rank in desks else "" for rank in ranks}
    return f"rank{'s'[: len(ranks) > 1]} " + ", ".join(f"{rank}{hosts[rank]}" for rank in ranks)


def _ranks(ranks: list[int], desks: dict[int, roll_call.Address]) -> str:
    return f"{_names(ranks, desks)} {'have' if len(ranks) > 1 else 'has'}"


def stall(operation: Operation, patience: Patience) -> StalledError | None:
    """Return the error of an operation that has waited for too long, None if there is reason to go on waiting."""
    context = operation.context
    what = f"{operation.title()}: rank {context.rank}, {operation.pending()} for {patience.limit:g} s"
    why = context.watch.verdict(operation, patience) if context.watch else UNWATCHED
    if why is None or (operation.condition is not None and operation.condition()):  # it came while others were asked
        patience.extend()
        return None
    return context.stalled(what, why)


def explained(error: BaseException, name: str, rank: int, pending: str) -> BaseException:
    """Return an error with the call, the rank and a remedy, if it is one of MPI's; others as they are."""
    if not isinstance(error, MPI.Exception):
        return error
    text = f"{name}: rank {rank}, {pending}"
    if error.Get_error_class() in (MPI.ERR_TRUNCATE, MPI.ERR_IN_STATUS):
        return MismatchError(f"{text}, which came longer than expected; MPICOLL_DEBUG=1 compares all ranks' calls")
    what = error.Get_error_string().partition(", error stack")[0]
    return TransportError(f"{text}: MPI says {what!r}; see whether all ranks and hosts are alive")


def finalize_within(seconds: float, why: str) -> None:
    """End MPI; where that takes too long, because a rank never comes, end the process instead.

    MPI's end keeps the interpreter's lock, so that only a timer which needs no Python can end the process.
    """
    os.write(2, f"mpicoll: this process leaves if MPI does not end within {seconds:g} s after: {why}\n".encode())
    with Path(os.devnull).open("w") as nowhere:
        faulthandler.dump_traceback_later(seconds, exit=True, file=nowhere)
        MPI.Finalize()
        faulthandler.cancel_dump_traceback_later()
