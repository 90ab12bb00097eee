"""CUDA streams as callers name them, and what the current ones are; importable without CuPy."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any

#: CuPy, if it was imported and has no device
_no_device: object = None


def address_of(stream: Any) -> int:
    """Return a CUDA stream's address: CuPy's, or any object that has it in `ptr` or `cuda_stream`."""
    pointer = getattr(stream, "ptr", None)
    return int(stream.cuda_stream if pointer is None else pointer)


def where(stream: Any) -> tuple[Any, ...]:
    """Return a call's device, whether a stream was given, its address, and whether that is being captured.

    Without CuPy, and with what is no stream, which is refused where it is read, the device is None.
    """
    global _no_device
    cupy, given = sys.modules.get("cupy"), stream is not None
    if cupy is None or cupy is _no_device:
        return None, given
    runtime = cupy.cuda.runtime
    try:
        device = runtime.getDevice()
        address = address_of(stream if given else cupy.cuda.get_current_stream())
        return device, given, address, is_captured(address)
    except runtime.CUDARuntimeError:  # CuPy on a machine without a driver
        _no_device = cupy
    except (AttributeError, TypeError, ValueError):
        pass
    return None, given


def is_captured(address: int) -> bool:
    """Tell whether what is enqueued on a stream is being captured into a CUDA graph instead."""
    return bool(sys.modules["cupy"].cuda.runtime.streamIsCapturing(address))


def on(device: int, stream: Any) -> AbstractContextManager[int]:
    """Make a device and stream current and give the stream's address; 0 where there is no device.

    Args:
        device: device number, -1 for none.
        stream: as a caller gave it, None for CuPy's current one.
    """
    if device < 0:
        return nullcontext(0)
    from mpicoll.runtime.device import on_stream

    return on_stream(device, stream)
