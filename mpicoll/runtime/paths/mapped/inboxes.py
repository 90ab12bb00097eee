"""Peer-mapped memory of a communicator: inboxes that every rank of the node can write.

Each rank allocates one piece of device memory once and maps all others'; the handles travel in
MPI messages.  Whether that works is tried out beforehand, on all ranks together, with calls
that fail with an error code where it does not: containers, MIG, one visible device a rank.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import cupy
from mpi4py import MPI

from mpicoll.runtime.cuda.streams import is_open, new_stream
from mpicoll.runtime.cuda.work import ANY_WAY
from mpicoll.runtime.mpi.host import this_host
from mpicoll.runtime.paths.mapped import nvlink
from mpicoll.runtime.paths.mapped.enqueued import HandoverEvents, await_event
from mpicoll.runtime.paths.mapped.inbox_layout import PLACES, InboxLayout
from mpicoll.runtime.paths.mapped.order import Order
from mpicoll.runtime.paths.mapped.source import PART
from mpicoll.runtime.progress.exchange import Routine, exchanged, met
from mpicoll.settings import format_bytes

_runtime = cupy.cuda.runtime

T = TypeVar("T")


class Peers:
    """One rank's mapping of the pieces of all ranks, or of those of its host.

    On rank 1 of 2, pieces[1] is the address of its own memory, and pieces[0] that at which rank 0's is mapped.

    Attributes:
        device: the device whose memory and kernels these are.
        layout: of every piece.
        pieces: address of each rank's piece, as this rank sees it.
        host: address of the words that kernels watch and write, in host memory.
        order: keeps kernels in the order of the calls.
        side: the stream of calls that do not block.
        hand: the events that order it with the callers' streams.
        late_word: the rank for which a kernel has waited in vain, plus one; 0 while there was none.
        limit: seconds that kernels waited at most when one was bound last, 0 for no limit.
        rank: this rank's place among those whose pieces these are.
        ranks: of the communicator to which these belong.
        larger: the mapping for calls with more tiles than this one has slots; in words why there is none, None before.
        kernels: those that were made for this mapping, by all on which they depend.
        functions: the same, compiled, whatever the size of the call.
        linked: all GPUs are linked by NVLink, so that lines are never torn.
    """

    def __init__(
        self,
        device: int,
        layout: InboxLayout,
        pieces: list[int],
        rank: int,
        linked: bool,
        first: Peers | None = None,
        ranks: Sequence[int] = (),
    ) -> None:
        """Hold what is mapped.

        Args:
            device: see above.
            layout: see above.
            pieces: see above.
            rank: see above.
            linked: see above.
            first: the mapping of the same communicator with which this one shares streams and order, if there is one.
            ranks: see above; all of them where none is given.
        """
        self.larger: Peers | str | None = None
        self.device, self.layout, self.pieces, self.linked = device, layout, pieces, linked
        self.rank, self.ranks = rank, ranks or range(layout.size)
        self._words = cupy.cuda.alloc_pinned_memory(64)
        self.host = int(self._words.ptr)
        self._view = memoryview(self._words)[:64].cast("B")
        self._view[:64] = bytes(64)
        self.late_word = self._view[4:8].cast("I")
        self.limit = 0.0
        self.kernels: dict[Any, Any] = {}
        self.functions: dict[Any, Any] = first.functions if first else {}
        self.order: Order = first.order if first else Order()
        self.side: Any = first.side if first else new_stream(device)
        self.hand: HandoverEvents = first.hand if first else HandoverEvents(self.side.ptr)

    def abort(self) -> None:
        """Make kernels that wait for a peer leave."""
        if isinstance(self.larger, Peers):
            self.larger.abort()
        self._view[:4] = struct.pack("=I", 1)

    def synchronize(self) -> None:
        """Wait on the host for the kernels of all calls: the last one's stream has waited for those before."""
        stream = self.order.stream
        if stream is None or not is_open(stream):
            return
        with cupy.cuda.Device(self.device):
            end = cupy.cuda.Event(disable_timing=True)
            _runtime.eventRecord(end.ptr, stream)
            await_event(end)
        self.hand.look()

    def late(self) -> int | None:
        """Return the rank for which a kernel has waited in vain, None if there was none."""
        word = self.late_word[0]
        return self.ranks[word - 1] if word else None

    def close(self, meet: Callable[[], object]) -> None:
        """Unmap and free; collective, for memory that a peer has mapped must not be freed.

        Args:
            meet: waits for all ranks; what it raises leaves the rest mapped.
        """
        if isinstance(self.larger, Peers):
            self.larger.close(meet)
        with cupy.cuda.Device(self.device):
            _runtime.deviceSynchronize()
            self.hand.look()
            meet()
            for rank, piece in enumerate(self.pieces):
                if rank != self.rank:
                    _runtime.ipcCloseMemHandle(piece)
            meet()
            _runtime.free(self.pieces[self.rank])


def connect(
    comm: MPI.Intracomm,
    device: int,
    nbytes: int,
    shared: bool,
    first: Peers | None = None,
    groups: Sequence[Sequence[int]] = (),
) -> Routine[Peers | str]:
    """Map the memory of all ranks, or of those of each group among themselves; a routine of all ranks.

    Args:
        comm: private communicator.
        device: this rank's device.
        nbytes: bytes of each rank's piece.
        shared: also where ranks share a GPU, which is slow.
        first: the communicator's mapping, beside which this one comes, if there is one.
        groups: ranks of each group; all of them are one where none is given.

    Returns:
        The mapping, or in words why there is none: the same on all ranks.
    """
    groups = groups or [range(comm.size)]
    group = next(ranks for ranks in groups if comm.rank in ranks)
    layout, place = InboxLayout(len(group), nbytes), group.index(comm.rank)
    found = yield from exchanged(comm, (this_host(), nvlink.identity(device)))
    refusals = [_refusal([found[r] for r in ranks], InboxLayout(len(ranks), nbytes), shared) for ranks in groups]
    if any(refusals):
        return next(filter(None, refusals))
    linked = yield from exchanged(comm, all(nvlink.linked(device, found[r][1]) for r in group))
    made: list[int] = []
    done, why = yield from _together(comm, device, lambda: _allocate(nbytes, made))
    if done is None:  # what another rank has no memory for
        _free(device, made)
        return why
    (piece,) = made
    every = yield from exchanged(comm, _on(device, lambda: _handle(piece)))
    handles, opened = [every[r] for r in group], dict[int, int]()
    done, why = yield from _together(comm, device, lambda: _open(handles, place, opened))
    pieces = [opened.get(peer, piece) for peer in range(len(group))]
    for act in (_write_words, _read_words):  # apart, so that all have written before one reads
        if done is not None:
            done, why = yield from _together(comm, device, partial(act, pieces, place, layout))
    if done is None:
        _on(device, lambda: [_runtime.ipcCloseMemHandle(address) for address in opened.values()])
        yield from met(comm)
        _free(device, made)
        return why
    all_linked = all(linked)  # of all groups, so that ranks decide alike
    return _on(device, lambda: Peers(device, layout, pieces, place, all_linked, first, group))


def _on(device: int, act: Callable[[], T]) -> T:
    """Return an act's result, done on a device: a routine must not leave a device current while it waits."""
    with cupy.cuda.Device(device):
        return act()


def _free(device: int, addresses: list[int]) -> None:
    _on(device, lambda: [_runtime.free(address) for address in addresses])


def _refusal(found: list[tuple[str, tuple[str, str]]], layout: InboxLayout, shared: bool) -> str:
    """Return why these ranks cannot map each other's memory, "" if it is worth a try."""
    if len({host for host, _ in found}) > 1:
        return "ranks are on several hosts"
    if len({gpu for _, gpu in found}) < len(found) and not shared:
        return "ranks share a GPU (mapped_shared allows it)"
    if layout.inbox_bytes("lines") < PART * PLACES:
        return f"mapped_bytes={format_bytes(layout.nbytes)} is too little for {layout.size} ranks"
    return ""


def _together(comm: MPI.Intracomm, device: int, act: Callable[[], T]) -> Routine[tuple[T | None, str]]:
    """Do something on all ranks; if it raises on one, no rank has it."""
    result, why = None, ""
    try:
        result = _on(device, act)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
    troubles = yield from exchanged(comm, why)
    first = next((f"rank {rank}: {trouble}" for rank, trouble in enumerate(troubles) if trouble), "")
    return (None if first else result), first


@contextmanager
def _aside() -> Iterator[int]:
    """Make a new stream current and give its address; what is on it is complete at the end.

    Nothing else is awaited: a kernel of another communicator may wait for a rank that waits for this one.
    """
    with cupy.cuda.Stream(non_blocking=True) as stream:
        yield stream.ptr
        stream.synchronize()


def _allocate(nbytes: int, made: list[int]) -> bool:
    made.append(int(_runtime.malloc(nbytes)))
    with _aside() as stream:
        _runtime.memsetAsync(made[0], 0, nbytes, stream)
    return True


def _handle(piece: int) -> bytes | str:
    try:
        return bytes(_runtime.ipcGetMemHandle(piece))
    except _runtime.CUDARuntimeError as error:
        return str(error)


def _open(handles: list[bytes | str], rank: int, opened: dict[int, int]) -> bool:
    for peer, handle in enumerate(handles):
        if isinstance(handle, str):
            raise OSError(f"memory of rank {peer} cannot be exported: {handle}")
        if peer != rank:
            opened[peer] = int(_runtime.ipcOpenMemHandle(handle))
    return True


def _write_words(pieces: list[int], rank: int, layout: InboxLayout) -> bool:
    """Write a word into every peer's inbox."""
    with _aside() as stream:
        word = cupy.full(1, rank + 1, "u4")
        for peer, piece in enumerate(pieces):
            if peer != rank:
                _runtime.memcpyAsync(piece + layout.lines + 4 * rank, word.data.ptr, 4, ANY_WAY, stream)
    return True


def _read_words(pieces: list[int], rank: int, layout: InboxLayout) -> bool:
    """Look for the peers' words in the own inbox, and wipe them out."""
    with _aside() as stream:
        found = cupy.zeros(layout.size, "u4")
        _runtime.memcpyAsync(found.data.ptr, pieces[rank] + layout.lines, 4 * layout.size, ANY_WAY, stream)
        said = [int(n) for n in cupy.asnumpy(found)]
        _runtime.memsetAsync(pieces[rank] + layout.lines, 0, 4 * layout.size, stream)
    if any(n != peer + 1 for peer, n in enumerate(said) if peer != rank):
        raise OSError(f"words from peers did not arrive: {said}")
    return True
