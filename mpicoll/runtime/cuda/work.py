"""Reductions and copies in device memory, enqueued on one stream with everything packed beforehand."""

from __future__ import annotations

import ctypes
from typing import Any

import cupy
import numpy as np

from mpicoll.runtime.arguments.operators import Operator
from mpicoll.runtime.cuda import kernels
from mpicoll.runtime.cuda.launch import launcher
from mpicoll.runtime.cuda.streams import on_stream
from mpicoll.runtime.host.work import apply
from mpicoll.runtime.program.local_work import Action, Poll, Run

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

    def reduce(self, op: Operator, dtype: np.dtype, target: Run, sources: list[Run]) -> Action:
        """Return an action that launches one kernel; arguments as in `LocalWork.reduce`."""
        if op.function is not None and not kernels.serves(op, dtype):
            return self._apply(op.function, dtype, target, sources)
        function, module = kernels.compiled(kernels.fold_source(op, dtype, len(sources)), "fold", self.device)
        count = target[1] // dtype.itemsize
        head, packs = _vector_part([target[0], *(s[0] for s in sources)], count, dtype.itemsize)
        addresses = (ctypes.c_uint64 * (len(sources) + 1))(target[0], *(s[0] for s in sources))
        numbers = (ctypes.c_int64 * 3)(count, head, packs)
        packed = ctypes.create_string_buffer(bytes(addresses) + bytes(numbers))
        return self._kernel(function, module, packed, max(packs, count - packs * kernels.width(dtype.itemsize)))

    def _apply(self, function: Any, dtype: np.dtype, target: Run, sources: list[Run]) -> Action:
        """Return an action that combines arrays with a user's function; the rest as in `LocalWork.reduce`."""
        into, *operands = (view(run, dtype, self.device) for run in (target, *sources))

        def call() -> None:
            with on_stream(self.device, self):
                apply(function, into, operands)

        return call

    @property
    def ptr(self) -> int:
        """Address of the stream, as CuPy's streams have it."""
        return self.stream

    def divide(self, dtype: np.dtype, target: Run, divisor: int) -> Action:
        """Return an action that launches a division in place."""
        function, module = kernels.compiled(kernels.divide_source(dtype), "divide", self.device)
        count = target[1] // dtype.itemsize
        packed = ctypes.create_string_buffer(
            bytes((ctypes.c_int64 * 2)(target[0], count)) + bytes(ctypes.c_double(divisor))
        )
        return self._kernel(function, module, packed, count)

    def copy(self, target: Run, source: Run) -> Action:
        """Return an action that enqueues a copy of bytes."""
        to, origin, nbytes, stream = target[0], source[0], target[1], self.stream
        copy = _runtime.memcpyAsync
        return lambda: copy(to, origin, nbytes, ANY_WAY, stream)

    def launched(self, work: int) -> Action:
        """Return an action that marks the point after a work, for sync."""
        event = self.events[work] = cupy.cuda.Event(disable_timing=True)
        record, pointer, stream = _runtime.eventRecord, event.ptr, self.stream
        return lambda: record(pointer, stream)

    def sync(self, work: int, last: bool) -> Action:
        """Return an action that waits until a work, or everything so far, is complete."""
        if last:
            wait, stream = _runtime.streamSynchronize, self.stream
            return lambda: wait(stream)
        event = self.events[work]
        return lambda: _runtime.eventSynchronize(event.ptr)

    def poll(self, work: int, last: bool) -> Poll:
        """Return an action that tells whether sync would return at once."""
        if last:
            stream = self.stream
            return lambda: _runtime.streamQuery(stream) == 0
        event = self.events[work]
        return lambda: _runtime.eventQuery(event.ptr) == 0

    def _kernel(self, function: int, module: Any, packed: Any, items: int) -> Action:
        """Return an action that launches a function whose one argument is a packed structure.

        Args:
            function: address of the kernel.
            module: keeps it alive.
            packed: its argument, a ctypes buffer.
            items: elements, or packs of 16 bytes, to be worked on.
        """
        blocks = max(1, min(-(-items // kernels.THREADS), kernels.MOST_BLOCKS))
        return launcher(function, packed, (blocks, kernels.THREADS), self.stream, self.device, module)


def _vector_part(addresses: list[int], count: int, itemsize: int) -> tuple[int, int]:
    """Return (elements before the first 16-byte boundary, packs of 16 bytes after it)."""
    shift = addresses[0] % 16
    if any(a % 16 != shift for a in addresses) or (16 - shift) % itemsize:
        return count, 0
    head = min((16 - shift) % 16 // itemsize, count)
    return head, (count - head) // kernels.width(itemsize)
