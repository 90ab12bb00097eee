"""The messages of a group, read: their order, and those that travel as one.

Between two ranks the messages are in the order of their tags, those of one tag in the order in which they were given.
Both ranks know that order, so they need not tell each other:

    rank 0: Send(a, 1, tag=5), Send(b, 1, tag=2)      one message of b and a, for 2 comes before 5
    rank 1: Recv(y, 0, tag=2), Recv(x, 0, tag=5)      its parts go to y and x
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpicoll.runtime.arguments.arrays import Flat, empty_on, pointer_of
from mpicoll.runtime.arguments.reader import Reader
from mpicoll.runtime.context.context import Context
from mpicoll.runtime.cuda.by_device import batch_of
from mpicoll.runtime.program.local_work import Copy
from mpicoll.schedule.partition import offsets

#: sends, buffer, peer, tag
GroupedMessage = tuple[bool, Any, int, int]
#: bytes of the messages between two ranks that travel as one at most
MOST = 4 << 20


@dataclass(eq=False)
class Letter:
    """A message of a group, read.

    Attributes:
        sends: this rank sends it.
        peer: the other rank.
        tag: of the message.
        flat: its array.
    """

    sends: bool
    peer: int
    tag: int
    flat: Flat

    @property
    def nbytes(self) -> int:
        """Bytes of the message."""
        return int(self.flat.array.nbytes)


def read_letters(messages: Iterable[GroupedMessage], context: Context) -> list[Letter]:
    """Return the messages of a group in the order of their tags; refuse what cannot be read."""
    read = []
    for sends, buffer, peer, tag in messages:
        method = "Send" if sends else "Recv"
        if not 0 <= peer < context.size:
            raise ValueError(f"{method}: rank {peer} is out of range for {context.size} ranks")
        flat = Reader("bcast", method, context.rank, context.size).one("buf", buffer, writes=not sends)
        read.append(Letter(sends, peer, tag, flat))
    return sorted(read, key=lambda letter: letter.tag)


def travelling(letters: list[Letter]) -> list[list[Letter]]:
    """Return the letters that travel as one, each list from or to one peer; those that are received come first."""
    found = []
    for sends in (False, True):
        for peer in dict.fromkeys(letter.peer for letter in letters if letter.sends == sends):
            same = [letter for letter in letters if letter.peer == peer and letter.sends == sends]
            as_one = sum(letter.nbytes for letter in same) <= MOST
            found += [same] if as_one else [[letter] for letter in same]
    return found


class Packet:
    """The messages from one rank to another, in one array.

    Attributes:
        array: bytes, on the messages' device.
        move: fills the array from what is sent, or brings what has come to its arrays; on the stream.
    """

    def __init__(self, letters: list[Letter], stream: int) -> None:
        """Make the array; `stream` is the address of the current stream."""
        self._stream, device = stream, letters[0].flat.device
        lengths = tuple(letter.nbytes for letter in letters)
        self._starts = offsets(lengths)
        self.array = empty_on(device, sum(lengths), np.dtype("u1"))
        self._batch = batch_of(device, self._copies(letters), stream)
        self.move = self._batch.action(stream)

    def _copies(self, letters: list[Letter]) -> list[Copy]:
        """Return the copies to the array, or from it."""
        begin, pairs = pointer_of(self.array), zip(letters, self._starts, strict=True)
        places = [(begin + at, letter.flat.pointer, letter.nbytes) for letter, at in pairs]
        return places if letters[0].sends else [(theirs, ours, nbytes) for ours, theirs, nbytes in places]

    def aim(self, letters: list[Letter]) -> None:
        """Belong to other messages, of as many bytes each."""
        self._batch.aim(self._copies(letters), self._stream)
