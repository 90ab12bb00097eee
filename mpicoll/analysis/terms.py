"""Terms of a cost: each parameter's share of an algorithm's predicted time.

A cost is a sum in which every term has one parameter of the machine (see `analysis.cost`).  So a parameter's
coefficient is the cost with this parameter 1 and all others 0.  The ring's allreduce of 1 MiB on 8 ranks:

      2*(p-1)*α + (p-1)*λ + 2*(p-1)/p*n*β + (p-1)/p*n*γ/s + (s-1)*o
    = 14 α + 1.75 n β + 0.875 n γ + 7 λ
    = 70.0 us + 458.8 us + 152.9 us + 14.0 us
    = 695.7 us
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from mpicoll.analysis.cost import CostModel

#: what every call costs on top, which is in no card's cost
CALL = "call"
#: what takes the time, by the symbols of the parameters; a message that is sent beside others has latency, too
WORDS = {
    "α": "latency",
    "o": "latency",
    "β": "bandwidth",
    "γ": "reduction",
    "λ": "launching",
    CALL: "the call itself",
}
#: for each symbol a machine on which it is 1, and nothing else takes time
_UNITS = {
    "α": CostModel(1, 0, 0, 0, 0),
    "o": CostModel(0, 1, 0, 0, 0),
    "β": CostModel(0, 0, 1, 0, 0),
    "γ": CostModel(0, 0, 0, 1, 0),
    "λ": CostModel(0, 0, 0, 0, 1),
}
#: relative error of sums and quotients of floats
_ERROR = 1e-9
#: largest denominator of a coefficient that is written as a fraction, and digits of one that is written as a decimal
_DENOMINATOR, _DIGITS = 1 << 16, 4


@dataclass(frozen=True)
class Term:
    """One parameter's share of a cost, such as "1.75 n β" with 458.8 us.

    Attributes:
        symbol: the parameter.
        coefficient: as a person writes it, with n for the bytes of the vector: "1.75 n"; "" for 1.
        seconds: its value.
    """

    symbol: str
    coefficient: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.coefficient} {self.symbol}".strip()


def terms(cost: str, model: CostModel, p: int, n: int, s: int = 1) -> dict[str, float]:
    """Return the seconds that each parameter contributes to a predicted time, whose sum is the time.

    Args:
        cost: the expression.
        model: the machine.
        p: number of ranks.
        n: bytes of the full vector.
        s: number of segments.

    Raises:
        ValueError: the cost is not linear in the parameters, or has no value.
    """
    shares = {symbol: coefficient * model.symbols[symbol] for symbol, coefficient in _all(cost, p, n, s).items()}
    total = _value(cost, model, p, n, s)
    if not math.isclose(sum(shares.values()), total, rel_tol=_ERROR, abs_tol=1e-18):
        raise ValueError(f"cost {cost!r} is not linear in {', '.join(shares)}")
    return {**shares, CALL: model.call + n * model.call_byte}


def ruling(shares: Mapping[str, float]) -> tuple[str, float]:
    """Return (symbol of the largest term, its fraction of the sum); ("", 0) where nothing takes time."""
    total = sum(shares.values())
    if total <= 0:
        return "", 0.0
    symbol = max(shares, key=lambda one: shares[one])
    return symbol, shares[symbol] / total


def expanded(cost: str, model: CostModel, p: int, n: int, s: int = 1) -> tuple[Term, ...]:
    """Return the terms of a cost that are not 0 for these numbers; arguments as in `terms`."""
    shares = terms(cost, model, p, n, s)
    written = {symbol: _coefficient(cost, symbol, p, n, s) for symbol in _UNITS}
    found = [Term(symbol, text, shares[symbol]) for symbol, text in written.items() if text != "0"]
    return (*found, *([Term(CALL, "", shares[CALL])] if shares[CALL] else []))


def formula(cost: str, model: CostModel, p: int, n: int, s: int = 1) -> str:
    """Return the cost with numbers put in, line by line as at the top of this file; arguments as in `terms`."""
    parts = expanded(cost, model, p, n, s)
    lines = [
        cost + (f" + {CALL}" if any(part.symbol == CALL for part in parts) else ""),
        " + ".join(map(str, parts)) or "0",
        " + ".join(_microseconds(part.seconds) for part in parts),
        _microseconds(sum(part.seconds for part in parts)),
    ]
    return "\n".join(f"{'=' if k else ' '} {line}" for k, line in enumerate(lines) if k != 2 or len(parts) > 1)


def _all(cost: str, p: int, n: int, s: int) -> dict[str, float]:
    return {symbol: _value(cost, unit, p, n, s) for symbol, unit in _UNITS.items()}


def _value(cost: str, model: CostModel, p: int, n: int, s: int) -> float:
    try:
        return float(model.value(cost, p, n, s))
    except (ArithmeticError, TypeError) as error:
        raise ValueError(f"cost {cost!r} with p={p}, n={n}, s={s} has no value: {error}") from None


def _coefficient(cost: str, symbol: str, p: int, n: int, s: int) -> str:
    """Return a symbol's coefficient in writing: a number, a number times n, or the sum of both in parentheses."""
    fixed, one, value = (_value(cost, _UNITS[symbol], p, count, s) for count in (0, 1, n))
    each = one - fixed
    if not math.isclose(fixed + n * each, value, rel_tol=_ERROR):
        return _number(value)  # such as n//2
    if not each:
        return "" if fixed == 1 else _number(fixed)
    times_n = "n" if each == 1 else f"{_number(each)} n"
    return f"({_number(fixed)} + {times_n})" if fixed else times_n


def _number(value: float) -> str:
    """Return a number as a short decimal where it is one, else as a fraction, else rounded."""
    exact = Fraction(value).limit_denominator(_DENOMINATOR)
    if not math.isclose(exact, value, rel_tol=_ERROR):
        return f"{value:.4g}"
    if (exact * 10**_DIGITS).denominator == 1:
        return f"{float(exact):.{_DIGITS}f}".rstrip("0").rstrip(".")
    return str(exact)


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:,.1f} us" if seconds >= 1e-7 else f"{seconds * 1e6:.3f} us"
