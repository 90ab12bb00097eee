"""The end of a program that is reported on: all ranks' counts come to rank 0, which prints them.

A rank may never come.  So nothing here waits without a limit, and what has come by then is printed.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from mpicoll.settings import TABLE, settings
from mpicoll.standin import program
from mpicoll.standin.page import as_json, as_text
from mpicoll.standin.tally import Counts, merged, tally

#: seconds for which rank 0 waits for the other ranks, unless the setting `timeout` says how long
LIMIT = 20.0
#: seconds between two looks
PAUSE = 0.0005

#: process that reports, and the file into which it does, too
_mine: list[tuple[int, str]] = []


def report_at_end(mpi: Any) -> None:
    """Report when the program calls `MPI.Finalize`, else when it ends; `mpi` is the module."""
    if _mine:
        return
    file = settings.standin if settings.standin != "report" else ""
    _mine.append((os.getpid(), file))
    if file:  # what this process starts has reports of its own, but must not write over this one
        os.environ[TABLE["standin"].variable] = "report"
    from mpicoll.runtime.progress import faults  # which needs MPI, and so must wait for it

    faults.last_acts.append(lambda: report(mpi))
    own = mpi.Finalize

    @wraps(own)
    def finalize() -> None:
        report(mpi)
        own()

    mpi.Finalize = finalize
    atexit.register(report, mpi)


def report(mpi: Any) -> None:
    """Print all ranks' counts on rank 0, once; not in a forked child, nor after MPI's end."""
    process, file = _mine[-1]
    if process != os.getpid() or not mpi.Is_initialized() or mpi.Is_finalized():
        return
    _mine[-1] = 0, file
    world = mpi.Intracomm(mpi.COMM_WORLD)
    found = gathered(world, tally.closed(), patience())
    if world.rank == 0:
        _write(merged(found), (len(found), world.size), file)


def patience() -> float:
    """Return for how many seconds the other ranks are waited for: not where this one ends the job by an error."""
    if program.patience is not None:
        return program.patience
    limit: float = settings.timeout or LIMIT
    return 0.0 if hasattr(sys, "last_value") else limit


def gathered(world: Any, mine: Counts, limit: float) -> list[Counts]:
    """Return on rank 0 the counts of all ranks that come in time.

    They travel on a communicator of their own: a rank that is not at its end may receive any message on `world`.

    Args:
        world: all ranks, as mpi4py's communicator.
        mine: this rank's counts.
        limit: seconds.
    """
    until = time.monotonic() + limit
    if world.size == 1 or not limit:
        return [mine]
    private, made = world.Idup()
    if not _within(until, made.Test):
        return [mine]
    found = [mine]
    if world.rank:
        _within(until, private.isend(mine, 0).Test)
        return found

    def look() -> bool:
        message = private.improbe()
        if message is not None:
            found.append(message.recv())
        return len(found) == int(world.size)

    _within(until, look)
    return found


def _within(until: float, look: Callable[[], bool]) -> bool:
    """Tell whether something comes before a time of time.monotonic()."""
    while not look():
        if time.monotonic() > until:
            return False
        time.sleep(PAUSE)
    return True


def _write(counts: Counts, ranks: tuple[int, int], file: str) -> None:
    """Print the report, and write it into the file, if there is one; `ranks` are those that reported, and all."""
    sys.stderr.write(as_text(counts, *ranks))
    sys.stderr.flush()
    if not file:
        return
    try:
        Path(file).write_text(as_json(counts, *ranks), encoding="utf-8")
    except OSError as error:
        print(f"mpicoll: the report is not written: {error}", file=sys.stderr, flush=True)
