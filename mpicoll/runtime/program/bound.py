"""Bound programs: instructions with everything packed, to be run as often as the same memory comes again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from mpi4py import MPI

from mpicoll.runtime.program.local_work import Action, Poll
from mpicoll.schedule.ir import block_ids
from mpicoll.schedule.program import Program
from mpicoll.settings import settings

#: seconds that the messages of a call that raised may take to arrive
SETTLE = 1.0

#: kinds of instructions: messages started and waited for, work launched and waited for, order on a stream
START, WAIT, LAUNCH, SYNC, ORDER = "start", "wait", "launch", "sync", "order"


class Observer(Protocol):
    """Runs blocking calls' programs in the executor's place, to see what they do."""

    def run(self, bound: Bound) -> None:
        """Run a program, as `Bound.run` does."""


@dataclass(eq=False)
class Bound:
    """A program bound to addresses.

    An allreduce of two ranks by `one_shot` has the actions start, wait, launch:

        kinds == ["start", "wait", "launch"]; polls == [None, <test>, None]; waits == {1: (0, 1)}

    Attributes:
        actions: instructions, in order.
        kinds: kind of each action.
        polls: for each action, what tells whether it would return at once; None where it always does.
        waits: position of each action that waits for messages, and their indices.
        program: where they are described.
        requests: all persistent requests, to be freed.
        messages: requests of each message, several where it is longer than MPI can count.
        nbytes: bytes of each message.
        alive: false once freed.
        running: a run is under way, or waits for its turn.
        retired: it is freed as soon as it does not run.
        reached: position of the action that runs, or ran last.
        last_start: position of the last action that starts messages.
        name: call and algorithm, with {} for the call's number.
        device: number of the device whose streams and events the actions use, -1 for none.
        mark: marks the end of what was launched and returns what tells whether it is reached; None where
            the program itself ends only then.
        limited: a time limit was in force when it was bound.
        mobile: it is aimed at arrays before each run.
        aim: makes the next run work on input and output at these addresses, where it is mobile.
        keep: lives as long as the program, such as the operator by whose identity it is known.
        cancelled: messages whose receives were cancelled while they were waited for.
    """

    observer: ClassVar[Observer | None] = None

    actions: list[Action] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    polls: list[Poll | None] = field(default_factory=list)
    waits: dict[int, tuple[int, ...]] = field(default_factory=dict)
    program: Program | None = None
    requests: list[MPI.Prequest] = field(default_factory=list)
    alive: bool = True
    running: bool = False
    retired: bool = False
    reached: int = 0
    last_start: int = -1
    name: str = ""
    device: int = -1
    mark: Callable[[], Poll] | None = None
    limited: bool = False
    mobile: bool = False
    aim: Callable[[int, int], None] | None = None
    keep: object = None
    nbytes: list[int] = field(default_factory=list)
    messages: list[list[MPI.Prequest]] = field(default_factory=list)
    cancelled: set[int] = field(default_factory=set)

    def add(self, kind: str, *actions: Action | None, poll: Poll | None = None) -> None:
        """Append actions of a kind; `poll` belongs to each of them."""
        for action in actions:
            if action is not None:
                self.actions.append(action)
                self.kinds.append(kind)
                self.polls.append(poll)

    def run(self) -> None:
        """Run the program to its end."""
        if self.observer is not None:
            self.observer.run(self)
            return
        self.running = True
        for self.reached, action in enumerate(self.actions):  # noqa: B020  (wanted while an action does not return)
            action()
        self.running = False
        if self.retired:
            self.free()

    def pending(self, position: int) -> str:
        """Return in words which message the action at a position waits for."""
        if self.program is None and self.device < 0:
            return "waiting for a message in MPI's own collective"
        if self.program is None or position not in self.waits:
            return "waiting for the device" if self.device >= 0 else "in local work"
        late = [t for t in self.waits[position] if not all(map(_is_complete, self.messages[t]))]
        transfer = self.program.transfers[late[0] if late else self.waits[position][0]]
        steps = len(self.program.schedule.steps)
        blocks = ",".join(map(str, block_ids(transfer.ref, self.program.schedule)))
        verb = "to send block {} to" if transfer.sends else "for block {} from"
        return f"step {transfer.step + 1} of {steps}: waiting {verb.format(blocks)} rank {transfer.peer}"

    def pending_bytes(self, position: int) -> int:
        """Return the bytes of the messages for which the action at a position waits."""
        return sum(self.nbytes[t] for t in self.waits.get(position, ()))

    def interrupt(self, error: Exception) -> None:
        """Make the run under way, by another thread, raise an error after the action that it is at.

        Receives for which that action waits are cancelled.  It may be said again, for the run may have gone on
        meanwhile; but no receive is cancelled twice, which would harm Open MPI.  Nor is one asked whether it is
        complete: Open MPI says so of all that another thread waits for.
        """

        def raising() -> None:
            raise error

        self.alive, length = False, len(self.kinds) + 1  # the last action has one behind it, too
        self.polls[:], self.actions[:] = [None] * length, [raising] * length
        awaited = set(self.waits.get(self.reached, ())) - self.cancelled
        self.cancelled |= awaited
        program = self.program
        for request in [r for t in awaited if program and not program.transfers[t].sends for r in self.messages[t]]:
            with suppress(MPI.Exception):  # it has ended
                request.Cancel()

    def settled(self, position: int) -> bool:
        """After an error at a position: tell whether all messages were sent and received all the same."""
        self.alive = False
        if position <= self.last_start:
            return False
        end = time.monotonic() + SETTLE
        while not all([_is_complete(request) for request in self.requests]):
            if time.monotonic() > end:
                return False
        return True

    def free(self) -> None:
        """Free the requests; the program cannot run any more."""
        for request in self.requests:
            request.Free()
        self.alive = self.running = False
        self.keep = None
        for items in (self.requests, self.messages, self.actions, self.kinds, self.polls):
            items.clear()

    def retire(self) -> None:
        """Free it, now or at the end of the run that is under way."""
        self.alive, self.retired = False, True
        if not self.running:
            self.free()



@contextmanager
def observed(observer: Observer) -> Iterator[None]:
    """Let an observer run all blocking calls' programs within a with block; calls with a time limit go past it."""
    before, Bound.observer = Bound.observer, observer
    try:
        with settings.within(settings.same_values()):  # so that no call takes the shortcut past `Bound.run`
            yield
    finally:
        Bound.observer = before


def _is_complete(request: MPI.Prequest) -> bool:
    """Tell whether a message has ended, well or not."""
    try:
        return request.Get_status()
    except MPI.Exception:  # it was too long; that is told where it is waited for
        return True
