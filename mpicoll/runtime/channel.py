"""The private side of a communicator: a duplicate for our messages, scratch, and bound plans.

One channel belongs to a communicator's handle, as an MPI attribute, and is freed with it.
"""

from __future__ import annotations

import atexit
import weakref
from collections import OrderedDict
from typing import Any

from mpi4py import MPI

from mpicoll.errors import MismatchError
from mpicoll.runtime import awareness
from mpicoll.runtime.arena import Arena
from mpicoll.runtime.bound import Bound
from mpicoll.runtime.recent import Recent
from mpicoll.runtime.waiting import Waiter, cores
from mpicoll.settings import settings

#: settings on which ranks must agree, since a choice or a tag depends on them
AGREED = ("algorithms", "tuning", "segment_bytes", "scratch_limit", "cuda_aware", "path")

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
    """

    def __init__(self, parent: MPI.Intracomm, rules: str) -> None:
        """Duplicate and compare settings; collective over the parent."""
        self.comm = MPI.Intracomm(parent).Dup()
        self.rank, self.size = self.comm.rank, self.comm.size
        self.recent = Recent()
        self.bound: OrderedDict[tuple[Any, ...], Bound] = OrderedDict()
        self.arenas: dict[tuple[str, int], Arena] = {}
        self.fences: dict[int, Any] = {}
        mine = {name: getattr(settings, name) for name in AGREED} | {"algorithms of the communicator": rules}
        facts = self.comm.allgather((mine, awareness.decide(), MPI.Get_processor_name()))
        _compare([settings_of for settings_of, _, _ in facts])
        self.awareness = awareness.agree([decision for _, decision, _ in facts])
        here = [host for _, _, host in facts].count(MPI.Get_processor_name())
        yielding = settings.yield_wait
        self.waiter = Waiter(here > cores() if yielding is None else yielding)
        _live.add(self)

    @property
    def paths(self) -> tuple[str, ...]:
        """How device arrays may travel on this communicator, best first."""
        usable = ("direct", "staged") if self.awareness.aware else ("staged",)
        wanted = settings.path
        return tuple(p for p in usable if p == wanted) or usable if wanted else usable

    def arena(self, kind: str, device: int, nbytes: int) -> Arena:
        """Return scratch of at least nbytes; plans bound to memory that moved are dropped."""
        arena = self.arenas.setdefault((kind, device), Arena(kind, device))
        if nbytes > arena.nbytes and arena.memory is not None:
            self.drop_bound()
        arena.reserve(nbytes)
        return arena

    def fence(self, device: int) -> Any:
        """Return what orders this communicator's calls on a device."""
        if device not in self.fences:
            from mpicoll.runtime.device import Fence

            self.fences[device] = Fence()
        return self.fences[device]

    def find(self, key: tuple[Any, ...]) -> Bound | None:
        """Return a cached bound plan and mark it as recently used."""
        found = self.bound.get(key)
        if found is not None:
            self.bound.move_to_end(key)
        return found

    def keep(self, key: tuple[Any, ...], bound: Bound) -> None:
        """Cache a bound plan, dropping the one that was unused for longest."""
        self.bound[key] = bound
        while len(self.bound) > max(settings.plan_cache, 1):
            self.bound.popitem(last=False)[1].free()

    def drop_bound(self) -> None:
        """Free all bound plans."""
        while self.bound:
            self.bound.popitem()[1].free()

    def close(self) -> None:
        """Free everything but the communicator: no collective call, so safe in any order of exit."""
        self.drop_bound()
        self.arenas.clear()
        self.fences.clear()

    def free(self) -> None:
        """Free everything."""
        self.close()
        _live.discard(self)
        self.comm.Free()


def channel_of(comm: MPI.Intracomm, rules: str = "") -> Channel:
    """Return a communicator's channel; the first call is collective."""
    global _keyval
    if _keyval is None:
        _keyval = MPI.Comm.Create_keyval(None, lambda _comm, _key, channel: channel.free())
        atexit.register(_close_all)
    found = comm.Get_attr(_keyval)
    if found is None:
        found = Channel(comm, rules)
        comm.Set_attr(_keyval, found)
    return found  # type: ignore[return-value]


def _compare(all_settings: list[dict[str, Any]]) -> None:
    """Raise on every rank if settings differ."""
    first = all_settings[0]
    for rank, other in enumerate(all_settings):
        for name, value in other.items():
            if value != first[name]:
                raise MismatchError(f"setting {name!r} is {first[name]!r} on rank 0, {value!r} on rank {rank}")


def _close_all() -> None:
    if MPI.Is_initialized() and not MPI.Is_finalized():
        for channel in list(_live):
            channel.close()
