"""The messages of a group: none waits for another, and those between two ranks travel as one.

Between two ranks the messages are in the order of their tags, those of one tag in the order in which they were given.
Both ranks know that order, so they need not tell each other:

    rank 0: Send(a, 1, tag=5), Send(b, 1, tag=2)      one message of b and a, for 2 comes before 5
    rank 1: Recv(y, 0, tag=2), Recv(x, 0, tag=5)      its parts go to y and x
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpicoll.runtime.arguments.arrays import Flat, empty_on, pointer_of
from mpicoll.runtime.arguments.reader import Reader
from mpicoll.runtime.context.context import Context
from mpicoll.runtime.cuda.streams import current_address, on
from mpicoll.runtime.groups.first import CHANNELS
from mpicoll.runtime.groups.known import Known
from mpicoll.runtime.groups.packed import batch_of
from mpicoll.runtime.paths.mapped.channels import Transfer
from mpicoll.runtime.program.local_work import Action, Copy
from mpicoll.schedule.partition import offsets
from mpicoll.settings import settings

#: sends, buffer, peer, tag
GroupedMessage = tuple[bool, Any, int, int]
#: bytes of the messages between two ranks that travel as one at most
MOST = 4 << 20
#: packets that a communicator remembers
MOST_REMEMBERED = 64


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


def read_messages(messages: Iterable[GroupedMessage], context: Context) -> list[Letter]:
    """Return the messages of a group in the order of their tags; refuse what cannot be read."""
    read = []
    for sends, buffer, peer, tag in messages:
        method = "Send" if sends else "Recv"
        if not 0 <= peer < context.size:
            raise ValueError(f"{method}: rank {peer} is out of range for {context.size} ranks")
        flat = Reader("bcast", method, context.rank, context.size).one("buf", buffer, writes=not sends)
        read.append(Letter(sends, peer, tag, flat))
    return sorted(read, key=lambda letter: letter.tag)


def run_messages(messages: list[GroupedMessage], context: Context, comm: Any) -> None:
    """Send and receive the messages of a group.

    Args:
        messages: in the order in which they were given.
        context: the communicator's.
        comm: the communicator.
    """
    known: Known[Action] = context.kept("messages", Known)
    key = (
        current_address(),
        settings.timeout,
        *((sends, id(buffer), peer, tag) for sends, buffer, peer, tag in messages),
    )
    launch = known.find(key, lambda: _buffers(messages))
    if launch is not None:
        launch()
        return
    letters = read_messages(messages, context)
    _act(letter.flat.before for letter in letters)
    _deliver([letter for letter in letters if letter.peer == context.rank])
    away = [letter for letter in letters if letter.peer != context.rank]
    channels = context.attached.get(CHANNELS, "")
    mapped = [] if isinstance(channels, str) else [one for one in away if one.flat.device == channels.device]
    if mapped:
        launch = channels.prepared([Transfer(one.sends, one.peer, one.flat.pointer, one.nbytes) for one in mapped])
        launch()
        if len(mapped) == len(letters) and not any(one.flat.before for one in letters):  # there is nothing else to do
            known.note(key, launch, _buffers(messages), keep=None)
    _exchange([letter for letter in away if letter not in mapped], context, comm)
    _act(letter.flat.after for letter in letters)


def _buffers(messages: list[GroupedMessage]) -> list[Any]:
    return [message[1] for message in messages]


def _exchange(letters: list[Letter], context: Context, comm: Any) -> None:
    """Send and receive messages by MPI; arguments as in `run_messages`."""
    known: dict[Hashable, Packet] = context.kept("packets", dict)
    requests, opened = [], []
    for sends in (False, True):  # what comes has a place before anything is sent
        start = comm.Isend if sends else comm.Irecv
        for peer in dict.fromkeys(letter.peer for letter in letters if letter.sends == sends):
            same = [letter for letter in letters if letter.peer == peer and letter.sends == sends]
            if len(same) == 1 or sum(letter.nbytes for letter in same) > MOST:
                requests += [start(letter.flat.array, peer, letter.tag) for letter in same]
                continue
            packet = _packet(same, known)
            requests.append(start(packet.closed() if sends else packet.array, peer, same[0].tag))
            opened += [] if sends else [packet.open]
    for request in requests:
        request.Wait()
    for act in opened:
        act()


def _act(actions: Iterable[list[Callable[[], None]]]) -> None:
    for each in actions:
        for act in each:
            act()


class Packet:
    """The messages from one rank to another, in one array.

    Attributes:
        array: bytes, on the messages' device.
    """

    def __init__(self, letters: list[Letter], stream: int) -> None:
        """Make the array; `stream` is the address of the current stream."""
        self._stream, device = stream, letters[0].flat.device
        lengths = tuple(letter.nbytes for letter in letters)
        self._starts = offsets(lengths)
        self.array = empty_on(device, sum(lengths), np.dtype("u1"))
        self._batch = batch_of(device, self._copies(letters), stream)

    def _copies(self, letters: list[Letter]) -> list[Copy]:
        """Return the copies to the array, or from it."""
        begin, pairs = pointer_of(self.array), zip(letters, self._starts, strict=True)
        places = [(begin + at, letter.flat.pointer, letter.nbytes) for letter, at in pairs]
        return places if letters[0].sends else [(theirs, ours, nbytes) for ours, theirs, nbytes in places]

    def aim(self, letters: list[Letter]) -> None:
        """Belong to other messages, of as many bytes each."""
        self._batch.aim(self._copies(letters), self._stream)

    def closed(self) -> Any:
        """Return the array, filled from what is sent."""
        self._batch.action(self._stream)()
        return self.array

    def open(self) -> None:
        """Bring what has come to its arrays."""
        self._batch.action(self._stream)()


def _packet(letters: list[Letter], known: dict[Hashable, Packet]) -> Packet:
    """Return the packet for messages of these sizes on the current stream, made now if there is none."""
    devices = {letter.flat.device for letter in letters}
    if len(devices) > 1:
        raise ValueError(f"messages with rank {letters[0].peer} in a group are in different memories")
    (device,) = devices
    with on(device, None) as stream:
        key = letters[0].sends, letters[0].peer, device, stream, tuple(letter.nbytes for letter in letters)
        if key not in known:
            if len(known) >= MOST_REMEMBERED:
                del known[next(iter(known))]
            known[key] = Packet(letters, stream)
        known[key].aim(letters)
    return known[key]


def _deliver(letters: list[Letter]) -> None:
    """Copy the messages of this rank to itself."""
    sent, received = ([letter for letter in letters if letter.sends == sends] for sends in (True, False))
    if [(one.tag, one.nbytes) for one in sent] != [(one.tag, one.nbytes) for one in received]:
        raise ValueError("messages of this rank to itself in a group: what is sent and received differ")
    for ours, theirs in zip(sent, received, strict=True):
        with on(ours.flat.device, None) as stream:
            copy = (theirs.flat.pointer, ours.flat.pointer, ours.nbytes)
            batch_of(ours.flat.device, [copy], stream).action(stream)()
