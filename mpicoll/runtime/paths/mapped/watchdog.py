"""Ranks that do not come to a kernel: told by the next call, and by a thread where none is made.

With a time limit a kernel leaves by itself, having noted in host memory for whom it waited.  No call waits for its
kernel to find that out: each one looks at the notes of those before it.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref

from mpicoll.errors import StalledError
from mpicoll.runtime.context.context import Context
from mpicoll.runtime.paths.mapped.inboxes import Peers
from mpicoll.runtime.program.local_work import Action

#: seconds between two looks of the thread
PAUSE = 0.2

_log = logging.getLogger("mpicoll")
#: mappings that the thread looks at, as long as they live and nobody is late
_watched: weakref.WeakSet[Peers] = weakref.WeakSet()
_lock = threading.Lock()
_threads: list[threading.Thread] = []


def look_of(context: Context, peers: Peers, limit: float) -> Action:
    """Return an action that raises StalledError once a kernel of a communicator has waited for a peer in vain.

    Args:
        context: the communicator's, whose calls of other kinds look, too, from now on.
        peers: its mapping of all ranks' memory.
        limit: seconds that its kernels wait at most.
    """
    word = peers.late_word

    def look() -> None:
        if word[0]:
            raise stalled(context, peers)

    if not peers.limit:
        context.looks.append(look)
    peers.limit = limit
    _watch(peers)
    return look


def stalled(context: Context, peers: Peers) -> StalledError:
    """Return the error for kernels of which one has waited in vain; the communicator is broken from now on."""
    what = f"a call on device arrays before #{context.calls + 1}: {_waiting(peers)}"
    return context.stalled(what, f"rank {peers.late()} did not come")


def _waiting(peers: Peers) -> str:
    return f"rank {peers.ranks[peers.rank]}, waiting in its kernel for {peers.limit:g} s"


def _watch(peers: Peers) -> None:
    """Let the thread look at a mapping; start it if there is none."""
    with _lock:
        _watched.add(peers)
        if not _threads or not _threads[0].is_alive():
            _threads[:] = [threading.Thread(target=_look_on, name="mpicoll watchdog", daemon=True)]
            _threads[0].start()


def _look_on() -> None:
    """Tell of kernels that have waited in vain, until there is nothing to watch."""
    while True:
        time.sleep(PAUSE)
        with _lock:
            if not _watched:
                _threads.clear()
                return
            late = [peers for peers in _watched if peers.late() is not None]
            for peers in late:
                _watched.discard(peers)
        for peers in late:
            _log.error(
                "mpicoll: %s; rank %s did not come. Results since are not valid; the next call raises StalledError",
                _waiting(peers),
                peers.late(),
            )
