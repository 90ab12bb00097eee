"""The context of each communicator, and the end of all contexts when the program ends or forks."""

from __future__ import annotations

import atexit
import os
import threading
from typing import Any

from mpi4py import MPI

from mpicoll.runtime.context.context import Context, live
from mpicoll.runtime.mpi.roll_call import Desk
from mpicoll.runtime.progress import faults, handles, turns
from mpicoll.runtime.progress.rescuer import Rescuer
from mpicoll.runtime.progress.traffic import FORKED, refuse_after_finalize
from mpicoll.settings import settings

#: seconds that calls in flight may take when the program ends
LAST_SECONDS = 1.0

_forked = False
_looking = threading.Lock()
#: for each communicator's handle: two threads' first calls must not make two contexts
_making: dict[int, threading.Lock] = {}
_keyval: int | None = None


def context_of(comm: MPI.Intracomm, rules: str = "") -> Context:
    """Return a communicator's context, ready for use; the first call is collective."""
    context = started_context_of(comm, rules)
    if not context.ready:
        context.setting_up.wait()
    return context


def known_context_of(comm: MPI.Intracomm) -> Context | None:
    """Return a communicator's context, None before its first call and after its end; local."""
    if _keyval is None or MPI.Is_finalized() or comm == MPI.COMM_NULL:
        return None
    found: Any = comm.Get_attr(_keyval)
    known: Context | None = found
    return known


def started_context_of(comm: MPI.Intracomm, rules: str = "") -> Context:
    """Return a communicator's context, which the first call starts to make; local."""
    global _keyval
    refuse_after_finalize()
    if _forked:
        raise RuntimeError(FORKED)
    with _looking:
        if _keyval is None:
            _keyval = MPI.Comm.Create_keyval(None, _free)
            MPI.COMM_SELF.Set_attr(MPI.Comm.Create_keyval(None, _say_goodbye), True)  # deleted first by MPI's end
            atexit.register(_close_all)
            handles.find_out()
            os.register_at_fork(after_in_child=_note_fork)
        making = _making.setdefault(comm.handle, threading.Lock())
    with making:
        found: Any = comm.Get_attr(_keyval)
        if found is not None and found.refused is not None:  # ranks' settings differed; perhaps they do not any more
            comm.Delete_attr(_keyval)
            found = None
        if found is None:
            found = Context(comm, rules)
            comm.Set_attr(_keyval, found)
    with _looking:
        _making.pop(comm.handle, None)
    made: Context = found
    return made


def free_context_of(comm: MPI.Intracomm) -> None:
    """Free a communicator's context, if it has one, before the communicator; collective.

    MPI may free a communicator only when its last message has gone, and then from within a call that tests that.
    """
    if _keyval is not None and comm.Get_attr(_keyval) is not None:
        comm.Delete_attr(_keyval)


def _free(_comm: MPI.Comm, _key: int, context: Context) -> None:
    """Free a context with its communicator, but not in a forked child."""
    if not _forked:
        context.free()


def _say_goodbye(_comm: MPI.Comm, _key: int, _value: bool) -> None:
    """Tell the others at MPI's end, which may come before the program's; not in a forked child."""
    if not _forked:
        Desk.leave(MPI.COMM_WORLD.rank)


def _note_fork() -> None:
    global _forked
    _forked = True
    for context in live:
        context.forked, context.broken = True, "a fork"


def _close_all() -> None:
    """End what is in flight, and free what is left; a job in which a call has stalled ends, too."""
    if _forked or not MPI.Is_initialized() or MPI.Is_finalized():
        return
    for context in live:
        context.tell_own()  # once more, before it cannot
    Rescuer.end()
    Desk.leave(MPI.COMM_WORLD.rank)
    stalled = [context for context in live if context.broken]
    if not stalled:
        turns.drain(LAST_SECONDS)
    handles.Attendant.end()
    for context in list(live):
        context.close()
    if stalled:
        first, watches = stalled[0], [context.watch for context in stalled if context.watch]
        seconds = max(settings.timeout or first.limit, LAST_SECONDS)
        faults.end_within(seconds, first.broken, lambda: next(filter(None, (w.missing() for w in watches)), ""))
