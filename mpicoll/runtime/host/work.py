"""Reductions and copies in host memory, with NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI

from mpicoll.runtime.arguments.operators import Operator, is_half, whole
from mpicoll.runtime.program.local_work import Action, Poll, Run

#: elements combined at a time where more than two operands are folded: stays in the cache
CHUNK = 1 << 15


def view(run: Run, dtype: np.dtype) -> np.ndarray:
    """Return an array over raw memory; it does not keep the memory alive."""
    array: np.ndarray = np.frombuffer(MPI.buffer.fromaddress(*run), dtype)  # type: ignore[call-overload]
    return array


class Host:
    """Binds local work on host memory; work is done when its call returns."""

    def reduce(self, op: Operator, dtype: np.dtype, target: Run, sources: list[Run]) -> Action:
        """Return an action that combines the sources, left to right; arguments as in `LocalWork.reduce`."""
        function = complex_product if op.name == "PROD" and dtype.kind == "c" else op.function
        if op.ufunc is np.add and dtype.kind == "c":
            dtype = np.dtype(f"f{dtype.itemsize // 2}")  # the sum of the parts: two numbers at least
        into, operands = view(target, dtype), [view(s, dtype) for s in sources]
        if function is not None:
            return lambda: apply(function, into, operands)
        ufunc = op.ufunc
        assert ufunc is not None
        if is_half(dtype):
            return lambda: _fold_chunks(ufunc, into, operands, np.dtype("f4"))
        if len(operands) > 2:
            return lambda: _fold_chunks(ufunc, into, operands, dtype)
        a, b = operands
        if dtype.kind in "biu":
            return lambda: ufunc(a, b, out=into, casting="unsafe")
        if into.size == 1 and target == sources[0]:
            return lambda: _combine_one(ufunc, into, a, b)
        return lambda: _combine(ufunc, into, a, b)

    def copy(self, target: Run, source: Run) -> Action:
        """Return an action that copies bytes."""
        into, origin = view(target, np.dtype("u1")), view(source, np.dtype("u1"))
        return lambda: np.copyto(into, origin)

    def divide(self, dtype: np.dtype, target: Run, divisor: int) -> Action:
        """Return an action that divides in place."""
        into = view(target, dtype)
        return lambda: np.divide(into, dtype.type(divisor), out=into)

    def sync(self, work: int, last: bool) -> Action | None:
        """Host work needs no waiting."""
        return None

    def poll(self, work: int, last: bool) -> Poll | None:
        """Host work needs no waiting."""
        return None

    def launched(self, work: int) -> Action | None:
        """Host work needs no event."""
        return None


def complex_product(a: Any, b: Any) -> Any:
    """Multiply so that the order of the factors does not matter to the last bit, which NumPy's product does not."""
    product = np.empty_like(a)
    product.real = a.real * b.real - a.imag * b.imag
    product.imag = a.real * b.imag + a.imag * b.real
    return product


@np.errstate(all="ignore")
def apply(function: Any, into: Any, operands: list[Any]) -> None:
    """Combine arrays left to right with a user's function."""
    total = operands[0]
    for operand in operands[1:]:
        total = function(total, operand)
    total = total.reshape(into.shape)
    if into.dtype.names:  # an assignment of records leaves out what is between their fields
        into, total = whole(into), whole(total.astype(into.dtype, copy=False))
    into[...] = total


@np.errstate(all="ignore")
def _combine(ufunc: np.ufunc, into: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    """Combine two arrays; an overflow is no reason to stop, since other ranks would wait.

    Args:
        ufunc: NumPy's function.
        into: array for the result.
        a: array of the first operand.
        b: array of the second operand.
    """
    ufunc(a, b, out=into, casting="unsafe")


@np.errstate(all="ignore")
def _combine_one(ufunc: np.ufunc, into: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    """Combine one element with another, into itself.

    NumPy would take this for the sum of an array and add the other way round.  Of two NaN the other
    one's payload would then stay, on the ranks where the result is put into the first operand.

    Arguments as in `_combine`, each of one element.
    """
    into[0] = ufunc(a, b)[0]


@np.errstate(all="ignore")
def _fold_chunks(ufunc: np.ufunc, into: np.ndarray, operands: list[np.ndarray], dtype: np.dtype) -> None:
    """Combine left to right chunk by chunk, in `dtype`; the target may be any of the operands.

    Args:
        ufunc: NumPy's function.
        into: array for the result.
        operands: arrays, in order.
        dtype: in which partial results are kept.
    """
    total = np.empty(min(CHUNK, into.size), dtype)
    for start in range(0, into.size, CHUNK):
        part = slice(start, start + CHUNK)
        length = into[part].size
        ufunc(
            operands[0][part].astype(dtype, copy=False),
            operands[1][part].astype(dtype, copy=False),
            out=total[:length],
            casting="unsafe",
        )
        for operand in operands[2:]:
            ufunc(total[:length], operand[part].astype(dtype, copy=False), out=total[:length], casting="unsafe")
        into[part] = total[:length]
