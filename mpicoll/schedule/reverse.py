"""Reversal in time: where a gather's blocks go to the root, its reversal scatters them from there.

On rank 2 of 4, a binomial gather and its reversal, a scatter:

    step 0: scratch[0] = input[2]            step 0: recv scratch[0-1] from 0
    step 1: recv scratch[1] from 3           step 1: send scratch[1] to 3
    step 2: send scratch[0-1] to 0           step 2: output[2] = scratch[0]
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import chain

from mpicoll.schedule.ir import Copy, Local, Message, Recv, Ref, Schedule, Send, Step

#: what input and output become when they are exchanged
_EXCHANGED = {"input": "output", "output": "input"}


def reverse(schedule: Schedule) -> Schedule:
    """Return a schedule that runs backwards, with input and output exchanged; it may not reduce."""
    if schedule.outside is None:
        return replace(schedule, steps=tuple(_backwards(schedule.steps, _EXCHANGED)))
    begin, end = schedule.outside
    parts = [_backwards(schedule.steps[a:b], _EXCHANGED) for a, b in ((end, None), (begin, end), (0, begin))]
    outside = len(parts[0]), len(parts[0]) + len(parts[1])
    return replace(schedule, steps=tuple(chain.from_iterable(parts)), outside=outside)


def reverse_steps(steps: Iterable[Step]) -> list[Step]:
    """Return steps that run backwards over the same cells; they may not reduce."""
    return _backwards(tuple(steps), {})


def _backwards(steps: tuple[Step, ...], names: dict[str, str]) -> list[Step]:
    """Return the steps in opposite order; what is local in one comes before its messages, as a step of its own."""
    found: list[Step] = []
    for one in reversed(steps):
        if one.local:
            found.append(Step((), tuple(_copy(work, names) for work in reversed(one.local))))
        if one.messages:
            found.append(Step(tuple(_message(m, names) for m in reversed(one.messages)), ()))
    return found


def _message(message: Message, names: dict[str, str]) -> Message:
    if isinstance(message, Send):
        return Recv(_renamed(message.source, names), message.peer)
    return Send(_renamed(message.target, names), message.peer)


def _copy(work: Local, names: dict[str, str]) -> Copy:
    if not isinstance(work, Copy):
        raise ValueError(f"a reduction cannot be reversed: {work}")
    return Copy(_renamed(work.source, names), _renamed(work.target, names))


def _renamed(ref: Ref, names: dict[str, str]) -> Ref:
    return Ref(names.get(ref.buffer, ref.buffer), ref.cells)
