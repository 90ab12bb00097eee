"""Inputs of the tests: different on every rank and at every index, and exact whatever the order.

Every rank can make every other rank's input, so expected results need no message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import combinations, product
from typing import Any

import numpy as np

try:
    from ml_dtypes import bfloat16
except ImportError:
    BFLOAT16: tuple[str, ...] = ()
else:
    BFLOAT16 = (np.dtype(bfloat16).name,)

INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
FLOATS = ("float16", "float32", "float64")
COMPLEX = ("complex64", "complex128")
#: what both NumPy and CuPy reduce
DTYPES = ("bool", *INTEGERS, *FLOATS, *COMPLEX)
#: what else the host reduces
HOST_DTYPES = ("longdouble", *BFLOAT16)
#: what can only be moved: dates, strings, records, the other byte order
RECORDS = ("datetime64[s]", "S5", "i4,f8", ">f8", ">i2")

#: operators whose results are exact; AVG divides
OPERATORS = ("SUM", "PROD", "MAX", "MIN", "LAND", "LOR", "LXOR", "BAND", "BOR", "BXOR")


def values(dtype: Any, count: int, rank: int, op: str = "") -> np.ndarray:
    """Return one rank's input: for an operator, or to be moved if there is none."""
    dtype, index = np.dtype(dtype), np.arange(count)
    if op:
        return _cast(_OF_OPERATOR[op](index, rank) if dtype.kind != "b" else _truths(index, rank), dtype)
    if dtype.kind not in "biufc":
        return _bytes(dtype, count, rank)
    wide = dtype.itemsize >= 4
    return _cast(index + 100_003 * rank + 1 if wide else (index + 37 * rank + 1) % 251, dtype)


def _cast(numbers: np.ndarray, dtype: np.dtype) -> np.ndarray:
    if dtype.kind == "c":
        return (numbers + 1j * ((numbers + 1) % 3)).astype(dtype)
    return (numbers % 2 if dtype.kind == "b" else numbers).astype(dtype)


def _bytes(dtype: np.dtype, count: int, rank: int) -> np.ndarray:
    return ((np.arange(count * dtype.itemsize) * 7 + 37 * rank + 1) % 251).astype("u1").view(dtype)


def _terms(index: np.ndarray, rank: int) -> np.ndarray:
    """Sums of 8 stay below 128: exact in bfloat16, no wrap in int8."""
    return (3 * rank + index) % 7


def _factors(index: np.ndarray, rank: int) -> np.ndarray:
    """Powers of two: exact in every floating type."""
    return np.where((rank + index) % 3 == 0, 2, 1)


def _scattered(index: np.ndarray, rank: int) -> np.ndarray:
    """Another rank wins at every index."""
    return (5 * rank + 3 * index) % 17 + 1


def _truths(index: np.ndarray, rank: int) -> np.ndarray:
    """In turn: all true, one false, mixed, all false; true is 1 or more."""
    one_false, mixed = rank != index % 5, (rank + index) % 2 == 0
    true = np.select([index % 4 == 0, index % 4 == 1, index % 4 == 2], [True, one_false, mixed], False)
    return np.where(true, 1 + index % 3, 0)


def _bits(index: np.ndarray, rank: int) -> np.ndarray:
    """In turn: one bit missing, so that AND keeps some; one bit set, so that OR is not full."""
    return np.where(index % 2, 1 << (3 * rank + index) % 7, 127 & ~(1 << (rank + index) % 7))


_OF_OPERATOR: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {
    "SUM": _terms,
    "AVG": _terms,
    "PROD": _factors,
    "MAX": _scattered,
    "MIN": _scattered,
    **dict.fromkeys(("LAND", "LOR", "LXOR"), _truths),
    **dict.fromkeys(("BAND", "BOR", "BXOR"), _bits),
}


def always(row: dict[str, Any]) -> bool:
    return True


def pairwise(axes: dict[str, Iterable[Any]], valid: Callable[[dict[str, Any]], bool] = always) -> list[dict[str, Any]]:
    """Return rows in which any two values of any two axes meet at least once.

    Most mistakes depend on two things at most (a root and a segment count, an in-place form and a
    communicator), and pairs are far fewer than the product.  The same on all ranks.

    Args:
        axes: values by name of the axis.
        valid: tells of a row, also of one that is only begun, whether it may be.
    """
    columns = {name: tuple(column) for name, column in axes.items()}
    left = dict.fromkeys(
        ((a, x), (b, y))
        for a, b in combinations(columns, 2)
        for x, y in product(columns[a], columns[b])
        if any(map(valid, _with(columns, {a: x, b: y})))
    )
    rows: list[dict[str, Any]] = []
    while left:
        row = _row(columns, left, valid, turn=len(rows))
        rows.append(row)
        for pair in combinations(row.items(), 2):
            left.pop(pair, None)
    return rows


def _with(columns: dict[str, tuple[Any, ...]], pair: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Return all rows that have a pair."""
    free = {name: column for name, column in columns.items() if name not in pair}
    return ({**pair, **dict(zip(free, rest, strict=True))} for rest in product(*free.values()))


def _row(
    columns: dict[str, tuple[Any, ...]],
    left: dict[Any, None],
    valid: Callable[[dict[str, Any]], bool],
    turn: int,
) -> dict[str, Any]:
    """Begin with the first pair that is left, and add to it what meets most that is left."""
    row = dict(next(iter(left)))
    for name, column in columns.items():
        if name not in row:
            turned = [column[(i + turn) % len(column)] for i in range(len(column))]
            fit = [x for x in turned if valid({**row, name: x})]
            row[name] = max(fit, key=lambda x: _met(columns, {**row, name: x}, left))
    return {name: row[name] for name in columns}


def _met(columns: dict[str, tuple[Any, ...]], row: dict[str, Any], left: dict[Any, None]) -> int:
    ordered = [(name, row[name]) for name in columns if name in row]
    return sum(pair in left for pair in combinations(ordered, 2))
