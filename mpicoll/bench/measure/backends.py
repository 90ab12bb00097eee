"""Backends: the only place here that knows NumPy from CuPy."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
from mpi4py import MPI

from mpicoll.bench.errors import RequestError, ShortageError, anywhere
from mpicoll.runtime.mpi.environment import has_driver

T = TypeVar("T")


class HostBackend:
    """NumPy's arrays."""

    kind, memory = "numpy", "host"
    device = -1
    xp: Any = np
    stream_pointer = 0

    @property
    def total(self) -> int:
        """Bytes that this machine has."""
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def synchronize(self) -> None:
        """Host arrays are ready when their call returns."""

    def pointer(self, array: Any) -> int:
        """Return an array's address."""
        return int(array.ctypes.data)

    def fetch(self, array: Any, host: Any) -> None:
        """Copy an array to one of NumPy's."""
        np.copyto(host, array)

    def store(self, array: Any, host: Any) -> None:
        """Copy one of NumPy's arrays to an array."""
        np.copyto(array, host)


class DeviceBackend:
    """CuPy's arrays on one device, on its current stream."""

    kind, memory = "cupy", "device"

    def __init__(self, number: int) -> None:
        """Make the device current: from here on, all arrays are made there."""
        import cupy

        cupy.cuda.Device(number).use()
        self.xp: Any = cupy
        self.device = number
        self.stream = cupy.cuda.get_current_stream()

    @property
    def total(self) -> int:
        """Bytes that the device has."""
        return int(self.xp.cuda.runtime.memGetInfo()[1])

    def synchronize(self) -> None:
        """Wait for all work on the stream."""
        self.stream.synchronize()

    @property
    def stream_pointer(self) -> int:
        """Address of the stream."""
        return int(self.stream.ptr)

    def pointer(self, array: Any) -> int:
        """Return an array's address."""
        return int(array.data.ptr)

    def fetch(self, array: Any, host: Any) -> None:
        """Copy an array to one of NumPy's, and wait until it is there."""
        array.get(out=host)

    def store(self, array: Any, host: Any) -> None:
        """Copy one of NumPy's arrays to an array, on the stream."""
        array.set(host)


class PinnedBackend(HostBackend):
    """NumPy's arrays in memory that a device copies from and to at its full speed."""

    def __init__(self) -> None:
        """Take NumPy, but for memory."""
        import cupyx

        self.xp = SimpleNamespace(**{**vars(np), "empty": cupyx.empty_pinned})


Backend = HostBackend | DeviceBackend


def in_memory(world: MPI.Intracomm, make: Callable[[], T]) -> T:
    """Return the result of `make` on each rank; raise ShortageError on all if one has too little memory."""
    made, why = None, ""
    try:
        made = make()
    except MemoryError as error:
        why = f"memory of rank {world.rank} is too little ({str(error) or 'no memory'})"
    why = anywhere(world, why)
    if why:
        raise ShortageError(why)
    return made  # type: ignore[return-value]


def devices() -> tuple[int, str]:
    """Return (devices that this rank sees, why there is none)."""
    if not has_driver():
        return 0, "no NVIDIA driver on this machine"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import cupy
        return int(cupy.cuda.runtime.getDeviceCount()), "no device"
    except Exception as error:  # not installed, no library, no device: all are reasons
        return 0, f"{type(error).__name__}: {error}"


def choose(buffers: str, world: MPI.Intracomm) -> Backend:
    """Return this rank's backend; collective. Ranks of a node take its devices in turn.

    Args:
        buffers: "numpy", "cupy", or "auto": CuPy if every rank has a device.
        world: all ranks.

    Raises:
        RequestError: CuPy is asked for, and a rank has no device.
    """
    count, why = (0, "") if buffers == "numpy" else devices()
    without = [(rank, reason) for rank, (n, reason) in enumerate(world.allgather((count, why))) if not n]
    if without and buffers == "cupy":
        raise RequestError("no CuPy buffers: rank {} has no GPU ({})".format(*without[0]))
    if without:
        return HostBackend()
    node = world.Split_type(MPI.COMM_TYPE_SHARED)
    local = node.rank
    node.Free()
    return DeviceBackend(local % count)
