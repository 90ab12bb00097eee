"""The call cache: where an equal call comes again, nothing of it is decided again.

There is one for a communicator.  A call is found by its key, which has everything that was read of its
arguments (see `call/call_key.py`); of CuPy arrays it is found sooner by their identity, for such an
array cannot be given other memory, another dtype or another size.  A call whose arrays were never there before is
not decided again where another one of its signature was.  The least recently used call goes first.

    (*signature, address, address) -> Remembered(operands, plan, programs {(slot, stream): Bound})
    (method, algorithm, id(sendbuf), id(recvbuf)) -> the same, with all that must be as it was
    signature -> Decided(operands, plan), of which a Remembered is made for any addresses

Where a program can be aimed at any arrays, the first call with new ones runs that of its signature.  What comes
a second time gets a program of its own, which may be faster.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Hashable
from heapq import nsmallest
from typing import Any

from mpicoll.dispatch.plan import Plan
from mpicoll.runtime.arguments.operands import Operands
from mpicoll.runtime.context.remembered import Decided, Identity, Key, Remembered, Where
from mpicoll.runtime.program.bound import Bound
from mpicoll.settings import settings

#: persistent requests that a communicator's programs have at most, of about 1 KB each in the MPI library
MOST_REQUESTS = 1 << 16
#: identities under which a call is found at most
MOST_IDENTITIES = 4


class CallCache:
    """The remembered calls of one communicator.

    With `plan_cache=2` the third call takes the place of the first, unless that was used after the second.

    Attributes:
        calls: by key.
        decided: what holds for calls of a signature, by that.
        uses: number of uses so far; each call has that of its latest one.
        identities: by identity of the arrays: all that must be as it was, and what is run (see `call/shortcut.py`).
    """

    def __init__(self) -> None:
        """Start empty."""
        self.calls: dict[Hashable, Remembered] = {}
        self.decided: dict[Hashable, Decided] = {}
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

    def find_anywhere(self, key: Key | None) -> Remembered | None:
        """Return the call with a key, remembered now, if one was decided whose arrays were elsewhere; else None."""
        if key is None:
            return None
        signature, addresses = key[:-2], key[-2:]
        with self._changing:
            try:
                decided = self.decided.pop(signature, None)  # and back at the end, as the latest one
            except TypeError:  # as in `find`
                return None
            if decided is None:
                return None
            self.decided[signature] = decided
            return self.remember(key, decided.at(addresses))

    def find_mobile(self, key: Key | None) -> Remembered | None:
        """Return the call of a signature aimed at arrays that were never there before, None if there is none."""
        if key is None:
            return None
        try:
            decided = self.decided.get(key[:-2])
        except TypeError:  # as in `find`
            return None
        if decided is None or not decided.can_be_aimed:
            return None
        return decided.aimed(key[-2:]) if self._is_new(decided, key[-2:]) else None

    def _is_new(self, decided: Decided, addresses: tuple[int, ...]) -> bool:
        """Tell whether a call is at these addresses for the first time, or none more can be remembered."""
        met, most = decided.met, max(settings.plan_cache, 1)
        if met is None or len(met) >= most:
            met = decided.met = set()
        if addresses in met and len(self.calls) < most:  # none is forgotten for it
            met.discard(addresses)
            return False
        met.add(addresses)
        return True

    def decide(self, key: Key, operands: Operands, plan: Plan, *, mobile: bool = False) -> Remembered:
        """Keep what was decided for calls of a signature; return this one, which is remembered.

        Args:
            key: of the call.
            operands: of the call.
            plan: what was chosen.
            mobile: its programs can be aimed at any arrays.
        """
        decided = Decided.of(operands, plan, key[-2:], mobile)
        with self._changing:
            self.decided[key[:-2]] = decided
            while len(self.decided) > max(settings.plan_cache, 1):
                self._forget_mobile(self.decided.pop(next(iter(self.decided))))
            return self.remember(key, decided.at(key[-2:]))

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
            if known is not call and call.key is not None:  # else it is its signature's
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
            arrays: buffers that are arrays, on whose lives it depends.
            others: buffers that are none, such as a root's number, which keep their identity here.
            known: all that must be as it was, and what is run.
        """
        here = weakref.ref(self)

        def gone(_: object) -> None:  # another array may then have its identity
            cache = here()
            if cache is not None:
                cache.identities.pop(identity, None)
            call.identities.discard(identity)

        if len(call.identities) >= MOST_IDENTITIES:
            self._forget_identities(call)
        watched = [weakref.ref(array, gone) for array in arrays]
        self.identities[identity] = (*known, (watched, others))
        call.identities.add(identity)

    def drop_programs(self, which: Callable[[Plan], bool]) -> None:
        """Let calls of some plans be bound anew, which stay decided.

        Args:
            which: tells of a plan whether its programs must not run again.
        """
        with self._changing:
            mobile = [one.mobile for one in self.decided.values() if one.mobile]
            for call in [one for one in (*self.calls.values(), *mobile) if which(one.plan)]:
                self._forget(call)

    def clear(self) -> None:
        """Forget all calls, and free their programs."""
        with self._changing:
            while self.decided:
                self._forget_mobile(self.decided.popitem()[1])
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

    def _forget_identities(self, call: Remembered) -> None:
        for identity in tuple(call.identities):  # an array that goes meanwhile takes its own away
            self.identities.pop(identity, None)
        call.identities.clear()

    def _forget_mobile(self, decided: Decided) -> None:
        if decided.mobile is not None:
            self._forget(decided.mobile)

    def _forget(self, call: Remembered) -> None:
        self._forget_identities(call)
        for bound in call.programs.values():
            bound.retire()
        self.requests -= sum(call.requests.values())
        call.programs.clear()
        call.requests.clear()
