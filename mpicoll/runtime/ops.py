"""Reduction operators: what each MPI operator is on arrays, and for which dtypes.

One rule for host and device:
  - integers wrap around; NaN in MAX and MIN propagates;
  - half-precision values are combined in float32 and rounded once per reduction;
  - logical operators give 0 or 1 in the dtype of the array;
  - on bool, SUM, MAX and BOR mean "or", PROD, MIN and BAND mean "and", BXOR means "different".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from mpi4py import MPI

from mpicoll.errors import UnsupportedError

#: dtype kinds: b bool, i u integers, f floating, c complex
_ALL, _ORDERED, _BITS = "biufc", "biuf", "biu"


@dataclass(frozen=True)
class Operator:
    """An operator on arrays.

    Attributes:
        name: as MPI calls it.
        ufunc: NumPy's function for it.
        cuda: C expression of a and b for numbers, and for bool.
        kinds: dtype kinds that it serves.
        average: divide by the number of ranks at the end.
        commutative: the order of operands does not matter.
    """

    name: str
    ufunc: np.ufunc
    cuda: str
    cuda_bool: str
    kinds: str = _ALL
    average: bool = False
    commutative: bool = True

    def check(self, collective: str, dtype: np.dtype) -> None:
        """Raise TypeError unless the operator serves this dtype."""
        if kind(dtype) not in self.kinds:
            raise TypeError(f"{collective}: op {self.name} is not defined for {dtype}")
        if not dtype.isnative:
            raise TypeError(f"{collective}: {dtype} is not in this machine's byte order; convert it first")


def kind(dtype: np.dtype) -> str:
    """Return a dtype's kind, where bfloat16 (which NumPy calls void) is floating."""
    return "f" if dtype.name == "bfloat16" else dtype.kind


def is_half(dtype: np.dtype) -> bool:
    """Tell whether this is a half-precision type, which is combined in float32."""
    return dtype.itemsize == 2 and kind(dtype) == "f"


class Average:
    """Type of `mpicoll.AVG`: the mean over all ranks, for floating and complex arrays."""

    def __repr__(self) -> str:
        return "mpicoll.AVG"


AVG = Average()

_OPERATORS = (
    (MPI.SUM, Operator("SUM", np.add, "a + b", "a | b")),
    (MPI.PROD, Operator("PROD", np.multiply, "a * b", "a & b")),
    (MPI.MAX, Operator("MAX", np.maximum, "(a > b || a != a) ? a : b", "a | b", _ORDERED)),
    (MPI.MIN, Operator("MIN", np.minimum, "(a < b || a != a) ? a : b", "a & b", _ORDERED)),
    (MPI.LAND, Operator("LAND", np.logical_and, "T((a != T(0)) && (b != T(0)))", "a & b")),
    (MPI.LOR, Operator("LOR", np.logical_or, "T((a != T(0)) || (b != T(0)))", "a | b")),
    (MPI.LXOR, Operator("LXOR", np.logical_xor, "T((a != T(0)) != (b != T(0)))", "a ^ b")),
    (MPI.BAND, Operator("BAND", np.bitwise_and, "a & b", "a & b", _BITS)),
    (MPI.BOR, Operator("BOR", np.bitwise_or, "a | b", "a | b", _BITS)),
    (MPI.BXOR, Operator("BXOR", np.bitwise_xor, "a ^ b", "a ^ b", _BITS)),
)
_AVERAGE = Operator("AVG", np.add, "a + b", "a | b", "fc", average=True)

#: by name, for the benchmark and the tests
OPERATORS: dict[str, Operator] = {o.name: o for _, o in _OPERATORS} | {"AVG": _AVERAGE}
MPI_OPS: dict[str, MPI.Op | Average] = {o.name: op for op, o in _OPERATORS} | {"AVG": AVG}


def operator(collective: str, op: MPI.Op | Average) -> Operator:
    """Return the operator for mpi4py's op (or mpicoll.AVG); raises UnsupportedError for others."""
    if isinstance(op, Average):
        return _AVERAGE
    for known, found in _OPERATORS:
        if op == known:
            return found
    supported = ", ".join(OPERATORS)
    name = getattr(op, "name", "") or repr(op)
    raise UnsupportedError(f"{collective}: op {name} is not supported; supported: {supported}")
