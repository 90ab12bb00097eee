"""The private side of a communicator: a duplicate for our messages, scratch, and bound plans.

One context belongs to a communicator's handle, as an MPI attribute, and is freed with it.  It is
made without waiting for anybody; what ranks must know of each other they exchange in an operation,
behind which all others come.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from mpi4py import MPI

from mpicoll.errors import StalledError
from mpicoll.runtime.call.recent import Recent
from mpicoll.runtime.context.first_call import agreed_settings, set_up
from mpicoll.runtime.context.slot import Slot
from mpicoll.runtime.mpi import cuda_aware
from mpicoll.runtime.mpi.waiter import Waiter
from mpicoll.runtime.program.bound import Bound
from mpicoll.runtime.progress import faults, operations, turns
from mpicoll.runtime.progress.exchange import Routine, exchanged, met
from mpicoll.runtime.progress.operations import Operation
from mpicoll.runtime.progress.refusals import Refusals
from mpicoll.schedule.program import TAGS
from mpicoll.settings import override, settings

#: slots that calls which do not block take: so many are on their way at a time, the next ones wait for a slot
NONBLOCKING = 6
#: said in a forked child
FORKED = "this process was forked after mpicoll was used; MPI does not survive that: spawn instead"
#: contexts that are not freed yet
live: weakref.WeakSet[Context] = weakref.WeakSet()


class Context:
    """Everything private to one communicator.

    Attributes:
        comm: duplicate for private messages, usable once `ready`.
        rank: this rank.
        size: number of ranks.
        calls: calls made on the communicator, this rank's latest included.
        moved: steps that operations on it have made.
        busy: a call on it is in local work now.
        last: the last operation of each lane, as long as it is in flight.
        awareness: what was found out about device pointers in MPI, the same on all ranks.
        waiter: how to wait for messages.
        peers: the mapping of the peers' memory, or in words why there is none; None before it was tried.
    """

    awareness: cuda_aware.Awareness
    waiter: Waiter

    def __init__(self, parent: MPI.Intracomm, rules: str) -> None:
        """Start to duplicate the parent and to compare settings; local."""
        plain = MPI.Intracomm(parent)
        self.rank, self.size = plain.rank, plain.size
        self.recent = Recent()
        self.slots: dict[int, Slot] = {}
        self.last: dict[int, Operation] = {}
        self.persistent = self.calls = self.moved = 0
        self.busy = self.freed = self.ready = self.forked = False
        self.broken = ""
        self.refused: Exception | None = None
        self.refusals: Refusals | None = None
        self.turn = threading.Lock()
        self.caller = 0
        self.peers: Any = None
        self.most_slots = (MPI.COMM_WORLD.Get_attr(MPI.TAG_UB) or 32767) // TAGS
        self.limit = settings.timeout
        self.watch = faults.Watch(self, plain) if self.limit > 0 else None
        live.add(self)
        self.comm, request = plain.Idup()
        mine = agreed_settings(rules)
        self.setting_up = Operation(self, lambda _: set_up(self, request, mine), name="first call on a communicator")

    @property
    def waiting(self) -> bool:
        """Whether a call on it waits here that has a limit of its own."""
        mine = (o.patience for o in tuple(turns.in_flight) if o.context is self)
        return any(patience is not None and patience.watched for patience in mine)

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
        if self.is_unconnected():
            self.complete(lambda _: self.connecting(device))

    def is_unconnected(self) -> bool:
        """Tell whether the peers' memory is still to be mapped."""
        return self.peers is None and settings.path in (None, "mapped")

    def connecting(self, device: int) -> Routine[None]:
        """Map the peers' memory, if that was not tried before and is wanted."""
        if not self.is_unconnected():
            return
        if self.size == 1 or not settings.mapped_bytes:
            self.peers = "there is one rank" if self.size == 1 else "mapped_bytes is 0"
            return
        from mpicoll.runtime.paths.mapped.inboxes import connect

        self.peers = yield from connect(self.comm, device, settings.mapped_bytes, bool(settings.mapped_shared))

    def check(self) -> None:
        """Refuse a communicator that was freed, or on which a call has stalled or raised, and any after MPI's end."""
        refuse_after_finalize()
        if self.forked:
            raise RuntimeError(FORKED)
        if self.refused is not None:
            raise self.refused
        if self.freed:
            raise RuntimeError("the communicator was freed: no call can be made on it any more")
        if self.broken:
            raise StalledError(f"this communicator cannot be used after: {self.broken}")

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
        if not bound.requests or bound.settled(position):
            bound.free()
        else:
            self.broken = f"{bound.name.format(self.calls)} raised {error!r}"

    def complete(self, make: Callable[[Operation], Routine[Any]], name: str = "") -> Any:
        """Return the result of a routine on this communicator, having waited for it.

        Args:
            make: returns the routine.
            name: what waits, for messages.
        """

        def keeping(operation: Operation) -> Routine[None]:
            operation.result = yield from make(operation)

        return Operation(self, keeping, name=name or f"call #{self.calls}").wait()

    def exchange(self, mine: Any) -> list[Any]:
        """Return every rank's object; raises StalledError if a rank does not come in time."""
        found: list[Any] = self.complete(lambda _: exchanged(self.comm, mine))
        return found

    def meet(self) -> None:
        """Wait for all ranks; raises StalledError if one does not come in time."""
        self.complete(lambda _: met(self.comm))

    def stalled(self, what: str, why: str) -> StalledError:
        """Return the error for a call that does not go on: what waits, and why that is in vain."""
        self.broken = what
        if self.mapped is not None:
            self.mapped.abort()
        return StalledError(f"{what}; {why}")

    def slot(self, number: int) -> Slot:
        """Return a slot by its number: 0 is for blocking calls."""
        found = self.slots.get(number)
        if found is None:
            found = self.slots[number] = Slot(operations.COMMON)
        return found

    def free_slot(self) -> Slot | None:
        """Return a slot for a call that does not block, None while all are taken."""
        for number in range(1, 1 + NONBLOCKING):
            slot = self.slot(number)
            if not slot.taken:
                return slot
        return None

    def own_slot(self) -> Slot:
        """Return a slot for a persistent request, with a lane of its own as far as there are tags."""
        self.persistent += 1
        lane = 1 + (self.persistent - 1) % (self.most_slots - 2)  # the last one's first tag is for refusals
        number = max((NONBLOCKING, *self.slots)) + 1  # only its lane is known to others
        slot = self.slots[number] = Slot(lane)
        return slot

    def release(self, slot: Slot) -> None:
        """Give back the slot of a persistent request."""
        if not self.freed:
            self.slots = {number: other for number, other in self.slots.items() if other is not slot}
            slot.close()

    def close(self) -> None:
        """Free everything but the communicator: no collective call, so safe in any order of exit."""
        for slot in [] if self.broken else self.slots.values():  # what has stalled is left as it is
            slot.close()

    def settle(self) -> None:
        """Wait until the calls in flight have ended; after one that broke the communicator others never do."""
        turns.wait_for(lambda: bool(self.broken) or all(o.context is not self for o in tuple(turns.in_flight)))

    def free(self) -> None:
        """Free everything, once the calls in flight have ended; collective."""
        if self.freed:
            return
        self.settle()
        live.discard(self)
        if not self.broken:
            if self.mapped is not None:
                # a rank that has stalled does not come: the memory stays mapped
                with suppress(StalledError), override(timeout=settings.timeout or self.limit):
                    self.mapped.close(self.meet)
            self.close()
            self.comm.Free()
        self.freed, self.broken = True, self.broken or "the communicator was freed"


def refuse_after_finalize() -> None:
    """Raise RuntimeError if MPI has ended: asking it anything would end the process."""
    if MPI.Is_finalized():
        raise RuntimeError("MPI was finalized: no call can be made any more")
