"""The cost model: an algorithm's declared cost, evaluated with a machine's parameters.

A cost is an expression in these names:

    p  ranks                       n  bytes of the full vector (see `message size` in dispatch.plan)
    q  ceil(log2 p)                lg floor(log2 p)           r  1 if p is no power of two, else 0
    s  segments
    α  time of one message without its bytes      o  extra time of one more message at once
    β  time of a byte on a link                   γ  time of reducing a byte of one operand
    λ  time of launching one reduction or copy
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from types import CodeType

NAMES = frozenset({"p", "n", "q", "lg", "r", "s", "α", "o", "β", "γ", "λ"})


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
        """Return the predicted time of a cost expression."""
        lg = p.bit_length() - 1
        values = {
            "p": p,
            "n": n,
            "q": (p - 1).bit_length(),
            "lg": lg,
            "r": 0 if p == 1 << lg else 1,
            "s": s,
            "α": self.alpha,
            "o": self.extra,
            "β": self.beta,
            "γ": self.gamma,
            "λ": self.launch,
        }
        return max(float(eval(_compiled(cost), {"__builtins__": {}}, values)), 0.0) + self.call + n * self.call_byte


@cache
def _compiled(cost: str) -> CodeType:
    code = compile(cost, "<cost>", "eval")
    unknown = set(code.co_names) - NAMES
    if unknown:
        raise ValueError(
            f"cost {cost!r} uses unknown names {', '.join(sorted(unknown))}; known: {', '.join(sorted(NAMES))}"
        )
    return code


def pipelined(cost: str) -> bool:
    """Tell whether a cost depends on the number of segments."""
    return "s" in _compiled(cost).co_names


#: by how arrays travel; replaced by measured models where a tuner has written them
MODELS = {
    "host": CostModel(
        5e-6, 1.5e-6, 1 / 4e9, 1 / 6e9, 2e-6, source="2 cores, shared memory, persistent requests through mpi4py"
    ),
    "mapped": CostModel(
        0.33e-6, 0.018e-6, 1 / 333e9, 0.0, 0.0, 15.4e-6, source="fitted to 314 times on 4 H200, 2026-11-28"
    ),
    "direct": CostModel(
        13.2e-6, 0.36e-6, 1 / 325e9, 1 / 1770e9, 13.8e-6, 23.2e-6, source="fitted to 266 times on 4 H200, 2026-11-28"
    ),
    "staged": CostModel(
        5e-6,
        1.5e-6,
        1 / 10e9,
        1 / 8e9,
        2e-6,
        21e-6,
        0.3e-9,
        source="host messages, copies over PCIe; of a call as in 152 times on 4 H100, to 64 KiB, 2026-11-28",
    ),
}
