"""The first group of a communicator: all ranks tell whether they have device arrays, and connect channels for them."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any

from mpicoll.errors import UnsupportedError
from mpicoll.runtime.context.context import Context
from mpicoll.runtime.cuda.streams import CAPTURED, is_captured
from mpicoll.runtime.paths import offer
from mpicoll.runtime.paths.table import serving
from mpicoll.runtime.point_to_point.parcel import is_on_device
from mpicoll.runtime.progress.exchange import Routine, exchanged

#: under which a communicator keeps its channels, or in words why there are none
CHANNELS = "channels"


def is_connected(context: Context) -> bool:
    """Tell whether a communicator has had its first group."""
    return CHANNELS in context.attached


def connect(context: Context, buffers: Iterable[Any]) -> None:
    """Get what a communicator's groups need of all ranks; collective the first time.

    Args:
        context: the communicator's.
        buffers: of the group's calls and messages.

    Raises:
        UnsupportedError: the first group is being captured.
    """
    device = -1
    if any(is_on_device(buffer) for buffer in buffers):
        cuda = import_module("cupy").cuda
        device = int(cuda.runtime.getDevice())
        if is_captured(cuda.get_current_stream().ptr):
            raise UnsupportedError(
                f"{CAPTURED}, and this is the communicator's first group: make one before the capture"
            )
    context.complete(lambda _: _connecting(context, device), "the first group")


def _connecting(context: Context, device: int) -> Routine[None]:
    """Connect channels, if a rank has device arrays and peers' memory can be mapped."""
    devices = yield from exchanged(context.comm, device)
    if max(devices) < 0:
        context.attached[CHANNELS] = "the first group had no device arrays"
        return
    if device < 0:
        import cupy

        device = int(cupy.cuda.runtime.getDevice())
    yield from offer.connecting(context, device)
    for way in serving("device"):
        found = yield from way.channels(context)
        if not (isinstance(found, str) and CHANNELS in context.attached):  # the first path's reason
            context.attached[CHANNELS] = found
