"""MPI's handles of calls that do not block: receives from this process, which a thread completes where MPI waits.

MPI's `Waitall` and its siblings read a request's handle, and ask nobody.  So a call has a real one, which is
taken from those that wait for use, and put back by mpicoll's own `Wait` and `Test`: that costs no call of MPI's.
A receive serves, and not a generalised request: MPICH 5.0 ends the process where it waits for one of those and a
null request.  A message of no byte completes it; of a call that has failed one of a byte, which is too long.
"""

from __future__ import annotations

import sys
import threading
import time
from contextlib import suppress
from ctypes import c_uint32, c_uint64
from typing import Any

import numpy as np
from mpi4py import MPI

from mpicoll.runtime.progress import turns
from mpicoll.settings import settings

#: seconds between two looks at calls for which MPI may wait, and between two where it does
LOOK, SOON = 2e-3, 50e-6
#: looks at nothing after which the attendant rests, and looks without MPI's waiting after which it expects none
MANY = 100
#: handles that wait for use, and known places of handles, at most
MOST, PLACES = 16, 4096

_Cell = {4: c_uint32, 8: c_uint64}[MPI._sizeof(MPI.Request)]
NULL: int = _Cell.from_address(MPI._addressof(MPI.REQUEST_NULL)).value
#: calls that have a handle, the oldest first; who takes one out may complete or put back its handle
open_calls: dict[Handle, Any] = {}
unused: list[Handle] = []
#: where requests have their handles, by Python's `id` of them
places: dict[int, Any] = {}
#: whether calls may have handles
possible = [False]
#: whether the attendant waits for the next call, or was not started
rests = [True]
_tags: list[int] = []
_alone: list[MPI.Intracomm] = []
_byte = np.zeros(1, "u1")


class Handle:
    """A receive that is not complete.

    Attributes:
        request: mpi4py's.
        value: the handle's number.
        tag: its own among those that are not complete.
    """

    __slots__ = ("request", "tag", "value")

    def __init__(self) -> None:
        """Start to receive."""
        self.tag = _tags.pop()
        self.request = _alone[0].Irecv([_byte, 0, MPI.BYTE], 0, self.tag)
        self.value: int = _Cell.from_address(MPI._addressof(self.request)).value

    def end(self, *, failed: bool = False) -> None:
        """Complete it: whoever waits in MPI goes on, or has an error."""
        _alone[0].Send([_byte, int(failed), MPI.BYTE], 0, self.tag)
        _tags.append(self.tag)

    def fail(self) -> None:
        """Complete it for a call whose error was raised, if nobody has."""
        if open_calls.pop(self, None) is not None:
            self.end(failed=True)


def place_of(request: MPI.Request) -> Any:
    """Return where a request has its handle, as ctypes see it."""
    if len(places) >= PLACES:
        places.clear()
    place = places[id(request)] = _Cell.from_address(MPI._addressof(request))
    return place


def leave_completed(request: MPI.Request) -> None:
    """Free a request whose handle was completed; where it is null, MPI has waited for it, and may for the next ones."""
    if not MPI.Request.__bool__(request):
        Attendant.awaited = MANY
    elif not MPI.Is_finalized():
        MPI.Request.Free(request)


class Attendant(threading.Thread):
    """Advances calls that have a handle, where nobody else does, and completes the handles of those that have ended.

    It does so with a call that is there at two looks: what mpicoll's own `Wait` ends in less time costs a look only.
    Once MPI has waited for a call, it is there at once for the next ones.

    Attributes:
        awaited: looks in which it expects that MPI waits.
    """

    awaited = 0
    _only: Attendant | None = None
    _starts = threading.Lock()
    _ended = False

    def __init__(self) -> None:
        super().__init__(name="mpicoll-attendant", daemon=True)
        self._work = threading.Event()
        self._idle = 0

    @classmethod
    def wake(cls) -> None:
        """Look after calls, until there is none for a while."""
        with cls._starts:
            if cls._ended:
                return
            rests[0] = False
            if cls._only is None or not cls._only.is_alive():
                cls._only = cls()
                cls._only.start()
        cls._only._work.set()

    @classmethod
    def end(cls) -> None:
        """Leave MPI alone, and complete the handles that wait for use: for the end of a program."""
        with turns.lock:
            cls._ended = True
            _shrink(0)

    def run(self) -> None:
        """Look, and sleep, until the program ends."""
        pause = LOOK
        last: Handle | None = None
        looks = 0
        while not self._ended:
            time.sleep(pause)
            handles = tuple(open_calls)
            pause = SOON if Attendant.awaited else LOOK
            if not handles:
                self._rest()
                last = None
                continue
            self._idle = 0
            alone, looks = turns.looks[0] == looks, turns.looks[0]
            if (Attendant.awaited and alone) or handles[0] is last:
                pause = SOON if self._attend(handles, alone) else min(2 * pause, LOOK)
                looks = turns.looks[0]
            last = handles[0]

    def _rest(self) -> None:
        """Wait for the next call, where none was there for a while."""
        self._idle += 1
        Attendant.awaited = max(Attendant.awaited - 1, 0)
        if self._idle <= MANY:
            return
        self._work.clear()
        rests[0] = True
        if not open_calls:  # else one has come that may not have seen that it rests
            self._work.wait()
        rests[0] = False
        self._idle = 0

    def _attend(self, handles: tuple[Handle, ...], alone: bool) -> bool:
        """Advance all calls, and complete the handles of those that have ended; tell whether it made anything go on.

        Args:
            handles: all that there are.
            alone: nobody else has advanced any since its last look.
        """
        Attendant.awaited = max(Attendant.awaited - 1, 0)
        with turns.lock:
            if self._ended or MPI.Is_finalized():
                return False
            before = _moved()
            if alone:
                with suppress(SystemExit, KeyboardInterrupt):  # of a user's operator: its call has failed
                    turns.advance_aside()
            ended = [handle for handle in handles if _complete(handle)]
            _shrink(MOST)
            return alone and (bool(ended) or _moved() != before)


def _complete(handle: Handle) -> bool:
    """Complete the handle of a call that has ended; tell whether it has."""
    call = open_calls.get(handle)
    if call is None or not call.done or open_calls.pop(handle, None) is None:
        return False
    if call.error is not None:
        sys.stderr.write(f"mpicoll: a request that MPI may wait for has failed, {call.error!r}; its Wait raises this\n")
    handle.end(failed=call.error is not None)
    return True


def _shrink(most: int) -> None:
    """Complete the handles that wait for use, but so many."""
    with suppress(IndexError):  # another thread may take the last one
        while len(unused) > most:
            handle = unused.pop()
            handle.end()
            handle.request.Wait()


def _moved() -> int:
    """Return the steps of all calls in flight."""
    return sum(call.traffic.moved for call in turns.in_flight if call.traffic is not None)


def find_out() -> None:
    """Find out whether calls may have handles: they are wanted, and a thread may call MPI while another one waits.

    Their communicator is made now, before any first call of ours: MPICH 5.0 makes none while another one is duplicated
    without blocking, which waits for other ranks.
    """
    possible[0] = bool(settings.mpi_requests) and MPI.Query_thread() == MPI.THREAD_MULTIPLE
    if possible[0]:
        _alone.append(MPI.Intracomm(MPI.COMM_SELF).Dup())  # a stand-in would count it
        _tags.extend(range(32767, -1, -1))
