"""Channels: the messages of a group as one kernel over rings in the peers' memory (see `channels.cu`)."""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mpicoll.errors import UnsupportedError
from mpicoll.runtime.paths.mapped.source import BLOCKS_PER_SM, LINES, SLICES, Protocol, cuda_text
from mpicoll.runtime.program.align import aligned

#: bytes of a ring
RING = 1 << 20
#: most messages of a rank in a kernel, by the kernels that are compiled: its argument has 4 KiB at most
CAPACITIES = (8, 32, 80)
#: threads of a block, and blocks at most
THREADS, BLOCKS = 512, 64
_CONTROL, _WORD = 256, 8


class Transfer(NamedTuple):
    """A message to or from a peer.

    Attributes:
        sends: this rank sends it.
        peer: the other rank.
        address: of the array.
        nbytes: of the message.
    """

    sends: bool
    peer: int
    address: int
    nbytes: int


@dataclass(frozen=True)
class ChannelLayout:
    """The addresses of everything in a piece of peer-mapped memory, relative to its start.

    On 2 ranks with 2,048 slots: tiles sent to each rank are counted from 256 on, those received from 272 on; then
    come the credits (for each peer and slot), flags (the same) and rings.
    """

    size: int
    slots: int

    @property
    def credits(self) -> int:
        """Start of the credits."""
        return aligned(_CONTROL + 2 * _WORD * self.size)

    @property
    def flags(self) -> int:
        """Start of the flags."""
        return aligned(self.credits + _WORD * self.slots * self.size)

    @property
    def rings(self) -> int:
        """Start of the rings."""
        return aligned(self.flags + _WORD * self.slots * self.size)

    @property
    def nbytes(self) -> int:
        """Bytes of a piece."""
        return self.rings + RING * self.size

    def out(self, pieces: Sequence[int], rank: int, peer: int) -> tuple[int, ...]:
        """Return the addresses of the way to a peer: ring, flags, credits, count.

        Args:
            pieces: address of each rank's piece.
            rank: this rank.
            peer: that receives.
        """
        theirs, ours, at = pieces[peer], pieces[rank], _WORD * self.slots
        return (
            theirs + self.rings + RING * rank,
            theirs + self.flags + at * rank,
            ours + self.credits + at * peer,
            ours + _CONTROL + _WORD * peer,
        )

    def into(self, pieces: Sequence[int], rank: int, peer: int) -> tuple[int, ...]:
        """Return the addresses of the way from a peer; arguments as in `out`."""
        theirs, ours, at = pieces[peer], pieces[rank], _WORD * self.slots
        return (
            ours + self.rings + RING * peer,
            ours + self.flags + at * peer,
            theirs + self.credits + at * rank,
            ours + _CONTROL + _WORD * (self.size + peer),
        )


def protocol_of(linked: bool) -> Protocol:
    """Return the protocol: lines are never torn where all GPUs are linked by NVLink."""
    return LINES if linked else SLICES


def layout_of(size: int, protocol: Protocol) -> ChannelLayout:
    """Return the layout of a piece, in which a ring has as many slots as it has room for tiles."""
    return ChannelLayout(size, RING // protocol.place)


def channel_source(protocol: Protocol, size: int, capacity: int) -> str:
    """Return the source of the kernel `channels`.

    Args:
        protocol: how tiles travel.
        size: number of ranks.
        capacity: messages at most.
    """
    numbers = {
        "LINES": int(protocol.name == "lines"),
        "PARTS": protocol.parts,
        "RANKS": size,
        "SLOTS": RING // protocol.place,
        "TRANSFERS": capacity,
        "THREADS": THREADS,
        "BLOCKS_PER_SM": BLOCKS_PER_SM,
    }
    return "\n".join(
        [*(f"#define {name} {value}" for name, value in numbers.items()), cuda_text("common"), cuda_text("channels")]
    )


def capacity_for(messages: int) -> int:
    """Return the messages that the kernel for so many has room for.

    Raises:
        UnsupportedError: there are too many.
    """
    found = next((capacity for capacity in CAPACITIES if messages <= capacity), None)
    if found is None:
        raise UnsupportedError(
            f"a group has {messages} messages of device arrays, at most {CAPACITIES[-1]} can be one kernel"
        )
    return found


def argument(
    transfers: Sequence[Transfer],
    layout: ChannelLayout,
    pieces: Sequence[int],
    rank: int,
    host: int,
    protocol: Protocol,
    limit: float,
) -> ctypes.Array[ctypes.c_char]:
    """Return the kernel's argument.

    Args:
        transfers: the messages, those of a channel in the order on which both ends agree.
        layout: of the pieces.
        pieces: address of each rank's piece.
        rank: this rank.
        host: address of the words in host memory.
        protocol: how tiles travel.
        limit: seconds that the kernel waits at most, 0 for no limit.
    """
    ways = [layout.out(pieces, rank, peer) for peer in range(layout.size)]
    ways += [layout.into(pieces, rank, peer) for peer in range(layout.size)]
    head = struct.pack("=4Q", pieces[rank], host, round(limit * 1e9), len(transfers))
    head += b"".join(struct.pack("=4Q", *way) for way in ways)
    had: dict[tuple[bool, int], int] = {}
    rows = []
    for sends, peer, address, nbytes in transfers:
        before = had.get((sends, peer), 0)
        rows.append(struct.pack("=QqQ2I", address, nbytes, before, peer, sends))
        had[sends, peer] = before + tiles_of(nbytes, protocol)
    room = capacity_for(len(transfers)) - len(transfers)
    return ctypes.create_string_buffer(head + b"".join(rows) + bytes(32 * room))


def tiles_of(nbytes: int, protocol: Protocol) -> int:
    """Return the tiles of a message."""
    return -(-nbytes // protocol.tile)


def grid_for(transfers: Sequence[Transfer], protocol: Protocol) -> tuple[int, int]:
    """Return (blocks, threads of a block): a warp for every tile, if there are so many, and one for every message."""
    most = max(tiles_of(one.nbytes, protocol) for one in transfers)
    warps = len(transfers) * min(max(most, 1), RING // protocol.place)
    blocks = min(math.ceil(warps / 4), BLOCKS)
    return blocks, min(THREADS, 32 * math.ceil(warps / blocks))
