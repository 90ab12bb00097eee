"""Arrays that are ready to be reduced."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from mpicoll.runtime.arguments import arrays
from mpicoll.runtime.cuda.streams import given
from mpicoll.training.bucket_layout import Member

#: the name of it all in messages
NAME = "gradient buckets"


class Added(NamedTuple):
    """An array that is ready to be reduced.

    Attributes:
        value: as it was given, which keeps its memory alive.
        array: over the same memory, or a packed copy of what is not contiguous.
        pointer: address of its first element.
        stream: on which it is ready; None for CuPy's current one, and on the host.
        before: functions that fill the packed copy.
        after: functions that write the packed copy back.
    """

    value: Any
    array: Any
    pointer: int
    stream: Any = None
    before: Sequence[Callable[[], None]] = ()
    after: Sequence[Callable[[], None]] = ()

    @property
    def member(self) -> Member:
        """What all ranks must have alike of it, and its device."""
        return Member(int(self.array.size), self.array.dtype, arrays.device_of(self.array))

    def is_like(self, member: Member) -> bool:
        """Tell whether it is such an array, in less time than `member` takes."""
        array = self.array
        return bool(
            array.size == member.size and array.dtype == member.dtype and arrays.device_of(array) == member.device
        )


def added(name: str, value: Any) -> Added:
    """Return an array as it is reduced; raises as `arrays.as_array` and `arrays.flatten`."""
    if arrays.is_plain(value) and value.dtype.kind in "biufc" and value.flags.c_contiguous:  # most are such
        if type(value) is not np.ndarray:
            return Added(value, value, arrays.pointer_of(value))
        if value.flags.writeable:
            return Added(value, value, MPI.Get_address(value))  # in a tenth of the time
    stream = _stream_of(value)
    with given(stream):
        flat = arrays.flatten(NAME, name, arrays.as_array(NAME, name, value), writes=True)
    return Added(value, flat.array, flat.pointer, stream, flat.before, flat.after)


def _stream_of(value: Any) -> Any:
    """Return the stream on which an array is ready: PyTorch's current one for its tensors, None for all others."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor) or value.device.type != "cuda":
        return None
    return torch.cuda.current_stream(value.device)
