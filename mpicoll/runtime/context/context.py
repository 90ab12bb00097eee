"""The private side of a communicator: a duplicate for our messages, slots, and what paths keep for it.

One context belongs to a communicator's handle, as an MPI attribute, and is freed with it.  It is
made without waiting for anybody; what ranks must know of each other they exchange in an operation,
after which all others come.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from mpi4py import MPI

from mpicoll.dispatch.machine_facts import MachineFacts, of_ranks
from mpicoll.dispatch.tuning import Text, Tuning, asked_for, in_force
from mpicoll.errors import MismatchError, StalledError
from mpicoll.runtime.context.call_cache import CallCache
from mpicoll.runtime.context.first_call import agreed_settings, compare, own_facts, topology_of
from mpicoll.runtime.context.introductions import introduced
from mpicoll.runtime.context.slot import Slot
from mpicoll.runtime.mpi import cuda_aware
from mpicoll.runtime.mpi.waiter import Waiter, cores
from mpicoll.runtime.progress import turns
from mpicoll.runtime.progress.exchange import Routine, exchanged, met
from mpicoll.runtime.progress.operations import COMMON, Operation
from mpicoll.runtime.progress.refusals import Refusals
from mpicoll.runtime.progress.traffic import Traffic
from mpicoll.schedule.program import TAGS
from mpicoll.schedule.topology import Topology
from mpicoll.settings import override, settings

#: slots that calls which do not block take: so many are on their way at a time, the next ones wait for a slot
NONBLOCKING = 6
T = TypeVar("T")
#: contexts that are not freed yet
live: weakref.WeakSet[Context] = weakref.WeakSet()


class Attachment(Protocol):
    """A path's things for a communicator, such as memory that peers have mapped."""

    def abort(self) -> None:
        """Make what waits on a device for other ranks leave."""

    def synchronize(self) -> None:
        """Wait on the host for what was enqueued on a device."""

    def close(self, meet: Callable[[], object]) -> None:
        """Free it; collective.

        Args:
            meet: waits for all ranks; what it raises leaves the rest as it is.
        """


class Context(Traffic):
    """Everything private to one communicator.

    Attributes:
        comm: duplicate for private messages, usable once `ready`.
        cuda_aware: what was found out about device pointers in MPI, the same on all ranks.
        waiter: how to wait for messages.
        machine: on which its ranks are.
        topology: which of them are on one host.
        tables: rank 0's user's tuning tables.
        gpus: number of GPUs of all ranks, 0 before the first call on them.
        cache: calls that need not be decided again.
        attached: by path, what it keeps for the communicator, or in words why there is none.
        looks: raise what earlier calls have met on a device.
        others: what else is kept for the communicator, such as its groups.
    """

    cuda_aware: cuda_aware.Awareness
    waiter: Waiter
    machine: MachineFacts
    tables: tuple[Text, ...]
    topology: Topology

    def __init__(self, parent: MPI.Intracomm, rules: str) -> None:
        """Start to duplicate the parent and to compare settings; local."""
        plain = MPI.Intracomm(parent)
        super().__init__(plain)
        self.cache = CallCache()
        self.slots: dict[int, Slot] = {}
        self.attached: dict[str, Any] = {}
        self.looks: list[Callable[[], None]] = []
        self.others: dict[str, Any] = {}
        self.persistent = self.gpus = 0
        self.ready = False
        self.turn = threading.Lock()
        self.most_slots = (MPI.COMM_WORLD.Get_attr(MPI.TAG_UB) or 32767) // TAGS
        live.add(self)
        self.comm, request = plain.Idup()
        mine = agreed_settings(rules, self._table())
        self.setting_up = Operation(self, lambda _: self._set_up(request, mine), name="first call on a communicator")

    def _set_up(self, duplicated: MPI.Request, mine: dict[str, Any]) -> Routine[None]:
        """Exchange what ranks must know of each other, and get ready.

        Args:
            duplicated: completes when the private communicator is there.
            mine: the settings on which ranks must agree.

        Raises:
            MismatchError: they do not agree.
        """
        yield duplicated.Test
        own = own_facts(mine, self.watch.address if self.watch else None, self.rank)
        facts = yield from introduced(self.comm, own)
        try:
            compare([one.settings for one in facts])
            self.machine, self.tables = of_ranks((one.place, one.machine) for one in facts), facts[0].tables
            self.topology = topology_of(self.comm, [one.place for one in facts])
            self.tuning()
        except (MismatchError, ValueError) as error:  # settings differ, or a tuning table has a mistake
            self.refused = error
            raise
        if self.watch:
            self.watch.agree(self, facts[0].id, [one.address for one in facts], named=self.limit > 0)
        self.refusals = Refusals(self.comm, (self.most_slots - 1) * TAGS)
        self.cuda_aware = cuda_aware.agree([one.awareness for one in facts])
        hosts = [one.host for one in facts]
        here = hosts.count(hosts[self.rank])
        yielding = settings.yield_wait
        self.waiter = Waiter(here > cores() if yielding is None else yielding)
        self.ready = True

    def tuning(self) -> Tuning:
        """Return the tuning tables in force, the same on all ranks."""
        return in_force(self._table(), self.tables, self.machine)

    def _table(self) -> Text:
        """Return the tuning table that is set, as it was when it was first needed."""
        name = settings.tuning
        return self.kept(f"tuning table {name}", lambda: asked_for(name))

    def kept(self, what: str, make: Callable[[], T]) -> T:
        """Return what is kept for the communicator under a name, made now if it is not there."""
        if what not in self.others:
            self.others[what] = make()
        found: T = self.others[what]
        return found

    def check(self) -> None:
        """Refuse what no call can be made on, and any call after one that stalled on a device."""
        super().check()
        self.look()

    def rescue(self) -> None:
        """End the blocking call that waits in vain, by another thread, where MPI allows that."""
        if self.vain is None or MPI.Query_thread() < MPI.THREAD_MULTIPLE:
            return
        for slot in tuple(self.slots.values()):
            for bound in tuple(slot.programs):
                if bound.running:
                    bound.interrupt(self.vain.raised(bound.name.format(self.calls)))

    def look(self) -> None:
        """Raise what earlier calls have met on a device."""
        for look in self.looks:
            look()

    def attachments(self) -> list[Attachment]:
        """Return the attachments of all paths."""
        return [one for one in self.attached.values() if not isinstance(one, str)]

    def synchronize(self) -> None:
        """Wait on the host for all calls, also what they enqueued on a device; raises what they have met there."""
        self.settle()
        for attachment in self.attachments():
            attachment.synchronize()
        self.check()

    def abort(self) -> None:
        """Make what waits on a device for other ranks leave."""
        for attachment in self.attachments():
            attachment.abort()

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

    def slot(self, number: int) -> Slot:
        """Return a slot by its number: 0 is for blocking calls."""
        found = self.slots.get(number)
        if found is None:
            found = self.slots[number] = Slot(COMMON)
        return found

    def free_slot(self) -> Slot | None:
        """Return a slot for a call that does not block, None while all are taken."""
        slots = self.slots
        for number in range(1, 1 + NONBLOCKING):
            slot = slots.get(number) or self.slot(number)
            if not slot.taken:
                return slot
        return None

    def take_slot(self) -> Slot | None:
        """Take a slot for a call that does not block, None while all are taken."""
        slot = self.free_slot()
        if slot is not None:
            slot.taken = True
        return slot

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
        if not self.broken:  # what has stalled is left as it is
            self.cache.clear()
            self.others.clear()
            for slot in self.slots.values():
                slot.close()

    def settle(self) -> None:
        """Wait until the calls in flight have ended; after one that broke the communicator others never do."""
        turns.wait_for(lambda: bool(self.broken) or not turns.of(self))

    def free(self) -> None:
        """Free everything, once the calls in flight have ended; collective."""
        if self.freed:
            return
        self.settle()
        with suppress(StalledError):  # then it is broken, and no rank is waited for
            self.look()
        self.looks.clear()
        live.discard(self)
        if not self.broken:
            for attachment in self.attachments():
                # a rank that has stalled does not come: its memory stays mapped
                with suppress(StalledError), override(timeout=settings.timeout or self.limit):
                    attachment.close(self.meet)
            self.close()
            self.comm.Free()
        self.freed, self.broken = True, self.broken or "the communicator was freed"
