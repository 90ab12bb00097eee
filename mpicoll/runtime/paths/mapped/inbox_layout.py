"""Places of everything in a rank's piece of peer-mapped memory.

A piece holds, one after the other:

    control   number of calls so far, and what a kernel's blocks tell each other
    tokens    for each rank the number of the last call that it has started
    credits   for each rank and slot the last wave that it has read, of those that somebody waits for
    flags     for each rank, place and slot the last wave that has come, in the protocol `slices`
    lines     [parity of the call][parity of the wave][source] inboxes of the protocol `lines`
    slices    the same of the protocol `slices`, whose data must never be taken for the others' flags
"""

from __future__ import annotations

from dataclasses import dataclass

from mpicoll.runtime.paths.mapped.source import PART, SLOTS
from mpicoll.runtime.program.align import aligned

#: bytes of the control block, and of a token
CONTROL, TOKEN = 256, 4
#: bytes of a credit or flag
MARK = 8
#: most cells from one rank to another in the protocol `slices`
PLACES = 32


@dataclass(frozen=True)
class InboxLayout:
    """The addresses of everything in a piece of nbytes bytes, one of `size`, relative to its start.

    On 4 ranks the control block starts at 0, the tokens at 256, the credits at 512, and the flags at 66,048.
    """

    size: int
    nbytes: int

    @property
    def tokens(self) -> int:
        """Start of the tokens."""
        return CONTROL

    @property
    def credits(self) -> int:
        """Start of the credits."""
        return aligned(CONTROL + TOKEN * self.size)

    @property
    def flags(self) -> int:
        """Start of the flags."""
        return aligned(self.credits + MARK * SLOTS * self.size)

    @property
    def lines(self) -> int:
        """Start of the inboxes of the protocol `lines`."""
        return aligned(self.flags + MARK * SLOTS * PLACES * self.size)

    @property
    def slices(self) -> int:
        """Start of the inboxes of the protocol `slices`."""
        return self.lines + 4 * self.size * self.inbox_bytes("lines")

    def inbox_bytes(self, protocol: str) -> int:
        """Return the bytes of an inbox for one source, parity and wave: a quarter of all for `lines`."""
        quarter = max(self.nbytes - self.lines, 0) // 4 // (4 * self.size) // PART * PART
        return quarter if protocol == "lines" else 3 * quarter


def least_bytes(size: int) -> int:
    """Return the bytes of a piece in which every inbox has room for one tile at each place, on so many ranks."""
    return InboxLayout(size, 0).lines + 4 * 4 * size * PART * PLACES
