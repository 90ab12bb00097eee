"""Arrays that are ready to be reduced."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple
from weakref import ref

import numpy as np
from mpi4py import MPI

from mpicoll.runtime.arguments import arrays, tensors
from mpicoll.runtime.cuda.streams import given
from mpicoll.training.bucket_layout import Member

#: the name of it all in messages
NAME = "gradient buckets"


class Added(NamedTuple):
    """Where an array that is ready to be reduced is; it does not keep the array alive.

    Attributes:
        member: what all ranks must have alike of it.
        pointer: address of its first element, or of those of a packed copy of what is not contiguous.
        array: the array, where its identity says all of this: CuPy's cannot be changed.
        before: functions that fill the packed copy.
        after: functions that write the packed copy back.
    """

    member: Member
    pointer: int
    array: ref[Any] | None = None
    before: Sequence[Callable[[], None]] = ()
    after: Sequence[Callable[[], None]] = ()


def added(name: str, value: Any) -> Added:
    """Return where an array is; raises as `arrays.as_array` and `arrays.flatten`."""
    if arrays.is_plain(value):
        if value.dtype.kind in "biufc" and value.flags.c_contiguous:  # most are such
            member = Member(value.size, value.dtype, arrays.device_of(value))
            if type(value) is not np.ndarray:
                return Added(member, arrays.pointer_of(value), ref(value))
            if value.flags.writeable:
                return Added(member, MPI.Get_address(value))  # in a tenth of `pointer_of`'s time
    elif tensors.is_tensor_class(type(value)):
        state = tensors.state_of(value)
        if state is not None and state[1]:
            return Added(Member(value.numel(), _dtype_of(str(value.dtype)), value.get_device()), state[1])
    with given(stream_of(value)):
        flat = arrays.flatten(NAME, name, arrays.as_array(NAME, name, value), writes=True)
    return Added(Member(flat.size, flat.array.dtype, flat.device), flat.pointer, None, flat.before, flat.after)


def stream_of(value: Any) -> Any:
    """Return the stream on which an array is ready: PyTorch's current one for its tensors, None for all others."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor) or value.device.type != "cuda":
        return None
    return torch.cuda.current_stream(value.device)


@cache
def _dtype_of(name: Any) -> np.dtype:
    """Return the dtype that arrays over PyTorch's tensors have."""
    if name == "torch.bfloat16":
        import ml_dtypes

        name = ml_dtypes.bfloat16
    found: np.dtype = np.dtype(name.removeprefix("torch."))
    return found
