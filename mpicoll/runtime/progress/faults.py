"""Time limits: how long a call may wait, who keeps it, and how a job ends in which a call has stalled."""

from __future__ import annotations

import faulthandler
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from mpi4py import MPI

from mpicoll.errors import MismatchError, TransportError
from mpicoll.runtime.mpi import roll_call
from mpicoll.runtime.progress.turns import aside

#: looks at least before a limit has passed: time between two looks, when nobody looked, is the program's own
LOOKS = 3
#: seconds after a look in which an operation counts as one that is waited for; asking the others takes some itself
WATCHED = 2 * roll_call.GRACE

#: memory of calls that broke their communicators, into which messages may still come: it is never given back
abandoned: list[object] = []
#: what a program does before it ends the job
last_acts: list[Callable[[], None]] = []


class Patience:
    """The time in which an operation has not gone on, although somebody looked.

    With a limit of 60 s each look counts 20 s at most, so that a limit passes only after 3 looks or more.

    Attributes:
        limit: seconds that it may take.
        idle: seconds so far.
        moves: steps of the other ranks when they were asked, None before that.
        silence: seconds idle when some of them gave no answer for the first time, None if all do.
    """

    def __init__(self, limit: float) -> None:
        """Start with none."""
        self.limit = self.most = limit
        self.moved, self.idle, self.looked = -1, 0.0, time.monotonic()
        self.moves: int | None = None
        self.silence: float | None = None

    def is_over(self, moved: int) -> bool:
        """Tell whether an operation that has made so many moves has waited for too long, asked by one who waits."""
        if aside[0]:
            return False
        now = time.monotonic()
        if moved != self.moved:
            self.moved, self.idle, self.most, self.moves, self.silence = moved, 0.0, self.limit, None, None
        else:
            self.idle += min(now - self.looked, self.limit / LOOKS)
        self.looked = now
        return self.idle > self.most

    @property
    def watched(self) -> bool:
        """True while somebody looks, so that the limit is kept."""
        return time.monotonic() - self.looked < WATCHED

    def unheard(self, silent: bool) -> float:
        """Return the seconds for which some ranks have given no answer whenever they were asked; `silent`: now, too."""
        self.silence = None if not silent else self.idle if self.silence is None else self.silence
        return 0.0 if self.silence is None else self.idle - self.silence

    def extend(self) -> None:
        """Grant half of the limit more."""
        self.most = self.idle + self.limit / 2


def explained(error: BaseException, name: str, rank: int, pending: str) -> BaseException:
    """Return an error with the call, the rank and a remedy, if it is one of MPI's; others as they are.

    Args:
        error: that was raised.
        name: the call with its number.
        rank: this rank.
        pending: what the call waited for, in words.
    """
    if not isinstance(error, MPI.Exception):
        return error
    text = f"{name}: rank {rank}, {pending}"
    if error.Get_error_class() in (MPI.ERR_TRUNCATE, MPI.ERR_IN_STATUS):
        return MismatchError(f"{text}, which came longer than expected; MPICOLL_DEBUG=1 compares all ranks' calls")
    what = error.Get_error_string().partition(", error stack")[0]
    return TransportError(f"{text}: MPI says {what!r}; see whether all ranks and hosts are alive")


def end_within(seconds: float, why: str, missing: Callable[[], str]) -> None:
    """End MPI, or the job if ranks are missing for so long: MPI's end would wait for them, without the launcher.

    An abort reaches the launcher.  It ends ranks that are frozen, and leaves where a host is lost.

    Args:
        seconds: that missing ranks have, and then MPI's end.
        why: what has broken a communicator.
        missing: returns in words the ranks that do not answer, "" if all do.
    """
    with suppress(Exception):  # the interpreter does it later
        sys.stdout.flush()
    end, who = time.monotonic() + seconds, missing()
    if who:
        _say(f"this job is aborted if there is no answer from {who} within {seconds:g} s after: {why}")
    while who and time.monotonic() < end:
        who = missing()
    if who:
        _abort()
    roll_call.Desk.leave(MPI.COMM_WORLD.rank)  # again: what was not reached before may be now
    _finalize_within(seconds, why)


def end_job(why: str) -> None:
    """End the job at once, and say why."""
    _say(f"this job is aborted: {why}")
    _abort()


def _abort() -> None:
    for act in last_acts:
        with suppress(Exception):  # the job must end
            act()
    MPI.COMM_WORLD.Abort(1)


def _finalize_within(seconds: float, why: str) -> None:
    """End MPI; where that takes too long, because a rank never comes, end the process instead.

    MPI's end keeps the interpreter's lock, so that only a timer which needs no Python can end the process.
    """
    _say(f"this process leaves if MPI does not end within {seconds:g} s after: {why}")
    with Path(os.devnull).open("w") as nowhere:
        faulthandler.dump_traceback_later(seconds, exit=True, file=nowhere)
        MPI.Finalize()
        faulthandler.cancel_dump_traceback_later()


def _say(text: str) -> None:
    os.write(2, f"mpicoll: {text}\n".encode())
