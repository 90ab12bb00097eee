"""The driver's word on device memory: can a peer map it?

MPI hands device memory to the ranks of a node by CUDA's interprocess handles.  Memory of a
stream-ordered pool (cudaMallocAsync), managed memory and memory that was mapped piece by piece
have none.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

#: (address, attribute) -> value, None where the driver knows nothing of the address
AttributeReader = Callable[[int, int], int | None]

#: CU_POINTER_ATTRIBUTE_IS_MANAGED and CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE
MANAGED, EXPORTABLE = 8, 10


def can_be_mapped(address: int, read: AttributeReader | None = None) -> bool:
    """Tell whether peers can map the memory at an address of the current device.

    Args:
        address: where a device array starts; 0 if it is empty.
        read: reads an attribute; the driver does if None.
    """
    if not address:
        return True
    read = read or _read
    return read(address, EXPORTABLE) == 1 and read(address, MANAGED) == 0


def _read(address: int, attribute: int) -> int | None:
    value = ctypes.c_uint64(0)  # wider than any of the answers, which fill it from its lowest byte
    return None if _query()(ctypes.byref(value), attribute, address) else int(value.value)


@cache
def _query() -> Callable[..., int]:
    """Return the driver's function; its arguments are converted in half the time where it knows their types."""
    function = ctypes.CDLL("libcuda.so.1").cuPointerGetAttribute
    function.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64]
    return function
