"""The blocks of all communicators' kernels that are on a device at the same time.

A kernel waits for its peers on the device.  If rank 0 has started the calls of communicators A, B and C, and rank 1
those of C, B and A, the kernels of A and B must leave room for that of C on rank 0, or it never ends on rank 1.  So
each stream has a limit of blocks, below what is left beside the streams that are busy.  With 264 places:

    one stream at work           A: 128 blocks, as many as a kernel ever has
    a second one beside it       A: 128, B: 68
    a third one                  A: 128, B: 68, C: 34
    once three were seen         A: 88, B: 88, C: 44

A stream that has less than its kernel could use asks again at each launch, so that it has all when it is alone.
Slots that have no warp of their own are taken in turn.
"""

from __future__ import annotations

import threading
from functools import cache
from typing import Any

import cupy

from mpicoll.runtime.cuda.streams import is_open
from mpicoll.runtime.paths.mapped.source import BLOCKS, BLOCKS_PER_SM

_runtime = cupy.cuda.runtime
#: cudaDevAttrMultiProcessorCount
_MULTIPROCESSORS = 16


class Residents:
    """The streams of one device on which kernels were launched, and the blocks that each may have.

    Attributes:
        most: blocks of a kernel at most: two such kernels always fit beside each other.
        stream: address of the stream of the last launch.
        blocks: of a kernel on that stream at most.
    """

    def __init__(self, multiprocessors: int) -> None:
        self.places, self.most = multiprocessors * BLOCKS_PER_SM, min(BLOCKS, multiprocessors)
        self.stream: int | None = None
        self.blocks, self._seen, self._alone = self.most, 1, 0
        self._busy: dict[int, tuple[int, Any]] = {}
        self._lock = threading.Lock()

    def switch(self, stream: int, owner: Any) -> int:
        """Return the blocks at most of a kernel that is launched next on a stream; `owner` keeps the stream alive."""
        with self._lock:
            self._switch(stream, owner)
            return self.blocks

    def _switch(self, stream: int, owner: Any) -> None:
        busy = {other: kept for other, kept in self._busy.items() if not _is_idle(other)}
        before, _ = busy.pop(stream, (0, None))
        self._alone = 0 if busy else self._alone + 1
        self._seen = max(len(busy) + 1, self._seen - (self._alone > 1))  # others are forgotten step by step
        left = self.places - sum(blocks for blocks, _ in busy.values())
        self.stream, self.blocks = stream, max(1, min(self.most, left // 2, self.places // self._seen))
        self._busy = busy | {stream: (max(before, self.blocks), owner)}  # what was launched before is still there


def _is_idle(stream: int) -> bool:
    """Tell whether all work on a stream is complete; not of one that is captured, for the question would end that."""
    return is_open(stream) and bool(_runtime.streamQuery(stream) == 0)


@cache
def residents_of(device: int) -> Residents:
    """Return the residents of a device."""
    return Residents(int(_runtime.deviceGetAttribute(_MULTIPROCESSORS, device)))
