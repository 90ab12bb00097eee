"""Actions: what a rank does in a simulation, one after the other.

    ("start", [(True, 1, 0, 4096.0, 0)])   start message 0: it is sent to rank 1, with tag 0, 4,096 bytes
    ("wait", (0,))                         until message 0 is complete on this rank
    ("exchange", [...])                    start messages, and wait until all are complete; no others are on their way
    ("work", 2e-6, 0)                      start local work 0, of 2 us, behind the work that is running
    ("sync", 0)                            wait until local work 0 is done

A message is sent with its bytes; the receiver's number of bytes is not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mpicoll.schedule.ir import Local, Reduce, Schedule, Send
from mpicoll.schedule.program import Launch, Program, Start, Sync, Wait, tag_of

#: sends, peer, tag, bytes, number among this rank's messages
Post = tuple[bool, int, int, float, int]
Action = tuple[Any, ...]


@dataclass(frozen=True)
class Sizes:
    """Bytes of a block of one segment, and the seconds of local work on them.

    Attributes:
        block: bytes of a block.
        gamma: seconds of reducing one byte of one operand; a copy takes half of that.
        launch: seconds of starting a reduction or copy.
    """

    block: float
    gamma: float = 0.0
    launch: float = 0.0

    def work(self, operation: Local) -> float:
        """Return the seconds of local work."""
        operands = len(operation.sources) - 1 if isinstance(operation, Reduce) else 0.5
        return self.launch + self.gamma * operands * len(operation.target) * self.block


def of_schedule(schedule: Schedule, sizes: Sizes) -> Iterator[Action]:
    """Yield a schedule's actions, as written: a step's messages together, then its local work."""
    block, message, work = sizes.block, 0, 0
    for one in schedule.steps:
        posts: list[Post] = []
        for m in one.messages:
            if m.__class__ is Send:
                posts.append((True, m.peer, 0, len(m.source.cells) * block, message))
            else:
                posts.append((False, m.peer, 0, 0.0, message))
            message += 1
        if posts:
            yield "exchange", posts
        for operation in one.local:
            yield "work", sizes.work(operation), work
            work += 1
        if one.local:
            yield "sync", work - 1


def of_program(program: Program, sizes: Sizes) -> Iterator[Action]:
    """Yield a program's actions: its instructions."""
    for instruction in program.instructions:
        match instruction:
            case Start(transfers):
                yield "start", [_post(program, t, sizes.block) for t in transfers]
            case Wait(transfers):
                yield "wait", transfers
            case Launch(work):
                yield "work", sizes.work(program.works[work].operation), work
            case Sync(work):
                yield "sync", work


def _post(program: Program, number: int, block: float) -> Post:
    transfer = program.transfers[number]
    return transfer.sends, transfer.peer, tag_of(transfer, program.lanes), len(transfer.ref) * block, number


def of_messages(messages: Sequence[tuple[int, int, float]], ranks: int) -> list[Iterator[Action]]:
    """Return the actions of all ranks that start these messages at once and wait for them.

    Args:
        messages: (source, target, bytes) of each.
        ranks: number of ranks.
    """
    posts: list[list[Post]] = [[] for _ in range(ranks)]
    for tag, (source, target, nbytes) in enumerate(messages):
        for rank, sends, peer in ((source, True, target), (target, False, source)):
            posts[rank].append((sends, peer, tag, nbytes, len(posts[rank])))
    return [iter([("exchange", mine)] if mine else []) for mine in posts]
