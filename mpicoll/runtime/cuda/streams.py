"""CUDA streams as callers name them, and what the current ones are; importable without CuPy."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from mpicoll.errors import UnsupportedError
from mpicoll.runtime.arguments.operands import is_stream

#: how the refusal of a call that cannot be captured begins
CAPTURED = "the stream is being captured into a CUDA graph"
#: cudaErrorStreamCaptureImplicit
_IMPLICIT = 906

#: CuPy, if it was imported and has no device
_no_device: object = None


class Pointer:
    """A stream's address as other libraries hand it over."""

    def __init__(self, pointer: int, keep: object = None) -> None:
        """Hold the address, and what must live as long."""
        self.ptr, self.keep = pointer, keep

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.ptr


def address_of(stream: Any) -> int:
    """Return a CUDA stream's address: CuPy's, or any object that has it in `ptr` or `cuda_stream`."""
    pointer = getattr(stream, "ptr", None)
    return int(stream.cuda_stream if pointer is None else pointer)


def current_stream(device: int) -> Any:
    """Return CuPy's current stream of a device."""
    return sys.modules["cupy"].cuda.get_current_stream(device)


def current_address() -> int:
    """Return the address of CuPy's current stream, 0 where CuPy is not used."""
    cupy = sys.modules.get("cupy")
    return int(cupy.cuda.get_current_stream().ptr) if cupy is not None else 0


def bus_address(device: int) -> str:
    """Return a GPU's address on its host's bus, the same in every process."""
    return str(sys.modules["cupy"].cuda.runtime.deviceGetPCIBusId(device))


def at(device: int) -> AbstractContextManager[object]:
    """Make a device current within a with block, in less time than `on_device` where it is."""
    cuda = sys.modules["cupy"].cuda
    return nullcontext() if cuda.runtime.getDevice() == device else cuda.Device(device)


def address_on(device: int, stream: Any) -> int:
    """Return the address of a call's stream: as a caller gave it, or CuPy's current one of a device."""
    return address_of(current_stream(device) if stream is None else stream)


def where(stream: Any) -> tuple[Any, ...]:
    """Return a call's device, whether a stream was given, its address, and whether that is being captured.

    Without CuPy, and with what is no stream, which is refused where it is read, the device is None.  The last
    is None where nothing can be enqueued on the stream: calls on host arrays go on.
    """
    global _no_device
    cupy, is_given = sys.modules.get("cupy"), stream is not None
    if cupy is None or cupy is _no_device:
        return None, is_given
    runtime = cupy.cuda.runtime
    try:
        device = runtime.getDevice()
    except runtime.CUDARuntimeError:  # CuPy on a machine without a driver
        _no_device = cupy
        return None, is_given
    try:
        address = address_of(stream if is_given else cupy.cuda.get_current_stream())
    except (AttributeError, TypeError, ValueError):
        return None, is_given
    try:
        return device, is_given, address, is_captured(address)
    except (UnsupportedError, runtime.CUDARuntimeError):
        return device, is_given, address, None


def is_captured(address: int) -> bool:
    """Tell whether what is enqueued on a stream is being captured into a CUDA graph instead.

    Raises:
        UnsupportedError: nothing can be enqueued on it, because of a capture.
    """
    try:
        return bool(sys.modules["cupy"].cuda.runtime.streamIsCapturing(address))
    except RuntimeError as error:
        status = getattr(error, "status", None)
        if status == _IMPLICIT:
            raise UnsupportedError(
                "the default stream cannot be used while a stream that waits for it is being captured into a CUDA "
                "graph: make that stream current, pass stream=, or make it with non_blocking=True"
            ) from None
        if status is None:  # CuPy's own word
            raise UnsupportedError(str(error)) from None
        raise


def is_open(address: int) -> bool:
    """Tell whether what is enqueued on a stream will be done, and not captured."""
    try:
        return not is_captured(address)
    except UnsupportedError:
        return False


def given(stream: Any) -> AbstractContextManager[object]:
    """Make a call's stream current while arrays are read: who exports one orders it with the current stream."""
    cupy = sys.modules.get("cupy")
    if cupy is None or not is_stream(stream):
        return nullcontext()
    return on(cupy.cuda.runtime.getDevice(), stream)


def on(device: int, stream: Any) -> AbstractContextManager[int]:
    """Make a device and stream current and give the stream's address; 0 where there is no device.

    Args:
        device: device number, -1 for none.
        stream: as a caller gave it, None for CuPy's current one.
    """
    return nullcontext(0) if device < 0 else on_stream(device, stream)


@contextmanager
def on_stream(device: int, stream: Any) -> Iterator[int]:
    """Make a device and stream current and give the stream's address.

    Args:
        device: device number.
        stream: a CuPy stream, anything with its address in `ptr` or `cuda_stream`, or None
            for CuPy's current stream.
    """
    import cupy

    with cupy.cuda.Device(device):
        if stream is None:
            yield int(cupy.cuda.get_current_stream().ptr)
            return
        pointer = address_of(stream)
        with stream if isinstance(stream, cupy.cuda.Stream) else _external(pointer, stream):
            yield pointer


def _external(pointer: int, keep: object) -> Any:
    """Return CuPy's view of a stream that is not CuPy's, which `keep` keeps alive."""
    import cupy

    if not pointer:
        return cupy.cuda.Stream.null
    if hasattr(cupy.cuda.Stream, "from_external"):
        return cupy.cuda.Stream.from_external(Pointer(pointer, keep))
    return cupy.cuda.ExternalStream(pointer)  # CuPy 13


def on_device(device: int) -> AbstractContextManager[object]:
    """Make a device current within a with block; nothing for -1."""
    if device < 0:
        return nullcontext()
    import cupy

    current: AbstractContextManager[object] = cupy.cuda.Device(device)
    return current


def new_stream(device: int) -> Any:
    """Return a new stream that no other stream waits for by itself."""
    import cupy

    with cupy.cuda.Device(device):
        return cupy.cuda.Stream(non_blocking=True)


def mark(stream: int) -> Callable[[], bool]:
    """Mark the end of what is on a stream; return what tells whether it is reached."""
    cuda = sys.modules["cupy"].cuda
    event = cuda.Event(disable_timing=True)
    cuda.runtime.eventRecord(event.ptr, stream)
    return lambda: bool(cuda.runtime.eventQuery(event.ptr) == 0)
