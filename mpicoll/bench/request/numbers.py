"""Numbers for exact validation: each rank's contribution, and the right result, by plain NumPy.

A vector repeats a pattern of PERIOD elements, a prime, so that no shift by a power of two goes unseen.
Patterns depend on rank and iteration, and hold whole numbers.  These are so small that every result is exact
in every dtype, in whatever order it is combined.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

#: an array of NumPy's
Array = Any

PERIOD = 8191
#: values are taken modulo one of these, none of which divides the factors in _linear
_PRIMES = (2, 3, 5, 11, 13, 19, 31, 61, 127, 251, 509, 1021, 2039, 4093, 8191)

#: operators: NumPy's function and the dtype kinds that it serves; an oracle of its own, beside runtime.ops
REDUCTIONS: dict[str, tuple[Callable[..., Any], str]] = {
    "SUM": (np.add, "biufc"),
    "PROD": (np.multiply, "biufc"),
    "MAX": (np.maximum, "biuf"),
    "MIN": (np.minimum, "biuf"),
    "LAND": (np.logical_and, "biufc"),
    "LOR": (np.logical_or, "biufc"),
    "LXOR": (np.logical_xor, "biufc"),
    "BAND": (np.bitwise_and, "biu"),
    "BOR": (np.bitwise_or, "biu"),
    "BXOR": (np.bitwise_xor, "biu"),
    "AVG": (np.add, "fc"),
}

#: what `--dtype all` means
DTYPES = (
    "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
    "float16", "float32", "float64", "complex64", "complex128",
)  # fmt: skip


def dtype_named(name: str) -> np.dtype[Any]:
    """Return a dtype of numbers by NumPy's name, or bfloat16 where ml_dtypes is installed."""
    if name == "bfloat16":
        try:
            import ml_dtypes
        except ImportError:
            raise ValueError("bfloat16 needs the package ml_dtypes") from None
        bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    try:
        found = np.dtype(name)
    except TypeError:
        raise ValueError(f"no dtype {name!r}; known: {', '.join(DTYPES)}, bfloat16") from None
    if found.kind not in "biufc" or not found.isnative:
        raise ValueError(f"dtype {name!r} is not one of numbers in this machine's byte order")
    return found


def kind(dtype: np.dtype[Any]) -> str:
    """Return a dtype's kind, where bfloat16 (which NumPy calls void) is floating."""
    return "f" if dtype.name == "bfloat16" else dtype.kind


def raw(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype in which elements are moved and compared: bits, where equal numbers have equal ones.

    Complex products may be zeros of either sign, and long doubles have unused bits.
    """
    if dtype.kind == "c" or dtype.itemsize > 8:
        return dtype
    return np.dtype(f"u{dtype.itemsize}")


@dataclass(frozen=True)
class Recipe:
    """The facts on which numbers depend, besides rank and iteration.

    Attributes:
        dtype: the dtype's name.
        redop: the operator's name, "" where nothing is combined.
        size: number of ranks.
    """

    dtype: str
    redop: str
    size: int


@functools.lru_cache(maxsize=128)
def pattern(recipe: Recipe, rank: int, iteration: int) -> Array:
    """Return a rank's contribution: PERIOD elements, to be repeated."""
    dtype = dtype_named(recipe.dtype)
    index = np.arange(PERIOD)
    if dtype.kind == "b":
        numbers = _truths(recipe, index, rank, iteration)
    else:
        numbers = _MAKERS.get(recipe.redop, _whole)(recipe, index, rank, iteration)
    return numbers.astype(dtype)


@functools.lru_cache(maxsize=64)
def combined(recipe: Recipe, ranks: tuple[int, ...], iteration: int) -> Array:
    """Return the right result where these ranks' contributions are combined: PERIOD elements."""
    parts = [pattern(recipe, rank, iteration) for rank in ranks]
    if not recipe.redop:
        return parts[0]
    dtype = parts[0].dtype
    if dtype.name == "bfloat16":  # NumPy's own functions do not know it; its numbers are exact in float32
        parts = [part.astype("f4") for part in parts]
    total = functools.reduce(REDUCTIONS[recipe.redop][0], parts)
    if recipe.redop == "AVG":  # of complex numbers by parts, for NumPy's division multiplies by an inverse
        total = (total.view(total.real.dtype) / len(ranks)).view(total.dtype)
    return total.astype(dtype)


def repeated(xp: Any, period: Array, start: int, count: int) -> Any:
    """Return elements of the vector that repeats a period, as xp's array.

    Args:
        xp: NumPy or CuPy.
        period: array of PERIOD elements.
        start: first element.
        count: number of elements.
    """
    first = start % PERIOD
    times = -(-(first + count) // PERIOD)
    return xp.tile(xp.asarray(period), max(times, 1))[first : first + count]


def _linear(index: Array, rank: int, iteration: int, modulus: int) -> Array:
    return (7 * index + 59 * rank + 17 * iteration) % modulus


def _turn(recipe: Recipe, index: Array, rank: int, iteration: int, modulus: int) -> Array:
    """Return numbers that are different on each of `modulus` consecutive ranks; the rest as in `_odds`."""
    return (index + rank + iteration) % modulus


def _modulus(recipe: Recipe, parts: int) -> int:
    """Return the largest prime of which so many parts are exact together; 1 if there is none."""
    dtype = dtype_named(recipe.dtype)
    if dtype.kind in "iu":  # sums wrap around, in the expected result too
        most = int(np.iinfo(dtype).max)
    else:
        bits = 8 if dtype.name == "bfloat16" else np.finfo(dtype).nmant + 1
        most = (1 << bits) // parts
    return max((prime for prime in _PRIMES if prime <= most), default=1)


def _whole(recipe: Recipe, index: Array, rank: int, iteration: int) -> Array:
    dtype, modulus = dtype_named(recipe.dtype), _modulus(recipe, recipe.size if recipe.redop == "SUM" else 1)
    shift = 0 if dtype.kind == "u" else modulus // 2
    numbers = _linear(index, rank, iteration, modulus) - shift
    if dtype.kind == "c":
        return numbers + 1j * (_linear(index, rank + 1, iteration, modulus) - shift)
    return numbers


def _odds(recipe: Recipe, index: Array, rank: int, iteration: int) -> Array:
    """Return numbers a(2r + 1) + b.  Their mean over ranks 0 to r is a(r + 1) + b, a whole number.

    Args:
        recipe: what numbers depend on.
        index: array of 0 to PERIOD - 1.
        rank: r.
        iteration: makes the numbers of every call different.
    """
    a = _linear(index, 0, iteration, _modulus(recipe, 2 * recipe.size**2))
    modulus = _modulus(recipe, 2 * recipe.size)
    b = _linear(index, 1, iteration, modulus) - modulus // 2
    numbers = a * (2 * rank + 1) + b
    return numbers + 1j * numbers[::-1] if dtype_named(recipe.dtype).kind == "c" else numbers


def _factors(recipe: Recipe, index: Array, rank: int, iteration: int) -> Array:
    """Return factors 2 and 3, of which at most four and three meet; the others are units; as in `_odds`."""
    turn = _turn(recipe, index, rank, iteration, recipe.size)
    numbers = np.where(turn < 4, 2, np.where(turn < 7, 3, 1))
    dtype = dtype_named(recipe.dtype)
    if dtype.kind == "c":
        return numbers * np.array([1, 1j, -1, -1j])[_linear(index, rank, iteration, 11) % 4]
    return numbers if dtype.kind == "u" else numbers * np.where(_linear(index, rank, iteration, 11) < 4, -1, 1)


def _truths(recipe: Recipe, index: Array, rank: int, iteration: int) -> Array:
    """Return truths: for "or" at most one rank's is True, for "and" one rank's is False; as in `_odds`."""
    one = _turn(recipe, index, rank, iteration, 2 * recipe.size) == 0
    if recipe.redop in ("LOR", "BOR", "SUM", "MAX"):
        return one
    if recipe.redop in ("LAND", "BAND", "PROD", "MIN"):
        return ~one
    return _linear(index, rank, iteration, PERIOD) ** 2 % PERIOD % 2 == 1  # squares, for shifts change them


def _flags(recipe: Recipe, index: Array, rank: int, iteration: int) -> Array:
    return _truths(recipe, index, rank, iteration) * (1 + (index + rank) % 3)


def _bit(recipe: Recipe, index: Array, rank: int, iteration: int) -> Array:
    bits = dtype_named(recipe.dtype).itemsize * 8
    return np.left_shift(np.int64(1), _turn(recipe, index, rank, iteration, bits))


def _all_but_one_bit(recipe: Recipe, index: Array, rank: int, iteration: int) -> Array:
    return ~_bit(recipe, index, rank, iteration)


_MAKERS: dict[str, Callable[[Recipe, Array, int, int], Array]] = {
    "PROD": _factors,
    "LAND": _flags,
    "LOR": _flags,
    "LXOR": _flags,
    "BAND": _all_but_one_bit,
    "BOR": _bit,
    "AVG": _odds,
}
