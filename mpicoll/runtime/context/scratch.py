"""Scratch memory: long-lived, growing, one piece per kind of memory and context."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpicoll.settings import format_bytes

#: smallest piece, so that small calls never make it grow again
SMALLEST = 1 << 20


class Arena:
    """One growing piece of host, pinned or device memory.

    Sizes below 64 MiB are rounded up to a power of two.  `reserve(5_000_000)` takes 8 MiB, `reserve(100)` 1 MiB.
    """

    def __init__(self, kind: str, device: int = -1) -> None:
        """Start empty; kind is "host", "pinned" or "device"."""
        self.kind, self.device = kind, device
        self.memory: Any = None
        self.nbytes = 0
        self.pointer = 0

    def reserve(self, nbytes: int) -> None:
        """Make sure of at least nbytes; the memory may move, and old addresses are void then."""
        if nbytes <= self.nbytes:
            return
        wanted = max(SMALLEST, 1 << (nbytes - 1).bit_length() if nbytes < 1 << 26 else nbytes)
        self._retire()
        self.nbytes = 0
        try:
            self.memory, self.pointer = self._allocate(wanted)
        except MemoryError as error:
            raise MemoryError(
                f"no {format_bytes(wanted)} of {self.kind} memory for scratch; lower MPICOLL_SCRATCH_LIMIT ({error})"
            ) from None
        self.nbytes = wanted

    def _retire(self) -> None:
        """Give the old piece back once nothing on a device uses it any more."""
        if self.memory is not None and self.kind != "host":
            import cupy

            with cupy.cuda.Device(self.device):
                cupy.cuda.runtime.deviceSynchronize()
        self.memory = None

    def _allocate(self, nbytes: int) -> tuple[Any, int]:
        if self.kind == "host":
            array = np.empty(nbytes, "u1")
            return array, int(array.ctypes.data)
        import cupy

        if self.kind == "pinned":
            pinned = cupy.cuda.alloc_pinned_memory(nbytes)
            return pinned, int(pinned.ptr)
        with cupy.cuda.Device(self.device):  # plain cudaMalloc: peers can map it, once
            memory = cupy.cuda.Memory(nbytes)
        return memory, int(memory.ptr)
