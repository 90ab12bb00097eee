"""Reductions in host memory, without MPI."""

import numpy as np
import pytest

from mpicoll.runtime.arguments.operators import OPERATORS
from mpicoll.runtime.host.work import Host

#: bits of a quiet NaN, to which a payload is added
NAN = {"f2": ("u2", 0x7E00), "f4": ("u4", 0x7FC00000), "f8": ("u8", 0x7FF8000000000000)}


def quiet_nan(dtype, payload):
    """Return a NaN that can be told from others by its bits; of complex numbers both parts."""
    kind, bits = NAN[{"c8": "f4", "c16": "f8"}.get(dtype, dtype)]
    return np.array([bits + payload] * (2 if dtype[0] == "c" else 1), kind).view(dtype)[0]


def combined(op, dtype, a, b, target):
    """Return the bytes of a and b combined into new memory, or into a's or b's."""
    a, b = a.copy(), b.copy()
    into = {"new": np.empty_like(a), "a": a, "b": b}[target]
    runs = [(array.ctypes.data, array.nbytes) for array in (into, a, b)]
    Host().reduce(OPERATORS[op], np.dtype(dtype), runs[0], runs[1:])()
    return into.tobytes()


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8", "c16"])
@pytest.mark.parametrize("op", ["SUM", "PROD", "MAX", "MIN"])
def test_the_result_does_not_depend_on_where_it_is_put(op, dtype):
    """In place the target is the first operand on one rank and the second on another."""
    if dtype[0] == "c" and op in ("MAX", "MIN"):
        return
    for count in (1, 2, 3, 7, 8, 9, 31, 64, 65, 1001):
        for first, second in ((quiet_nan(dtype, 1), quiet_nan(dtype, 2)), (0.0, -0.0), (-0.0, 0.0)):
            a, b = np.full(count, first, dtype), np.full(count, second, dtype)
            found = {combined(op, dtype, a, b, target) for target in ("new", "a", "b")}
            assert len(found) == 1, (count, first)
