"""The order of the kernels of a communicator's calls."""

from __future__ import annotations

import cupy

from mpicoll.errors import UnsupportedError
from mpicoll.runtime.cuda.streams import is_captured

_runtime = cupy.cuda.runtime


class Order:
    """Keeps the kernels of a communicator in the order of the calls, on whatever streams they are.

    After a call on stream 0x10, one on stream 0x20 waits for an event; one on 0x10 waits for nothing.

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
