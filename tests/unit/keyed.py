"""Keys of calls, and arrays of which they are made."""

from types import SimpleNamespace

import numpy as np

from mpicoll.runtime.call.call_key import call_key

MEMORY = np.zeros(256, "u1")


def at(start, dtype, count):
    """Return an array of so many elements at a byte of the memory."""
    dtype = np.dtype(dtype)
    return MEMORY[start : start + count * dtype.itemsize].view(dtype)


def key_of(*arguments, method="Allreduce", algorithm=None, rules="", place=(0, 0, False)):
    return call_key(method, arguments, algorithm, rules, place)


def device_array(kind, **changed):
    state = {"ptr": 4096, "device": 0, "dtype": np.dtype("f8"), "size": 6, "contiguous": True}
    state |= {"shape": (2, 3), "strides": (24, 8)} | changed
    data = SimpleNamespace(ptr=state["ptr"], device_id=state["device"])
    rest = {name: state[name] for name in ("dtype", "size", "shape", "strides")}
    return kind(data=data, device=SimpleNamespace(id=state["device"]), _c_contiguous=state["contiguous"], **rest)
