"""The cost model: an algorithm's declared cost, evaluated with a machine's parameters.

A cost is an expression in these names:

    p  ranks                       n  bytes of the full vector (see `message size` in dispatch.plan)
    q  ceil(log2 p)                lg floor(log2 p)           r  1 if p is no power of two, else 0
    s  segments
    α  time of one message without its bytes      o  extra time of one more message at once
    β  time of a byte on a link                   γ  time of reducing a byte of one operand
    λ  time of launching one reduction or copy

The language is that of `mpicoll.algorithms.expression`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from mpicoll.algorithms.expression import NAMES as RANKS
from mpicoll.algorithms.expression import compiled, evaluate, of_ranks

NAMES = RANKS | {"n", "s", "α", "o", "β", "γ", "λ"}

#: message sizes in bytes, and numbers of segments, for which a cost must have a value
SIZES = (0, 8, 1 << 10, 1 << 20, 1 << 30)
SEGMENTS = (1, 4, 32)


@dataclass(frozen=True)
class CostModel:
    """A machine's parameters, in seconds and seconds per byte.

    Attributes:
        alpha: one message, without its bytes.
        extra: one more message at the same time.
        beta: one byte on a link.
        gamma: reducing one byte of one operand.
        launch: starting one reduction or copy.
        call: what every call costs on top (copies to the host and back, where staged).
        call_byte: the same for a byte of the vector.
        source: where the numbers come from.
    """

    alpha: float
    extra: float
    beta: float
    gamma: float
    launch: float
    call: float = 0.0
    call_byte: float = 0.0
    source: str = ""

    def seconds(self, cost: str, p: int, n: int, s: int = 1) -> float:
        """Return the predicted time of a cost expression in seconds; infinite where it has no value.

        Args:
            cost: the expression.
            p: number of ranks.
            n: bytes of the full vector.
            s: number of segments.
        """
        try:
            value = float(self.value(cost, p, n, s))
        except (ArithmeticError, TypeError):
            return math.inf
        return math.inf if math.isnan(value) else max(value, 0.0) + self.call + n * self.call_byte

    def value(self, cost: str, p: int, n: int, s: int) -> Any:
        """Return the value of a cost expression; raises ArithmeticError for none; arguments as in `seconds`."""
        values = {**of_ranks(p), **self.symbols, "n": float(n), "s": float(s)}
        return evaluate(compiled("cost", cost, NAMES), values)

    @cached_property
    def symbols(self) -> dict[str, float]:
        """The parameters by the names that they have in costs."""
        return {"α": self.alpha, "o": self.extra, "β": self.beta, "γ": self.gamma, "λ": self.launch}


#: machines on which a cost must have a value: one where all takes time, one where local work takes none
_EXAMPLES = CostModel(5e-6, 1.5e-6, 1 / 4e9, 1 / 6e9, 2e-6), CostModel(0.33e-6, 0.018e-6, 1 / 333e9, 0.0, 0.0)


def check(cost: str, ranks: Iterable[int]) -> None:
    """Raise ValueError unless a cost is a finite time, not below 0, on any of these numbers of ranks."""
    cases = [(p, n, s, model) for p in ranks for n in SIZES for s in SEGMENTS for model in _EXAMPLES]
    compiled("cost", cost, NAMES)
    for p, n, s, model in cases:
        try:
            value = model.value(cost, p, n, s)
        except ArithmeticError as error:
            raise ValueError(f"cost {cost!r} with p={p}, n={n}, s={s}: {error}") from None
        if isinstance(value, complex) or not 0 <= value < math.inf:
            raise ValueError(f"cost {cost!r} with p={p}, n={n}, s={s} is {value!r}, no time")


@cache
def pipelined(cost: str) -> bool:
    """Tell whether a cost depends on the number of segments."""
    return "s" in compiled("cost", cost, NAMES).co_names
