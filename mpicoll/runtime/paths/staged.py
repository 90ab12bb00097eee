"""The staged path's own: device arrays travel through pinned host memory (see `around.py`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpicoll.runtime.cuda.streams import Pointer
from mpicoll.runtime.cuda.work import Device, Handover, on_stream


def on_device(function: Callable[[Any, Any], Any], device: int, stream: int) -> Callable[[Any, Any], Any]:
    """Return a user's operator, which is written for device arrays, for arrays on the host."""
    import cupy

    def combine(a: Any, b: Any) -> Any:
        with on_stream(device, Pointer(stream)):
            return cupy.asnumpy(function(cupy.asarray(a), cupy.asarray(b)))

    return combine


class Back(Device):
    """Copies on a stream of its own, for which a call's stream then waits: links work both ways at once.

    Attributes:
        join: makes the call's stream wait.
    """

    def __init__(self, device: int, stream: int, side: int) -> None:
        """Copy on the stream `side`, for a call on `stream`."""
        super().__init__(device, side)
        self.join = Handover(device, stream, side).finish
