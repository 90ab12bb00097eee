"""The messages of a group: none waits for another.

between device arrays, through channels      one kernel               found again by the arrays' identity
between arrays on hosts                      persistent requests      the same
other device arrays                          MPI's messages           read each time
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

from mpicoll.errors import UnsupportedError
from mpicoll.runtime.context.context import Context
from mpicoll.runtime.cuda.by_device import work_on
from mpicoll.runtime.cuda.streams import CAPTURED, current_address, is_captured, on
from mpicoll.runtime.groups.first import CHANNELS
from mpicoll.runtime.groups.known import Known, kept
from mpicoll.runtime.groups.letters import GroupedMessage, Letter, Packet, read_letters, travelling
from mpicoll.runtime.groups.on_host import HostExchange
from mpicoll.runtime.paths.mapped.channels import Transfer
from mpicoll.runtime.program.local_work import Action
from mpicoll.settings import settings


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
    exchange = known.find(key, lambda: _buffers(messages))
    if exchange is not None and not getattr(exchange, "failed", False):
        exchange()
        return
    letters = read_letters(messages, context)
    packed = any(letter.flat.before for letter in letters)
    _act(letter.flat.before for letter in letters)
    exchange = _exchange_of(letters, context, comm)
    exchange()
    _act(letter.flat.after for letter in letters)
    if not (packed or isinstance(exchange, _Mixed)):
        known.note(key, exchange, _buffers(messages), keep=None)


def _buffers(messages: list[GroupedMessage]) -> list[Any]:
    return [message[1] for message in messages]


def _act(actions: Iterable[list[Callable[[], None]]]) -> None:
    for each in actions:
        for act in each:
            act()


def _exchange_of(letters: list[Letter], context: Context, comm: Any) -> Action:
    """Return what sends and receives letters; arguments as in `_Mixed`."""
    away = all(letter.peer != context.rank for letter in letters)
    channels = context.attached.get(CHANNELS, "")
    if away and all(letter.flat.device < 0 for letter in letters):
        return HostExchange(letters, comm)
    if away and not isinstance(channels, str) and all(letter.flat.device == channels.device for letter in letters):
        return _through(channels, letters)
    return _Mixed(letters, context, comm)


def _through(channels: Any, letters: list[Letter]) -> Action:
    """Return what sends and receives letters through channels."""
    made: Action = channels.prepared(
        [Transfer(letter.sends, letter.peer, letter.flat.pointer, letter.nbytes) for letter in letters]
    )
    return made


class _Mixed:
    """Letters to several memories, to this rank itself, or of device arrays by MPI; it holds their arrays."""

    def __init__(self, letters: list[Letter], context: Context, comm: Any) -> None:
        """Belong to letters.

        Args:
            letters: in the order on which both ends agree.
            context: the communicator's.
            comm: the communicator.
        """
        self._letters, self._context, self._comm = letters, context, comm

    def __call__(self) -> None:
        """Send and receive.

        Raises:
            UnsupportedError: the stream is being captured, into which only messages through channels can come.
        """
        if any(one.flat.device >= 0 for one in self._letters) and is_captured(current_address()):
            raise UnsupportedError(f"a group of messages: {CAPTURED}, and some are for this rank itself or go by MPI")
        rank, channels = self._context.rank, self._context.attached.get(CHANNELS, "")
        _deliver([letter for letter in self._letters if letter.peer == rank])
        away = [letter for letter in self._letters if letter.peer != rank]
        mapped = [] if isinstance(channels, str) else [one for one in away if one.flat.device >= 0]
        if any(one.flat.device != channels.device for one in mapped):  # its peer's kernel would wait for ever
            raise ValueError(
                f"a message of a group has an array that is not on device {channels.device}, as all others"
            )
        if mapped:
            _through(channels, mapped)()
        self._by_mpi([letter for letter in away if letter not in mapped])

    def _by_mpi(self, letters: list[Letter]) -> None:
        known: dict[Hashable, Packet] = self._context.kept("packets", dict)
        requests, opened = [], []
        for same in travelling(letters):
            first, array = same[0], same[0].flat.array
            if len(same) > 1:
                packet = _packet(same, known)
                array = packet.array
                if first.sends:
                    packet.move()
                else:
                    opened.append(packet.move)
            requests.append((self._comm.Isend if first.sends else self._comm.Irecv)(array, first.peer, first.tag))
        for request in requests:
            request.Wait()
        for act in opened:
            act()


def _packet(letters: list[Letter], known: dict[Hashable, Packet]) -> Packet:
    """Return the packet for messages of these sizes on the current stream, made now if there is none."""
    devices = {letter.flat.device for letter in letters}
    if len(devices) > 1:
        raise ValueError(f"messages with rank {letters[0].peer} in a group are in different memories")
    (device,) = devices
    with on(device, None) as stream:
        key = letters[0].sends, letters[0].peer, device, stream, tuple(letter.nbytes for letter in letters)
        packet = kept(known, key, lambda: Packet(letters, stream))
        packet.aim(letters)
    return packet


def _deliver(letters: list[Letter]) -> None:
    """Copy the messages of this rank to itself."""
    sent, received = ([letter for letter in letters if letter.sends == sends] for sends in (True, False))
    if [(one.tag, one.nbytes) for one in sent] != [(one.tag, one.nbytes) for one in received]:
        raise ValueError("messages of this rank to itself in a group: what is sent and received differ")
    pairs = zip(sent, received, strict=True)
    for ours, theirs in [pair for pair in pairs if pair[0].nbytes]:
        with on(ours.flat.device, None) as stream:
            target, source = ((one.flat.pointer, one.nbytes) for one in (theirs, ours))
            work_on(ours.flat.device, stream).copy(target, source)()
