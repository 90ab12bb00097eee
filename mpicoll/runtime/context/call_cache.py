"""The call cache: where an equal call comes again, nothing of it is decided again.

There is one for a communicator.  A call is found by its key, which has everything that was read of its
arguments (see `call/call_key.py`); of CuPy arrays it is found sooner by their identity, for such an
array cannot be given other memory, another dtype or another size.  The least recently used call goes first.

    key -> Remembered(operands, plan, programs {(slot, stream): Bound})
    (method, id(sendbuf), id(recvbuf)) -> the same, with all that must be as it was
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from heapq import nsmallest
from typing import Any

import numpy as np

from mpicoll.dispatch.plan import Plan
from mpicoll.runtime.arguments.arrays import Flat
from mpicoll.runtime.arguments.operands import Operands
from mpicoll.runtime.host import work
from mpicoll.runtime.program.bound import Bound
from mpicoll.settings import settings

#: persistent requests that a communicator's programs have at most, of about 1 KB each in the MPI library
MOST_REQUESTS = 1 << 16

#: slot and stream for which a program is bound
Where = tuple[int, int]
#: method, and the identity of its first two arguments
Identity = tuple[str, int, int]


@dataclass(eq=False)
class Remembered:
    """A call that need not be decided again.

    Attributes:
        operands: of the call, over arrays that do not keep the memory alive.
        plan: what was chosen.
        programs: by slot and stream.
        requests: number of persistent requests of each program.
        identities: under which it is found, too.
        key: by which it is found, None before it is remembered.
        used: stamp of its latest use.
        blocking: that of the programs which blocking calls run, at hand.
    """

    operands: Operands
    plan: Plan
    programs: dict[Where, Bound] = field(default_factory=dict)
    requests: dict[Where, int] = field(default_factory=dict)
    identities: set[Identity] = field(default_factory=set)
    key: Hashable = None
    used: int = 0
    blocking: Bound | None = None

    @staticmethod
    def of(operands: Operands, plan: Plan) -> Remembered:
        """Return a call as it can be remembered."""
        same = operands.output is operands.input
        source = borrowed(operands.input)
        return Remembered(replace(operands, input=source, output=source if same else borrowed(operands.output)), plan)

    def program(self, where: Where) -> Bound | None:
        """Return the program for a slot and stream, None if there is none that can run."""
        found = self.programs.get(where)
        return found if found is not None and found.alive else None


class CallCache:
    """The remembered calls of one communicator.

    With `plan_cache=2` the third call takes the place of the first, unless that was used after the second.

    Attributes:
        calls: by key.
        uses: number of uses so far; each call has that of its latest one.
        identities: by identity of the arrays: all that must be as it was, and what is run (see `call/shortcut.py`).
    """

    def __init__(self) -> None:
        """Start empty."""
        self.calls: dict[Hashable, Remembered] = {}
        self.identities: dict[Identity, tuple[Any, ...]] = {}
        self.requests = self.uses = 0
        self._changing = threading.RLock()  # calls that do not block are planned in whatever thread makes progress

    def find(self, key: Hashable) -> Remembered | None:
        """Return an equal call, which counts as used; None if there is none, or the key is None."""
        try:
            found = self.calls.get(key)
        except TypeError:  # something that is refused later, such as a list for an algorithm's name
            return None
        if found is not None:
            self.uses = found.used = self.uses + 1  # a stamp: another look-up would take the time of the first
        return found

    def remember(self, key: Hashable, call: Remembered) -> Remembered:
        """Keep a call, unless its key is None; return it, or the one that was remembered meanwhile."""
        with self._changing:
            known = self.find(key)
            if known is not None or key is None:
                return known or call
            self.calls[key], call.key = call, key
            self._use(call)
            self._shrink()
        return call

    def keep(self, call: Remembered, where: Where, bound: Bound) -> None:
        """Keep a program of a call, which counts as used; one that was forgotten meanwhile is remembered again."""
        with self._changing:
            known = self.calls.get(call.key)
            if known is not call:
                if known is not None:
                    self._forget(known)
                self.calls[call.key] = call
            self._use(call)
            old = call.programs.get(where)
            if old is not None:
                old.retire()
            self.requests += len(bound.requests) - call.requests.get(where, 0)
            call.programs[where], call.requests[where] = bound, len(bound.requests)
            self._shrink()

    def note_identity(
        self, call: Remembered, identity: Identity, arrays: list[Any], others: list[Any], known: tuple[Any, ...]
    ) -> None:
        """Let a call be found by the identity of its buffers, as long as its arrays live.

        Args:
            call: that was remembered.
            identity: its method and buffers.
            arrays: buffers that are arrays.
            others: buffers that are none, such as a root's number, which keep their identity here.
            known: all that must be as it was, and what is run.
        """
        here = weakref.ref(self)

        def gone(_: object) -> None:  # another array may then have its identity
            cache = here()
            if cache is not None:
                cache.identities.pop(identity, None)
            call.identities.discard(identity)

        watched = [weakref.ref(array, gone) for array in arrays]
        self.identities[identity] = (*known, (watched, others))
        call.identities.add(identity)

    def clear(self) -> None:
        """Forget all calls, and free their programs."""
        with self._changing:
            while self.calls:
                self._forget(self.calls.popitem()[1])

    def _use(self, call: Remembered) -> None:
        self.uses = call.used = self.uses + 1

    def _shrink(self) -> None:
        """Forget the least recently used calls, but never the latest one, until there are few enough.

        A part of them goes at once, for finding the oldest takes a look at all.
        """
        most = max(settings.plan_cache, 1)
        while len(self.calls) > most or (self.requests > MOST_REQUESTS and len(self.calls) > 1):
            for call in nsmallest(max(len(self.calls) // 16, 1), self.calls.values(), key=lambda call: call.used):
                del self.calls[call.key]
                self._forget(call)

    def _forget(self, call: Remembered) -> None:
        for identity in tuple(call.identities):  # an array that goes meanwhile takes its own away
            self.identities.pop(identity, None)
        call.identities.clear()
        for bound in call.programs.values():
            bound.retire()
        self.requests -= sum(call.requests.values())
        call.programs.clear()
        call.requests.clear()


def borrowed(flat: Flat | None) -> Flat | None:
    """Return the flat array over memory that it does not keep alive."""
    if flat is None:
        return None
    if not flat.array.nbytes:  # such as x[:0], which keeps all of x alive
        return Flat(np.empty(0, flat.array.dtype), flat.pointer, flat.device)
    run, dtype = (flat.pointer, flat.array.nbytes), flat.array.dtype
    if isinstance(flat.array, np.ndarray):
        return Flat(work.view(run, dtype), flat.pointer, flat.device)
    from mpicoll.runtime.cuda.work import view

    return Flat(view(run, dtype, flat.device), flat.pointer, flat.device)
