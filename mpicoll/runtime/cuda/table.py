"""Tables in device memory, which kernels read: what does not fit into a kernel's argument."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from mpicoll.runtime.arguments.arrays import empty_on, pointer_of
from mpicoll.runtime.cuda.streams import Pointer, is_open, on_stream
from mpicoll.runtime.cuda.work import ANY_WAY

_runtime = cupy.cuda.runtime
#: (end of the last upload, pinned memory) of tables that are gone: CuPy would give that memory to others at once
_leaving: list[tuple[Any, Any]] = []


class DeviceTable:
    """Bytes in device memory, of which the first ones can be written again.

    What writes and reads them must follow each other in stream order.  The table must live until the last of that is
    complete.

    Attributes:
        address: where they are.
    """

    def __init__(self, device: int, content: bytes, stream: int) -> None:
        """Upload the bytes.

        Args:
            device: number of the device.
            content: the bytes.
            stream: address of the stream.
        """
        nbytes = max(len(content), 1)
        if is_open(stream):  # no question is asked in a capture
            _leaving[:] = [one for one in _leaving if not _has_ended(one[0])]
        with on_stream(device, Pointer(stream)):
            self._memory = empty_on(device, nbytes, np.dtype("u1"))
            self._pinned = cupy.cuda.alloc_pinned_memory(nbytes)
            self._uploaded = cupy.cuda.Event(disable_timing=True)
        self.address = pointer_of(self._memory)
        self._view = memoryview(self._pinned)[:nbytes].cast("B")
        self._upload(content, stream)

    def __del__(self) -> None:
        if hasattr(self, "_view"):
            _leaving.append((self._uploaded, self._pinned))

    def write(self, begin: bytes, stream: int) -> None:
        """Replace the first bytes, on a stream that is not captured."""
        _runtime.eventSynchronize(self._uploaded.ptr)  # the last upload has left the pinned memory
        self._upload(begin, stream)

    def _upload(self, begin: bytes, stream: int) -> None:
        self._view[: len(begin)] = begin
        _runtime.memcpyAsync(self.address, int(self._pinned.ptr), len(begin), ANY_WAY, stream)
        _runtime.eventRecord(self._uploaded.ptr, stream)


def _has_ended(event: Any) -> bool:
    try:
        return bool(_runtime.eventQuery(event.ptr) == 0)
    except _runtime.CUDARuntimeError:  # it was captured; so the graph has the memory of a communicator that is gone
        return True
