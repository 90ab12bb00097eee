"""Calls that are remembered, and what holds for all calls of a signature."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import Any

from mpicoll.dispatch.plan import Plan
from mpicoll.recorder.entry import Decision
from mpicoll.runtime.arguments.arrays import Extent, Flat
from mpicoll.runtime.arguments.operands import Operands
from mpicoll.runtime.program.bound import Bound

#: slot and stream for which a program is bound
Where = tuple[int, int]
#: method, algorithm, and the identities or places of its first two arguments
Identity = tuple[str, Any, Any, Any]
#: signature, and two addresses, see `call/call_key.py`
Key = tuple[Any, ...]


@dataclass(eq=False)
class Decided:
    """A call that is decided, wherever its arrays are.

    Attributes:
        operands: of one such call, without memory.
        plan: what was chosen.
        places: of input and output: the number of the argument in whose memory it lies, and the bytes from there.
        can_be_aimed: its programs can be aimed at any arrays.
        mobile: the call whose programs are aimed so, None before it was needed.
        met: pairs of addresses at which it was aimed, since the last of them got programs of their own.
    """

    operands: Operands
    plan: Plan
    places: tuple[tuple[int, int], tuple[int, int]]
    can_be_aimed: bool = False
    mobile: Remembered | None = None
    met: set[tuple[int, ...]] | None = None

    @staticmethod
    def of(operands: Operands, plan: Plan, addresses: tuple[int, ...], can_be_aimed: bool) -> Decided:
        """Return what holds for all calls of one signature, from one whose arrays are at these addresses."""
        source, target = extent_of(operands.input), extent_of(operands.output)
        places = _place(source, addresses), _place(target, addresses)
        if operands.output is operands.input:
            target = source
        return Decided(replace(operands, input=source, output=target), plan, places, can_be_aimed)

    def aimed(self, addresses: tuple[int, ...]) -> Remembered:
        """Return the mobile call, whose programs are to be aimed at these addresses."""
        if self.mobile is None:
            self.mobile = Remembered(self.operands, self.plan)
        (source, start), (target, begin) = self.places
        self.mobile.aims = addresses[source] + start, addresses[target] + begin
        return self.mobile

    def at(self, addresses: tuple[int, ...]) -> Remembered:
        """Return the call whose arrays are at these addresses."""
        known, (source, target) = self.operands, self.places
        one = _moved(known.input, source, addresses)
        other = one if known.output is known.input else _moved(known.output, target, addresses)
        return Remembered(known.over(one, other), self.plan)


def extent_of(flat: Flat | None) -> Flat | None:
    """Return a flat array without its memory, which it then does not keep alive."""
    return flat and Flat(Extent(flat.array.dtype, flat.size), flat.pointer, flat.device)


def _place(flat: Flat | None, addresses: tuple[int, ...]) -> tuple[int, int]:
    """Return (number of the argument in whose memory a flat array lies, bytes from its address).

    That is the one that begins last of those before it: others lie elsewhere, or overlap, at a fixed distance.
    """
    if flat is None or not flat.size or not flat.pointer:  # a program's own copy has no place yet
        return 0, 0
    address, number = max((a, k) for k, a in enumerate(addresses) if 0 < a <= flat.pointer)
    return number, flat.pointer - address


def _moved(flat: Flat | None, place: tuple[int, int], addresses: tuple[int, ...]) -> Flat | None:
    """Return a flat array at its place in the arguments' memory."""
    return flat and Flat(flat.array, addresses[place[0]] + place[1], flat.device, flat.before, flat.after)


@dataclass(eq=False)
class Remembered:
    """A call that need not be decided again, nor bound, where its programs live.

    Attributes:
        operands: of the call, over arrays that do not keep the memory alive.
        plan: what was chosen.
        programs: by slot and stream.
        requests: number of persistent requests of each program.
        identities: under which it is found, too.
        key: by which it is found, None before it is remembered.
        used: stamp of its latest use.
        blocking: that of the programs which blocking calls run, at hand.
        beside: that of the programs which calls that do not block enqueue on a side stream, at hand.
        found: how often it was found by its key.
        begun: what is kept among the calls made last of one that does not block, None before there was one.
        aims: addresses of input and output at which its programs are to be aimed, None where they are at home.
    """

    operands: Operands
    plan: Plan
    programs: dict[Where, Bound] = field(default_factory=dict)
    requests: dict[Where, int] = field(default_factory=dict)
    identities: set[Identity] = field(default_factory=set)
    key: Hashable = None
    used: int = 0
    blocking: Bound | None = None
    beside: Bound | None = None
    found: int = 0
    begun: Decision | None = None
    aims: tuple[int, int] | None = None

    def in_form(self, form: str) -> Remembered | Decision:
        """Return what is kept of it among the calls made last, where it is made in a form."""
        plan = self.plan.of(form)
        return self if plan is self.plan else Decision(self.operands, plan, form)

    def program(self, where: Where) -> Bound | None:
        """Return the program for a slot and stream, None if there is none that can run."""
        found = self.programs.get(where)
        return found if found is not None and found.alive else None
