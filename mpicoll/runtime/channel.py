"""The private side of a communicator: a duplicate for our messages, scratch, and bound plans.

One channel belongs to a communicator's handle, as an MPI attribute, and is freed with it.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from contextlib import suppress
from typing import Any

from mpi4py import MPI

from mpicoll.errors import MismatchError, StalledError
from mpicoll.runtime import awareness, progress
from mpicoll.runtime.bound import TAGS, Bound
from mpicoll.runtime.recent import Recent
from mpicoll.runtime.slot import Slot
from mpicoll.runtime.waiting import Waiter, cores, wait_limited
from mpicoll.runtime.watch import Watch
from mpicoll.settings import override, settings

#: settings on which ranks must agree, since a choice or a tag depends on them
AGREED = (
    "algorithms",
    "tuning",
    "segment_bytes",
    "scratch_limit",
    "cuda_aware",
    "path",
    "mapped_bytes",
    "mapped_shared",
    "reproducible",
    "errors",
    "debug",
    "timeout",
)

#: slots that nonblocking calls take in turn: so many can be in flight before one waits for the oldest
NONBLOCKING = 6
#: seconds that calls in flight may take when the program ends
LAST_SECONDS = 1.0

_forked = False
_looking = threading.Lock()
#: for each communicator's handle: two threads' first calls must not make two channels
_making: dict[int, threading.Lock] = {}
_keyval: int | None = None
_live: weakref.WeakSet[Channel] = weakref.WeakSet()


class Channel:
    """Everything private to one communicator.

    Attributes:
        comm: duplicate for private messages.
        rank: this rank.
        size: number of ranks.
        awareness: what was found out about device pointers in MPI, the same on all ranks.
        waiter: how to wait for messages.
        peers: the mapping of the peers' memory, or in words why there is none; None before it was tried.
    """

    def __init__(self, parent: MPI.Intracomm, rules: str) -> None:
        """Duplicate and compare settings; collective over the parent."""
        self.comm = MPI.Intracomm(parent).Dup()
        self.rank, self.size = self.comm.rank, self.comm.size
        self.recent = Recent()
        self.slots: dict[int, Slot] = {}
        self.started = self.persistent = self.calls = 0
        self.broken = ""
        self.turn = threading.Lock()
        self.caller = 0
        self.watch: Watch | None = None
        self.peers: Any = None
        self.most_slots = (MPI.COMM_WORLD.Get_attr(MPI.TAG_UB) or 32767) // TAGS
        mine = {name: getattr(settings, name) for name in AGREED} | {"algorithms of the communicator": rules}
        facts = self.comm.allgather((mine, awareness.decide(), MPI.Get_processor_name()))
        try:
            _compare([settings_of for settings_of, _, _ in facts])
        except MismatchError:
            self.comm.Free()
            raise
        self.limit = settings.timeout
        if self.limit > 0:
            self.watch = Watch(self)
        self.awareness = awareness.agree([decision for _, decision, _ in facts])
        here = [host for _, _, host in facts].count(MPI.Get_processor_name())
        yielding = settings.yield_wait
        self.waiter = Waiter(here > cores() if yielding is None else yielding)
        _live.add(self)

    def paths(self, compiled: bool = True) -> tuple[str, ...]:
        """Return how device arrays may travel on this communicator, best first.

        Args:
            compiled: the operator, if any, can be part of a kernel.
        """
        usable = ("direct", "staged") if self.awareness.aware else ("staged",)
        if not self.unoffered(compiled):
            usable = ("mapped", *usable)
        wanted = settings.path
        return tuple(p for p in usable if p == wanted) or usable if wanted else usable

    @property
    def mapped(self) -> Any:
        """The mapping of the peers' memory, None if there is none."""
        return None if isinstance(self.peers, str) else self.peers

    def unoffered(self, compiled: bool) -> str:
        """Return why the path mapped is not offered, "" if it is."""
        if not compiled:
            return "the operator is a Python function without a CUDA expression"
        if self.mapped is None:
            return self.peers or f"path={settings.path!r} is set"
        return ""

    def connect(self, device: int) -> None:
        """Map the peers' memory, if that was not tried before and is wanted; collective."""
        if self.peers is not None or settings.path not in (None, "mapped"):
            return
        if self.size == 1 or not settings.mapped_bytes:
            self.peers = "there is one rank" if self.size == 1 else "mapped_bytes is 0"
            return
        from mpicoll.runtime.peers import connect

        self.peers = connect(self.comm, self.exchange, device, settings.mapped_bytes, bool(settings.mapped_shared))

    def check(self) -> None:
        """Refuse a communicator on which a call has stalled or raised, a forked one, and any after MPI's end."""
        if _forked:
            raise RuntimeError(
                "this process was forked after mpicoll was used; MPI does not survive that: spawn instead"
            )
        if self.broken:
            raise StalledError(f"this communicator cannot be used after: {self.broken}")
        if MPI.Is_finalized():
            raise RuntimeError("MPI was finalized: no call can be made any more")

    def take_turn(self) -> None:
        """Wait while another thread makes a call on this communicator; refuse one from within a call."""
        me = threading.get_ident()
        if self.caller == me:
            raise RuntimeError("this communicator is in use by the call that this one is made from")
        self.turn.acquire()
        self.caller = me

    def end_turn(self) -> None:
        """Let other threads go on."""
        self.caller = 0
        self.turn.release()

    def spoiled(self, bound: Bound, position: int, error: BaseException) -> None:
        """Note that a call raised: unless its messages all arrived, later ones could be taken for them."""
        if bound.settled(position):
            bound.free()
        else:
            self.broken = f"{bound.name.format(self.calls)} raised {error!r}"

    def exchange(self, mine: Any) -> list[Any]:
        """Return every rank's object; raises StalledError if a rank does not come in time."""
        if self.watch is not None:
            self.meet()
        return self.comm.allgather(mine)

    def meet(self) -> None:
        """Wait for all ranks; raises StalledError if one does not come in time."""
        arrived = self.comm.Ibarrier()
        wait_limited(arrived.Test, self, lambda: f"call #{self.calls}: waiting for all ranks to make it")

    def stalled(self, what: str) -> StalledError:
        """Return the error for a call that does not go on; asks which ranks are missing."""
        self.broken = what
        if self.mapped is not None:
            self.mapped.abort()
        absent = self.watch.absent() if self.watch else []
        missing = f"; not arrived: rank{'s'[: len(absent) > 1]} {', '.join(map(str, absent))}" if absent else ""
        return StalledError(f"{what}{missing}")

    def slot(self, number: int) -> Slot:
        """Return a slot: 0 for blocking calls, see `next_slot` for others."""
        found = self.slots.get(number)
        if found is None:
            found = self.slots[number] = Slot(number)
        return found

    def next_slot(self) -> Slot:
        """Return the slot for the next nonblocking call: all ranks take them in the same order."""
        self.started += 1
        return self.slot(1 + (self.started - 1) % NONBLOCKING)

    def release(self, slot: Slot, bound: Bound) -> None:
        """Give back a persistent request's plan, and its slot if that was the last one."""
        slot.disown(bound)
        if not slot.owned and self.slots.get(slot.number) is slot:
            del self.slots[slot.number]
            slot.close()

    def own_slot(self) -> Slot:
        """Return a slot for a persistent request."""
        self.persistent += 1
        spare = self.most_slots - 1 - NONBLOCKING
        return self.slot(1 + NONBLOCKING + (self.persistent - 1) % spare)

    def close(self) -> None:
        """Free everything but the communicator: no collective call, so safe in any order of exit."""
        for slot in [] if self.broken else self.slots.values():  # what has stalled is left as it is
            slot.close()

    def free(self) -> None:
        """Free everything."""
        self.close()
        _live.discard(self)
        if not self.broken:
            if self.mapped is not None:
                # a rank that has stalled does not come: the memory stays mapped
                with suppress(StalledError), override(timeout=settings.timeout or self.limit):
                    self.mapped.close(self.meet)
            self.comm.Free()
            if self.watch:
                self.watch.comm.Free()


def channel_of(comm: MPI.Intracomm, rules: str = "") -> Channel:
    """Return a communicator's channel; the first call is collective."""
    global _keyval
    with _looking:
        if _keyval is None:
            _keyval = MPI.Comm.Create_keyval(None, lambda _comm, _key, channel: channel.free())
            atexit.register(_close_all)
            os.register_at_fork(after_in_child=_note_fork)
        making = _making.setdefault(comm.handle, threading.Lock())
    with making:  # its own: it waits for other ranks, whose threads may make first calls in another order
        found = comm.Get_attr(_keyval)
        if found is None:
            found = Channel(comm, rules)
            comm.Set_attr(_keyval, found)
    with _looking:
        _making.pop(comm.handle, None)
    return found  # type: ignore[return-value]


def _compare(all_settings: list[dict[str, Any]]) -> None:
    """Raise on every rank if settings differ."""
    first = all_settings[0]
    for rank, other in enumerate(all_settings):
        for name, value in other.items():
            if value != first[name]:
                raise MismatchError(f"setting {name!r} is {first[name]!r} on rank 0, {value!r} on rank {rank}")


def _note_fork() -> None:
    global _forked
    _forked = True
    for channel in _live:
        channel.broken = "a fork"


def _close_all() -> None:
    if _forked:
        return
    progress.drain(LAST_SECONDS)
    if MPI.Is_initialized() and not MPI.Is_finalized():
        for channel in list(_live):
            channel.close()
