"""Reductions and copies in device memory, enqueued on one stream with everything packed beforehand."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import cupy
import numpy as np

from mpicoll.runtime.arguments.operators import Operator
from mpicoll.runtime.cuda import kernels
from mpicoll.runtime.cuda.launch import launcher
from mpicoll.runtime.cuda.streams import Pointer, address_of, is_open
from mpicoll.runtime.host.work import Call, apply
from mpicoll.runtime.program.layout import Run

_runtime = cupy.cuda.runtime
#: cudaMemcpyDefault: the driver sees from the addresses which way to copy
ANY_WAY = 4


def view(run: Run, dtype: np.dtype, device: int) -> Any:
    """Return an array over raw device memory; it does not keep the memory alive."""
    memory = cupy.cuda.UnownedMemory(run[0], run[1], None, device)
    return cupy.ndarray((run[1] // dtype.itemsize,), dtype, cupy.cuda.MemoryPointer(memory, 0))


class Device:
    """Binds local work on device memory to a stream."""

    def __init__(self, device: int, stream: int) -> None:
        """Bind to a device number and a stream's address."""
        self.device, self.stream = device, stream
        self.events: dict[int, Any] = {}

    def reduce(self, op: Operator, dtype: np.dtype, target: Run, sources: list[Run]) -> Call:
        """Return a call that launches one kernel combining the sources, in order, into the target."""
        if op.function is not None and not kernels.serves(op, dtype):
            return self._apply(op.function, dtype, target, sources)
        function, module = kernels.compiled(kernels.fold_source(op, dtype, len(sources)), "fold", self.device)
        count = target[1] // dtype.itemsize
        head, packs = _vector_part([target[0], *(s[0] for s in sources)], count, dtype.itemsize)
        addresses = (ctypes.c_uint64 * (len(sources) + 1))(target[0], *(s[0] for s in sources))
        numbers = (ctypes.c_int64 * 3)(count, head, packs)
        packed = ctypes.create_string_buffer(bytes(addresses) + bytes(numbers))
        return self._kernel(function, module, packed, max(packs, count - packs * kernels.width(dtype.itemsize)))

    def _apply(self, function: Any, dtype: np.dtype, target: Run, sources: list[Run]) -> Call:
        """Return a call that combines arrays with a user's function, on the stream."""
        into, *operands = (view(run, dtype, self.device) for run in (target, *sources))

        def call() -> None:
            with on_stream(self.device, self):
                apply(function, into, operands)

        return call

    @property
    def ptr(self) -> int:
        """Address of the stream, as CuPy's streams have it."""
        return self.stream

    def divide(self, dtype: np.dtype, target: Run, divisor: int) -> Call:
        """Return a call that launches a division in place."""
        function, module = kernels.compiled(kernels.divide_source(dtype), "divide", self.device)
        count = target[1] // dtype.itemsize
        packed = ctypes.create_string_buffer(
            bytes((ctypes.c_int64 * 2)(target[0], count)) + bytes(ctypes.c_double(divisor))
        )
        return self._kernel(function, module, packed, count)

    def copy(self, target: Run, source: Run) -> Call:
        """Return a call that enqueues a copy of bytes."""
        to, origin, nbytes, stream = target[0], source[0], target[1], self.stream
        copy = _runtime.memcpyAsync
        return lambda: copy(to, origin, nbytes, ANY_WAY, stream)

    def launched(self, work: int) -> Call:
        """Return a call that marks the point after a work, for sync."""
        event = self.events[work] = cupy.cuda.Event(disable_timing=True)
        record, pointer, stream = _runtime.eventRecord, event.ptr, self.stream
        return lambda: record(pointer, stream)

    def sync(self, work: int, last: bool) -> Call:
        """Return a call that waits until a work, or everything so far, is complete."""
        if last:
            wait, stream = _runtime.streamSynchronize, self.stream
            return lambda: wait(stream)
        event = self.events[work]
        return lambda: _runtime.eventSynchronize(event.ptr)

    def poll(self, work: int, last: bool) -> Callable[[], bool]:
        """Return a call that tells whether sync would return at once."""
        if last:
            stream = self.stream
            return lambda: _runtime.streamQuery(stream) == 0
        event = self.events[work]
        return lambda: _runtime.eventQuery(event.ptr) == 0

    def _kernel(self, function: int, module: Any, packed: Any, items: int) -> Call:
        """Return a call that launches a function whose one argument is a packed structure."""
        blocks = max(1, min(-(-items // kernels.THREADS), kernels.MOST_BLOCKS))
        return launcher(function, packed, (blocks, kernels.THREADS), self.stream, self.device, module)


def _vector_part(addresses: list[int], count: int, itemsize: int) -> tuple[int, int]:
    """Return how many elements come before the first 16-byte boundary, and how many packs follow."""
    shift = addresses[0] % 16
    if any(a % 16 != shift for a in addresses) or (16 - shift) % itemsize:
        return count, 0
    head = min((16 - shift) % 16 // itemsize, count)
    return head, (count - head) // kernels.width(itemsize)


class Fence:
    """Orders a communicator's calls on one device: scratch is not reused while the last call still needs it."""

    def __init__(self) -> None:
        """Start with no call behind it."""
        self.event = cupy.cuda.Event(disable_timing=True)
        self.stream: int | None = None

    def drain(self, stream: int) -> None:
        """Wait for the last call, if it was on another stream."""
        if self.stream is not None and self.stream != stream:
            _runtime.eventSynchronize(self.event.ptr)

    def enter(self, stream: int) -> None:
        """Wait until what comes before this call on the stream, and the last call, are complete."""
        _runtime.streamSynchronize(stream)
        self.drain(stream)

    def is_open(self, stream: int) -> bool:
        """Tell whether enter would return at once."""
        others = self.stream is None or self.stream == stream or _runtime.eventQuery(self.event.ptr) == 0
        return bool(others and _runtime.streamQuery(stream) == 0)

    def leave(self, stream: int) -> None:
        """Mark the end of a call."""
        _runtime.eventRecord(self.event.ptr, stream)
        self.stream = stream


def _external(pointer: int, keep: object) -> Any:
    """Return CuPy's view of a stream that is not CuPy's, which `keep` keeps alive."""
    if not pointer:
        return cupy.cuda.Stream.null
    if hasattr(cupy.cuda.Stream, "from_external"):
        return cupy.cuda.Stream.from_external(Pointer(pointer, keep))
    return cupy.cuda.ExternalStream(pointer)  # CuPy 13


@contextmanager
def on_stream(device: int, stream: Any) -> Iterator[int]:
    """Make a device and stream current and give the stream's address.

    Args:
        device: device number.
        stream: a CuPy stream, anything with its address in `ptr` or `cuda_stream`, or None
            for CuPy's current stream.
    """
    with cupy.cuda.Device(device):
        if stream is None:
            yield int(cupy.cuda.get_current_stream().ptr)
            return
        pointer = address_of(stream)
        with stream if isinstance(stream, cupy.cuda.Stream) else _external(pointer, stream):
            yield pointer


def on_device(device: int) -> AbstractContextManager[object]:
    """Make a device current within a with block."""
    current: AbstractContextManager[object] = cupy.cuda.Device(device)
    return current


def new_stream(device: int) -> Any:
    """Return a new stream that no other stream waits for by itself."""
    with cupy.cuda.Device(device):
        return cupy.cuda.Stream(non_blocking=True)


class Handover:
    """Orders a call that does not block: behind the caller's stream at its start, before it at its end.

    Attributes:
        ptr: address of the caller's stream.
        side: address of the stream that the call works on, known before it begins.
    """

    def __init__(self, device: int, caller: int, side: int = 0) -> None:
        """Mark the place on the caller's stream behind which the call comes."""
        self.device, self.side = device, side
        self.ptr = caller
        with cupy.cuda.Device(device):
            self.begin = cupy.cuda.Event(disable_timing=True)
            self.end = cupy.cuda.Event(disable_timing=True)
        _runtime.eventRecord(self.begin.ptr, caller)

    def ready(self) -> bool:
        """Tell whether what comes before the call is complete."""
        return bool(_runtime.eventQuery(self.begin.ptr) == 0)

    def finish(self) -> None:
        """Let the caller's stream wait for what the call enqueued; the host, if that stream is captured by now."""
        _runtime.eventRecord(self.end.ptr, self.side)
        if is_open(self.ptr):
            _runtime.streamWaitEvent(self.ptr, self.end.ptr)
        else:
            _runtime.eventSynchronize(self.end.ptr)
