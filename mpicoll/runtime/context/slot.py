"""Slots: what calls that are in flight at the same time must not share.

A communicator's blocking calls use slot 0; each call that does not block takes one that is free,
and each persistent request has its own.  A slot has scratch and order on devices; which slot a call
takes is this rank's affair, only the lane of its tags is known to all.
"""

from __future__ import annotations

import weakref
from typing import Any

from mpicoll.runtime.context.scratch import Arena
from mpicoll.runtime.cuda.streams import new_stream
from mpicoll.runtime.program.bound import Bound


class Slot:
    """Scratch, and order on devices, of one slot.

    Attributes:
        lane: place of its tags.
        programs: those that are bound to its scratch.
        taken: a call that does not block is on its way in it.
    """

    def __init__(self, lane: int) -> None:
        """Start empty."""
        self.lane = lane
        self.programs: weakref.WeakSet[Bound] = weakref.WeakSet()
        self.arenas: dict[tuple[str, int], Arena] = {}
        self.fences: dict[int, Any] = {}
        self.streams: dict[tuple[int, str], Any] = {}
        self.taken = False

    def arena(self, kind: str, device: int, nbytes: int) -> Arena:
        """Return scratch of at least nbytes; programs bound to memory that moved are dropped."""
        arena = self.arenas.setdefault((kind, device), Arena(kind, device))
        if nbytes > arena.nbytes and arena.memory is not None:
            self.drop()
        arena.reserve(nbytes)
        return arena

    def fence(self, device: int) -> Any:
        """Return the fence that orders this slot's calls on a device."""
        if device not in self.fences:
            from mpicoll.runtime.cuda.order import Fence

            self.fences[device] = Fence()
        return self.fences[device]

    def side_stream(self, device: int, use: str = "calls") -> Any:
        """Return a stream of this slot's own on a device: for calls that do not block, or for another use."""
        if (device, use) not in self.streams:
            self.streams[device, use] = new_stream(device)
        return self.streams[device, use]

    def drop(self) -> None:
        """Free all programs."""
        for bound in list(self.programs):
            bound.free()
        self.programs.clear()

    def close(self) -> None:
        """Free everything; no collective call."""
        self.drop()
        self.arenas.clear()
        self.fences.clear()
        self.streams.clear()
