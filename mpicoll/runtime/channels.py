"""Which channel belongs to a communicator, and what becomes of all of them when the program ends or forks."""

from __future__ import annotations

import atexit
import os
import threading
from typing import Any

from mpi4py import MPI

from mpicoll.runtime import faults, turns
from mpicoll.runtime.channel import FORKED, Channel, live, refuse_after_finalize
from mpicoll.settings import settings

#: seconds that calls in flight may take when the program ends
LAST_SECONDS = 1.0

_forked = False
_looking = threading.Lock()
#: for each communicator's handle: two threads' first calls must not make two channels
_making: dict[int, threading.Lock] = {}
_keyval: int | None = None


def channel_of(comm: MPI.Intracomm, rules: str = "") -> Channel:
    """Return a communicator's channel, ready for use; the first call is collective."""
    channel = started_channel_of(comm, rules)
    if not channel.ready:
        channel.setting_up.wait()
    return channel


def started_channel_of(comm: MPI.Intracomm, rules: str = "") -> Channel:
    """Return a communicator's channel, which the first call starts to make; local."""
    global _keyval
    refuse_after_finalize()
    if _forked:
        raise RuntimeError(FORKED)
    with _looking:
        if _keyval is None:
            _keyval = MPI.Comm.Create_keyval(None, _free)
            atexit.register(_close_all)
            os.register_at_fork(after_in_child=_note_fork)
        making = _making.setdefault(comm.handle, threading.Lock())
    with making:
        found: Any = comm.Get_attr(_keyval)
        if found is not None and found.refused is not None:  # ranks' settings differed; perhaps they do not any more
            comm.Delete_attr(_keyval)
            found = None
        if found is None:
            found = Channel(comm, rules)
            comm.Set_attr(_keyval, found)
    with _looking:
        _making.pop(comm.handle, None)
    made: Channel = found
    return made


def _free(_comm: MPI.Comm, _key: int, channel: Channel) -> None:
    """Free a channel with its communicator, but not in a forked child."""
    if not _forked:
        channel.free()


def _note_fork() -> None:
    global _forked
    _forked = True
    for channel in live:
        channel.forked, channel.broken = True, "a fork"


def _close_all() -> None:
    """End what is in flight, and free what is left; a job in which a call has stalled ends, too."""
    if _forked or not MPI.Is_initialized() or MPI.Is_finalized():
        return
    stalled = next((channel for channel in live if channel.broken), None)
    if stalled is None:
        turns.drain(LAST_SECONDS)
    for channel in list(live):
        channel.close()
    if stalled is not None:
        faults.finalize_within(max(settings.timeout or stalled.limit, LAST_SECONDS), stalled.broken)
