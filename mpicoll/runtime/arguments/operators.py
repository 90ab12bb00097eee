"""Reduction operators: what each MPI operator is on arrays, and for which dtypes.

One rule for host and device:
  - integers wrap around; NaN in MAX and MIN propagates;
  - half-precision values are combined in float32 and rounded once per reduction;
  - logical operators give 0 or 1 in the dtype of the array;
  - on bool, SUM, MAX and BOR mean "or", PROD, MIN and BAND mean "and", BXOR means "different".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from mpi4py import MPI

from mpicoll.errors import UnsupportedError

#: dtype kinds: b bool, i u integers, f floating, c complex
_ALL, _ORDERED, _BITS = "biufc", "biuf", "biu"
#: of a user's operator: whatever its function takes
_ANY = ""


@dataclass(frozen=True)
class Operator:
    """An operator on arrays.

    Attributes:
        name: as MPI calls it.
        ufunc: NumPy's function for it.
        cuda: C expression of a and b for numbers, and for bool.
        kinds: dtype kinds that it serves.
        average: divide by the number of combined ranks at the end.
        commutative: the order of operands does not matter.
        function: a user's function of two arrays instead of ufunc and cuda.
        width: elements of an item, never cut apart.
        uncut: a vector is one item, whatever its length.
        host_only: it takes arrays on the host only.
    """

    name: str
    ufunc: np.ufunc | None
    cuda: str
    cuda_bool: str
    kinds: str = _ALL
    average: bool = False
    commutative: bool = True
    function: Callable[[Any, Any], Any] | None = None
    width: int = 1
    uncut: bool = False
    host_only: bool = False

    @property
    def users(self) -> bool:
        """A user's own, which takes what its function takes."""
        return self.function is not None and self.kinds == _ANY

    def check(self, collective: str, dtype: np.dtype, counts: Iterable[int]) -> None:
        """Raise TypeError unless the operator serves this dtype, ValueError if a count is no multiple of an item."""
        item = self.width if self.users or not dtype.names else 1  # a record is an item by itself
        for count in counts:
            if count % item:
                raise ValueError(f"{collective}: op {self.name} combines items of {item} elements, not {count}")
        if self.users:
            return
        if kind(dtype) not in self.kinds or (kind(dtype) == "V" and not _is_pair(dtype)):
            raise TypeError(f"{collective}: op {self.name} is not defined for {dtype}")
        if not dtype.isnative:
            raise TypeError(f"{collective}: {dtype} is not in this machine's byte order; convert it first")


def kind(dtype: np.dtype) -> str:
    """Return a dtype's kind, where bfloat16 (which NumPy calls void) is floating."""
    return "f" if dtype.name == "bfloat16" else dtype.kind


def _is_pair(dtype: np.dtype) -> bool:
    """Tell whether this is a record of two real numbers."""
    fields = [part for part, *_ in (dtype.fields or {}).values()]
    return len(fields) == 2 and all(kind(part) in "iuf" for part in fields)


def is_half(dtype: np.dtype) -> bool:
    """Tell whether this is a half-precision type, which is combined in float32."""
    return dtype.itemsize == 2 and kind(dtype) == "f"


class Average:
    """Type of `mpicoll.AVG`: the mean over the ranks that are combined, for floating and complex arrays."""

    def __repr__(self) -> str:
        return "mpicoll.AVG"


AVG = Average()


class Op:
    """A user's operator: a function of two arrays, run on the device of the arrays.

    The function gets two arrays of equal length, NumPy's or CuPy's, and returns their combination;
    the array of the lower rank comes first.  It is called on pieces of the arrays, cut at multiples
    of `width` elements, so it must work item by item.  It must be associative.  What it raises is
    raised by the collective.

    Args:
        function: (a, b) -> array.
        commute: the order of operands does not matter; without it ranks are combined in their order.
        width: elements of an item, such as 4 for 2x2 matrices.
        name: for messages.
        cuda: the same as a CUDA C++ expression of the elements `a` and `b`, such as "a > b ? a : b"; device
            arrays are then combined by it, in fused kernels and on the path mapped (half types as float).

    Raises:
        ValueError: width is less than 1, or more together with an expression, which sees single elements.
    """

    def __init__(
        self,
        function: Callable[[Any, Any], Any],
        commute: bool = False,
        *,
        width: int = 1,
        name: str = "",
        cuda: str = "",
    ) -> None:
        """Make the operator; arguments as in the class."""
        if width < 1:
            raise ValueError(f"op: width is {width}, not at least 1")
        if cuda and width > 1:
            raise ValueError(f"op: width is {width}, but a CUDA expression combines single elements")
        label = name or getattr(function, "__name__", "user")
        self.operator = Operator(label, None, cuda, cuda, _ANY, commutative=commute, function=function, width=width)

    def __repr__(self) -> str:
        return f"mpicoll.Op({self.operator.name})"


def _locate(larger: bool) -> Callable[[Any, Any], Any]:
    """Return MAXLOC or MINLOC on records (value, index), or on consecutive elements value, index."""

    def combine(a: Any, b: Any) -> Any:
        if a.dtype.names:
            value, index = a.dtype.names
            take_a = _takes_first(a[value], a[index], b[value], b[index], larger)
            return np.where(take_a, whole(a), whole(b)).view(a.dtype)
        x, y = a.reshape(-1, 2), b.reshape(-1, 2)
        take_a = _takes_first(x[:, 0], x[:, 1], y[:, 0], y[:, 1], larger)
        result = y.copy()
        result[take_a] = x[take_a]
        return result.reshape(-1)

    return combine


def whole(records: Any) -> Any:
    """Return records as bytes, with those between the fields."""
    return records.view(np.dtype((np.void, records.dtype.itemsize)))


def _takes_first(a: Any, i: Any, b: Any, j: Any, larger: bool) -> Any:
    """Return an array of bool, true where (a, i) is the result.

    NaN comes before numbers, and among equal values the lower index.

    Args:
        a: values of one operand.
        i: its indices.
        b: values of the other operand.
        j: its indices.
        larger: the larger value wins, as in MAXLOC.
    """
    no_number, other_no_number = a != a, b != b
    wins = (a > b if larger else a < b) | (no_number & ~other_no_number)
    alike = (a == b) | (no_number & other_no_number)
    return wins | (alike & (i <= j))


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
_LOCATORS = tuple(
    (op, Operator(name, None, "", "", "iufV", function=_locate(larger), width=2))
    for op, name, larger in ((MPI.MAXLOC, "MAXLOC", True), (MPI.MINLOC, "MINLOC", False))
)
_AVERAGE = Operator("AVG", np.add, "a + b", "a | b", "fc", average=True)

#: by name, for the benchmark and the tests
OPERATORS: dict[str, Operator] = {o.name: o for _, o in (*_OPERATORS, *_LOCATORS)} | {"AVG": _AVERAGE}
MPI_OPS: dict[str, MPI.Op | Average] = {o.name: op for op, o in (*_OPERATORS, *_LOCATORS)} | {"AVG": AVG}


#: operators of `MPI.Op.Create` that are kept at most
MOST_MADE = 64
#: by the identity of MPI's, which they keep alive, so that no other one gets it; the oldest first
_made: dict[int, tuple[MPI.Op, Operator]] = {}


def _name_of(op: object) -> str:
    """Return the name by which a user calls an operator."""
    if isinstance(op, MPI.Op):
        for name in ("REPLACE", "NO_OP", "OP_NULL"):
            if op == getattr(MPI, name):
                return f"MPI.{name}"
    return repr(op)


def _made_by_mpi(op: MPI.Op) -> Operator:
    """Return the operator for one of `MPI.Op.Create`, which MPI itself applies.

    MPI may call its function with any part of a vector, but libraries do so with long ones only, and programs have
    come to rely on that: they see whole vectors here.
    """

    def combine(a: Any, b: Any) -> Any:
        result = b.copy()
        op.Reduce_local(a, result)
        return result

    commutes = op.Is_commutative()
    return Operator("of MPI.Op.Create", None, "", "", _ANY, False, commutes, combine, uncut=True, host_only=True)


def _kept(op: MPI.Op) -> Operator:
    """Return the operator for one of `MPI.Op.Create`, the same each time: programs are found by its identity."""
    if id(op) not in _made:
        while len(_made) >= MOST_MADE:
            del _made[next(iter(_made))]
        _made[id(op)] = op, _made_by_mpi(op)
    return _made[id(op)][1]


@lru_cache(maxsize=256)
def of_width(operator: Operator, width: int) -> Operator:
    """Return an operator whose items have so many elements, the same object for the same arguments."""
    return replace(operator, width=width)


def operator_of(collective: str, op: MPI.Op | Average | Op) -> Operator:
    """Return the operator for mpi4py's op, mpicoll.AVG or an mpicoll.Op; raises UnsupportedError for others."""
    if isinstance(op, Average):
        return _AVERAGE
    if isinstance(op, Op):
        return op.operator
    for known, found in (*_OPERATORS, *_LOCATORS):
        if op == known:
            return found
    if isinstance(op, MPI.Op) and not op.is_predefined and op != MPI.OP_NULL:
        return _kept(op)
    supported = ", ".join(OPERATORS)
    raise UnsupportedError(f"{collective}: op {_name_of(op)} is not supported; supported: {supported}")
