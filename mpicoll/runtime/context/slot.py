"""Slots: what calls that are in flight at the same time must not share.

A communicator's blocking calls use slot 0; each call that does not block takes one that is free,
and each persistent request has its own.  A slot has scratch and bound plans; which slot a call
takes is this rank's affair, only the lane of its tags is known to all.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from mpicoll.runtime.context.scratch import Arena
from mpicoll.runtime.program.bound import Bound
from mpicoll.settings import settings


class Slot:
    """Scratch, ordering on devices, and bound plans of one slot.

    Attributes:
        lane: place of its tags.
        bound: cached bound plans, the most recently used last.
        taken: a call that does not block is on its way in it.
    """

    def __init__(self, lane: int) -> None:
        """Start empty."""
        self.lane = lane
        self.bound: OrderedDict[tuple[Any, ...], Bound] = OrderedDict()
        self.arenas: dict[tuple[str, int], Arena] = {}
        self.fences: dict[int, Any] = {}
        self.streams: dict[tuple[int, str], Any] = {}
        self.taken = False

    def arena(self, kind: str, device: int, nbytes: int) -> Arena:
        """Return scratch of at least nbytes; plans bound to memory that moved are dropped."""
        arena = self.arenas.setdefault((kind, device), Arena(kind, device))
        if nbytes > arena.nbytes and arena.memory is not None:
            self.drop()
        arena.reserve(nbytes)
        return arena

    def fence(self, device: int) -> Any:
        """Return what orders this slot's calls on a device."""
        if device not in self.fences:
            from mpicoll.runtime.cuda.work import Fence

            self.fences[device] = Fence()
        return self.fences[device]

    def side_stream(self, device: int, use: str = "calls") -> Any:
        """Return a stream of this slot's own on a device: for calls that do not block, or for another use."""
        if (device, use) not in self.streams:
            from mpicoll.runtime.cuda.work import new_stream

            self.streams[device, use] = new_stream(device)
        return self.streams[device, use]

    def find(self, key: tuple[Any, ...]) -> Bound | None:
        """Return a cached bound plan and mark it as recently used."""
        found = self.bound.get(key)
        if found is None or not found.alive:
            return None
        self.bound.move_to_end(key)
        return found

    def keep(self, key: tuple[Any, ...], bound: Bound) -> None:
        """Cache a bound plan, dropping the one that was unused for longest."""
        self.bound[key] = bound
        while len(self.bound) > max(settings.plan_cache, 1):
            self.bound.popitem(last=False)[1].free()

    def drop(self) -> None:
        """Free all bound plans."""
        while self.bound:
            self.bound.popitem()[1].free()

    def close(self) -> None:
        """Free everything; no collective call."""
        self.drop()
        self.arenas.clear()
        self.fences.clear()
        self.streams.clear()
