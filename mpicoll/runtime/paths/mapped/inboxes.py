"""Peer-mapped memory of a communicator: inboxes that every rank of the node can write.

Each rank allocates one piece of device memory once and maps all others'; the handles travel in
MPI messages.  Whether that works is tried out beforehand, on all ranks together, with calls
that fail with an error code where it does not: containers, MIG, one visible device a rank.

A piece holds, one after the other:

    control   number of calls so far, and what a kernel's blocks tell each other
    tokens    for each rank the number of the last call that it has started
    credits   for each rank and slot the last wave that it has read, of those that somebody waits for
    flags     for each rank, place and slot the last wave that has come, in the protocol `slices`
    lines     [parity of the call][parity of the wave][source] inboxes of the protocol `lines`
    slices    the same of the protocol `slices`, whose data must never be taken for the others' flags
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import cupy
from mpi4py import MPI

from mpicoll.errors import UnsupportedError
from mpicoll.runtime.context.scratch import apart
from mpicoll.runtime.cuda.streams import is_captured
from mpicoll.runtime.cuda.work import ANY_WAY
from mpicoll.runtime.paths.mapped import nvlink
from mpicoll.runtime.paths.mapped.source import PART, SLOTS
from mpicoll.runtime.progress.exchange import Routine, exchanged, met
from mpicoll.settings import format_bytes

_runtime = cupy.cuda.runtime

T = TypeVar("T")

#: bytes of the control block, and of a token
CONTROL, TOKEN = 256, 4
#: bytes of a credit or flag
MARK = 8
#: most cells from one rank to another in the protocol `slices`
PLACES = 32


@dataclass(frozen=True)
class Layout:
    """Where things are in a piece of nbytes bytes, one of `size`."""

    size: int
    nbytes: int

    @property
    def tokens(self) -> int:
        """Where the tokens start."""
        return CONTROL

    @property
    def credits(self) -> int:
        """Where the credits start."""
        return apart(CONTROL + TOKEN * self.size)

    @property
    def flags(self) -> int:
        """Where the flags start."""
        return apart(self.credits + MARK * SLOTS * self.size)

    @property
    def lines(self) -> int:
        """Where the inboxes of the protocol `lines` start."""
        return apart(self.flags + MARK * SLOTS * PLACES * self.size)

    @property
    def slices(self) -> int:
        """Where the inboxes of the protocol `slices` start."""
        return self.lines + 4 * self.size * self.inbox_bytes("lines")

    def inbox_bytes(self, protocol: str) -> int:
        """Return the bytes of an inbox for one source, parity and wave: a quarter of all for `lines`."""
        quarter = max(self.nbytes - self.lines, 0) // 4 // (4 * self.size) // PART * PART
        return quarter if protocol == "lines" else 3 * quarter


class Peers:
    """One rank's mapping of all ranks' pieces.

    Attributes:
        device: the device whose memory and kernels these are.
        layout: of every piece.
        pieces: address of each rank's piece, as this rank sees it.
        host: address of the words that kernels watch and write, in host memory.
        order: keeps kernels in the order of the calls.
        side: the stream of calls that do not block.
        linked: all GPUs are linked by NVLink, so that lines are never torn.
    """

    def __init__(self, device: int, layout: Layout, pieces: list[int], rank: int, linked: bool) -> None:
        self.device, self.layout, self.pieces, self.rank, self.linked = device, layout, pieces, rank, linked
        self._words = cupy.cuda.alloc_pinned_memory(64)
        self.host = int(self._words.ptr)
        self._view = memoryview(self._words)[:64].cast("B")
        self._view[:64] = bytes(64)
        self.order = Order()
        with cupy.cuda.Device(device):
            self.side = cupy.cuda.Stream(non_blocking=True)

    def abort(self) -> None:
        """Make kernels that wait for a peer leave."""
        self._view[:4] = struct.pack("=I", 1)

    def late(self) -> int | None:
        """Return the rank for which a kernel has waited in vain, None if there was none."""
        (word,) = struct.unpack_from("=I", self._view, 4)
        return word - 1 if word else None

    def close(self, meet: Callable[[], object]) -> None:
        """Unmap and free; collective, for memory that a peer has mapped must not be freed.

        Args:
            meet: waits for all ranks; what it raises leaves the rest mapped.
        """
        with cupy.cuda.Device(self.device):
            _runtime.deviceSynchronize()
            meet()
            for rank, piece in enumerate(self.pieces):
                if rank != self.rank:
                    _runtime.ipcCloseMemHandle(piece)
            meet()
            _runtime.free(self.pieces[self.rank])


class Order:
    """Keeps the kernels of a communicator in the order of the calls, on whatever streams they are.

    Attributes:
        stream: address of the stream of the last call.
    """

    def __init__(self) -> None:
        self.event = cupy.cuda.Event(disable_timing=True)
        self.stream: int | None = None
        self.owner: object = None

    def switch(self, stream: int, owner: object) -> None:
        """Let a stream wait for the last call, which was on another one; `owner` keeps the stream alive.

        What is captured runs later, in an order that its owner sees to.

        Raises:
            UnsupportedError: the last call was on a stream that is being captured now; what waits for it is, too.
        """
        if is_captured(stream):
            return
        if self.stream is not None:
            if is_captured(self.stream):
                raise UnsupportedError(
                    "the communicator's last call was on a stream that is being captured into a CUDA graph now, "
                    "so that one on another stream cannot wait for it: make it before or after the capture"
                )
            _runtime.eventRecord(self.event.ptr, self.stream)
            _runtime.streamWaitEvent(stream, self.event.ptr)
        self.stream, self.owner = stream, owner


def connect(comm: MPI.Intracomm, device: int, nbytes: int, shared: bool) -> Routine[Peers | str]:
    """Map the memory of all ranks; a routine of all of them.

    Args:
        comm: private communicator.
        device: this rank's device.
        nbytes: bytes of each rank's piece.
        shared: also where ranks share a GPU, which is slow.

    Returns:
        The mapping, or in words why there is none: the same on all ranks.
    """
    layout = Layout(comm.size, nbytes)
    found = yield from exchanged(comm, (_host(), nvlink.identity(device)))
    why = _refusal(found, layout, shared)
    if why:
        return why
    all_linked = yield from exchanged(comm, all(nvlink.linked(device, gpu) for _, gpu in found))
    made: list[int] = []
    done, why = yield from _together(comm, device, lambda: _allocate(nbytes, made))
    if done is None:  # what another rank has no memory for
        _free(device, made)
        return why
    (piece,) = made
    handles = yield from exchanged(comm, _on(device, lambda: _handle(piece)))
    opened: dict[int, int] = {}
    done, why = yield from _together(comm, device, lambda: _open(handles, comm.rank, opened))
    pieces = [opened.get(rank, piece) for rank in range(comm.size)]
    for act in (_write_words, _read_words):  # apart, so that all have written before one reads
        if done is not None:
            done, why = yield from _together(comm, device, partial(act, pieces, comm.rank, layout))
    if done is None:
        _on(device, lambda: [_runtime.ipcCloseMemHandle(address) for address in opened.values()])
        yield from met(comm)
        _free(device, made)
        return why
    return Peers(device, layout, pieces, comm.rank, all(all_linked))


def _on(device: int, act: Callable[[], T]) -> T:
    """Return what an act returns on a device: a routine must not leave a device current while it waits."""
    with cupy.cuda.Device(device):
        return act()


def _free(device: int, addresses: list[int]) -> None:
    _on(device, lambda: [_runtime.free(address) for address in addresses])


def _host() -> str:
    """Return what tells hosts apart."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return f"{MPI.Get_processor_name()} {boot.read_text(encoding='ascii').strip() if boot.exists() else ''}"


def _refusal(found: list[tuple[str, tuple[str, str]]], layout: Layout, shared: bool) -> str:
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


def _allocate(nbytes: int, made: list[int]) -> bool:
    made.append(int(_runtime.malloc(nbytes)))
    _runtime.memset(made[0], 0, nbytes)
    _runtime.deviceSynchronize()
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


def _write_words(pieces: list[int], rank: int, layout: Layout) -> bool:
    """Write a word into every peer's inbox."""
    word = cupy.full(1, rank + 1, "u4")
    for peer, piece in enumerate(pieces):
        if peer != rank:
            _runtime.memcpy(piece + layout.lines + 4 * rank, word.data.ptr, 4, ANY_WAY)
    _runtime.deviceSynchronize()
    return True


def _read_words(pieces: list[int], rank: int, layout: Layout) -> bool:
    """Look for the peers' words in the own inbox, and wipe them out."""
    found = cupy.zeros(layout.size, "u4")
    _runtime.memcpy(found.data.ptr, pieces[rank] + layout.lines, 4 * layout.size, ANY_WAY)
    said = [int(n) for n in cupy.asnumpy(found)]
    _runtime.memset(pieces[rank] + layout.lines, 0, 4 * layout.size)
    _runtime.deviceSynchronize()
    if any(n != peer + 1 for peer, n in enumerate(said) if peer != rank):
        raise OSError(f"words from peers did not arrive: {said}")
    return True
