"""Parcels: what MPI is given in the place of a device array that travels by itself.

MPI knows no streams.  So a parcel is made ready on the stream on which the array is (CuPy's current one), and the
host waits for that before the message starts.  On the wire there are the array's bytes, so that either
end may be an array on a host, or belong to plain mpi4py:

    path     memory that MPI is given                    before the message        after it
    direct   the array, or a packed copy on its device   packing                   unpacking
    staged   a copy in pinned host memory                packing, a copy there     a copy back, unpacking
"""

from __future__ import annotations

import sys
from functools import lru_cache
from importlib import import_module
from typing import Any, cast

import numpy as np
from mpi4py import MPI

from mpicoll.dispatch.paths import PATHS, wanted
from mpicoll.errors import UnsupportedError
from mpicoll.runtime.arguments.arrays import Flat, device_of, empty_on, pointer_of
from mpicoll.runtime.arguments.reader import Reader
from mpicoll.runtime.cuda.by_device import work_on
from mpicoll.runtime.cuda.ipc import can_be_mapped
from mpicoll.runtime.cuda.streams import CAPTURED, Pointer, address_on, at, is_captured, on
from mpicoll.runtime.mpi import cuda_aware
from mpicoll.runtime.progress.turns import in_flight, wait_for

#: a buffer as mpi4py takes it: memory, count, type
MessageSpec = list[Any]


def is_on_device(buffer: Any) -> bool:
    """Tell whether a message's buffer, as mpi4py takes it, is in a device's memory."""
    array = buffer[0] if type(buffer) in (list, tuple) and buffer else buffer
    where = _where(cast(Any, type(array)))
    if where is not None:
        return where
    return bool(array.is_cuda) if hasattr(array, "is_cuda") else hasattr(array, "__cuda_array_interface__")


@lru_cache(maxsize=256)
def _where(kind: type) -> bool | None:
    """Tell whether arrays of a class are in a device's memory; None where that is asked of each."""
    if kind.__module__.partition(".")[0] == "cupy":
        return hasattr(kind, "__cuda_array_interface__")
    return None if hasattr(kind, "is_cuda") or hasattr(kind, "__cuda_array_interface__") else False


def takes_device_memory(comm: Any) -> bool:
    """Tell whether the MPI library may be given addresses of device memory, and is meant to."""
    context = comm._context
    known = context.cuda_aware if context is not None and context.ready else cuda_aware.decide()
    path = wanted()
    return known.aware and not (path is not None and PATHS[path].by_host)


class Plain:
    """A buffer on the host, or none, in the place of a parcel: mpi4py is given what the caller gave."""

    as_it_is = True

    def __init__(self, spec: Any) -> None:
        """Hold the buffer."""
        self.spec = spec

    def arrive(self, nbytes: int) -> None:
        """Do nothing: what has come is where it belongs."""


class Parcel:
    """A device array on its way: ready to be sent or received into.

    Attributes:
        spec: what mpi4py is given.
        as_it_is: MPI is given the array's own memory, so that nothing is left to do when a message has come.
    """

    def __init__(
        self, comm: Any, method: str, buffer: Any, *, arrives: bool, staged: bool = False, copied: bool = False
    ) -> None:
        """Get a buffer ready, and wait for that.

        Args:
            comm: the communicator.
            method: the call's name, for messages.
            buffer: as mpi4py takes it.
            arrives: it is received into.
            staged: MPI reads the memory itself, so that it must be the host's.
            copied: send a copy, for another message is received into the array.

        Raises:
            UnsupportedError: the array's stream is being captured, or the buffer has a derived datatype.
        """
        import_module("cupy")  # for arrays of others, who may have none
        self._flat = _read(comm, method, buffer, writes=arrives)
        self._buffer, nbytes = buffer, int(self._flat.array.nbytes)
        self._pinned: Any = None
        with at(self._flat.device):
            stream = address_on(self._flat.device, None)
            if is_captured(stream):
                raise UnsupportedError(
                    f"{method}: {CAPTURED}, which messages can be in `with mpicoll.group(comm):` only"
                )
            self._stream = stream
            for act in self._flat.before:
                act()
            memory = self._flat.pointer
            if staged or not (takes_device_memory(comm) and can_be_mapped(memory)):
                memory = self._stage(nbytes, filled=not arrives)
            elif copied and nbytes:
                self._copy = empty_on(self._flat.device, nbytes, np.dtype("u1"))
                memory = pointer_of(self._copy)
                self._move(memory, self._flat.pointer, nbytes)
            await_stream(stream)
        self.as_it_is = self._pinned is None and not self._flat.after
        self.spec: MessageSpec = [MPI.buffer.fromaddress(memory, nbytes), nbytes, MPI.BYTE]

    def _stage(self, nbytes: int, *, filled: bool) -> int:
        """Return the address of a copy in pinned memory, filled from the array."""
        self._pinned = sys.modules["cupy"].cuda.alloc_pinned_memory(max(nbytes, 1))
        if filled and nbytes:
            self._move(self._pinned.ptr, self._flat.pointer, nbytes)
        return int(self._pinned.ptr)

    def _move(self, target: int, source: int, nbytes: int) -> None:
        work_on(self._flat.device, self._stream).copy((target, nbytes), (source, nbytes))()

    def arrive(self, nbytes: int) -> None:
        """Bring a message that has come to where it belongs; returns when it is there.

        Args:
            nbytes: its length, which may be less than the array's.
        """
        if self.as_it_is:
            return
        with on(self._flat.device, Pointer(self._stream)) as stream:
            if self._pinned is not None and nbytes:
                self._move(self._flat.pointer, self._pinned.ptr, nbytes)
            for act in self._flat.after:
                act()
            await_stream(stream)


AnyParcel = Parcel | Plain


def _read(comm: Any, method: str, buffer: Any, *, writes: bool) -> Flat:
    """Return a buffer as a flat array; in little time for a contiguous array of CuPy's own class.

    Args:
        comm: the communicator.
        method: the call's name, for messages.
        buffer: as mpi4py takes it.
        writes: it is received into.
    """
    if type(buffer) is sys.modules["cupy"].ndarray and buffer.flags.c_contiguous:
        return Flat(buffer, pointer_of(buffer), device_of(buffer))
    return Reader("bcast", method, comm.rank, comm.size).one("buf", buffer, writes=writes)


def leaving(comm: Any, method: str, buffer: Any, *, staged: bool = False, copied: bool = False) -> AnyParcel:
    """Return a buffer that is sent, ready; arguments as in `Parcel`."""
    if not is_on_device(buffer):
        return Plain(buffer)
    return Parcel(comm, method, buffer, arrives=False, staged=staged, copied=copied)


def arriving(comm: Any, method: str, buffer: Any) -> AnyParcel:
    """Return a buffer that is received into, ready; arguments as in `Parcel`."""
    return Parcel(comm, method, buffer, arrives=True) if is_on_device(buffer) else Plain(buffer)


def await_stream(stream: int) -> None:
    """Return when what is on a stream is complete; calls in flight go on, for the stream may wait for one of them."""
    runtime = sys.modules["cupy"].cuda.runtime
    if in_flight:
        wait_for(lambda: bool(runtime.streamQuery(stream) == 0))
    runtime.streamSynchronize(stream)
