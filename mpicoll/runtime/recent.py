"""Recent calls: where equal arguments come again, everything was decided the last time.

Planning a repeated call costs a look-up here.  What was decided depends on nothing of an array
but its address, shape, dtype and flags, so these are the key: arrays themselves are not held.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI

from mpicoll.runtime.bound import Bound

#: calls remembered for each communicator
MOST = 512

Key = tuple[Any, ...]


class Recent:
    """The remembered calls of one communicator."""

    def __init__(self) -> None:
        """Start empty."""
        self.calls: dict[Key, tuple[tuple[Any, ...], Bound]] = {}

    def find(self, key: Key, rest: tuple[Any, ...]) -> Bound | None:
        """Return the bound program of an equal call, if it is remembered and still valid."""
        known = self.calls.get(key)
        return known[1] if known is not None and known[1].alive and known[0] == rest else None

    def remember(self, key: Key, rest: tuple[Any, ...], bound: Bound) -> None:
        """Remember a call, if its buffers are arrays, MPI.IN_PLACE or None."""
        if UNKNOWN not in key:
            if len(self.calls) >= MOST:
                self.calls.clear()
            self.calls[key] = rest, bound


#: state of an argument of which more could change than its key says
UNKNOWN = "unknown"


def state(argument: Any) -> Any:
    """Return all of a buffer argument on which a decision can depend."""
    if type(argument) is np.ndarray:
        return argument.__array_interface__["data"], argument.shape, argument.dtype, argument.flags.num
    if argument is None or isinstance(argument, int):
        return argument
    if type(argument).__name__ == "ndarray" and type(argument).__module__.startswith("cupy"):
        return argument.data.ptr, argument.shape, argument.strides, argument.dtype, argument.device.id
    return UNKNOWN


def frozen(rest: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return arguments that stay as they are: counts could be changed in place between calls."""
    if rest and not isinstance(rest[0], int | MPI.Op | tuple):
        return (tuple(rest[0]) if isinstance(rest[0], list | np.ndarray) else rest[0], *rest[1:])
    return rest


def address_of(stream: Any) -> int:
    """Return a CUDA stream's address: CuPy's, or any object that has it in `ptr` or `cuda_stream`."""
    pointer = getattr(stream, "ptr", None)
    return int(stream.cuda_stream if pointer is None else pointer)
