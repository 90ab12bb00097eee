"""Factors that decide: the terms of a cost, and the one that makes one way to all-reduce slower than another.

An allreduce of 1 MiB on 4 ranks by the ring has 6 messages, one after the other (α), 1.5 MiB on each link (β) and
0.75 MiB to reduce (γ).  With the parameters of the path host these are 30, 393 and 131 us: bandwidth takes most.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from mpicoll.algorithms import registry
from mpicoll.analysis.terms import WORDS, terms
from mpicoll.dispatch.paths import PATHS
from mpicoll.dispatch.plan import Plan
from mpicoll.dispatch.predict import waves
from mpicoll.schedule.ir import Send

#: bandwidth is that of the root's link where it carries so many times the bytes of any other rank's
ROOTED = 1.25
#: predicted times that differ by less than this part tell nothing
HARDLY = 0.05


@dataclass(frozen=True)
class Prediction:
    """The predicted time of calls that are made one after the other.

    Attributes:
        seconds: by factor, which is what takes the time of a term.
        rooted: the root's link carries more than any other.
    """

    seconds: Mapping[str, float]
    rooted: bool = False

    @property
    def total(self) -> float:
        """Predicted seconds of all calls."""
        return sum(self.seconds.values())

    def name(self, factor: str) -> str:
        """Return a factor's name; bandwidth is the root's where that one carries the most."""
        return "the root's link" if factor == WORDS["β"] and self.rooted else factor

    @property
    def largest(self) -> tuple[str, float]:
        """The factor that takes most of the time: (its name, its part of the whole)."""
        factor = max(self.seconds, key=lambda factor: self.seconds[factor])
        return self.name(factor), self.seconds[factor] / (self.total or 1.0)

    def beyond(self, other: Prediction) -> str:
        """Return the factor that makes this slower than the other one; "" if it is not slower, or hardly."""
        if self.total <= (1 + HARDLY) * other.total:
            return ""
        return self.name(max(self.seconds, key=lambda factor: self.seconds[factor] - other.seconds[factor]))


def predict(plans: Iterable[Plan]) -> Prediction:
    """Return the predicted time of calls, from the costs of their algorithms and what each rank's port carries."""
    seconds = dict.fromkeys(WORDS.values(), 0.0)
    ports: list[float] = []
    for plan in plans:
        facts, path = plan.key.facts, PATHS[plan.path]
        card, n = registry.get(facts.collective, plan.algorithm), facts.nbytes or 0
        segments = plan.segments if path.takes_segments else waves(card, facts, plan.path)
        for symbol, value in terms(card.cost, path.model, facts.size, n, segments).items():
            seconds[WORDS[symbol]] += value
        carried = carries(facts.collective, plan.algorithm, facts.size)
        ports = [n * part + before for part, before in zip(carried, ports or [0.0] * facts.size, strict=True)]
    return Prediction(seconds, ports[0] >= ROOTED * max(ports[1:], default=0.0) > 0)


@lru_cache(maxsize=256)
def carries(collective: str, algorithm: str, size: int) -> tuple[float, ...]:
    """Return for each rank what it sends or receives, the larger of both, as a part of the vector.

    In a reduce by `linear` on 4 ranks the root receives three vectors, and each of the others sends one: (3, 1, 1, 1).

    Args:
        collective: the collective.
        algorithm: its name; the root is rank 0.
        size: number of ranks.
    """
    card = registry.get(collective, algorithm)
    sent, received = [0] * size, [0] * size
    for rank, schedule in enumerate(card.schedules(size)):
        for message in (m for step in schedule.steps for m in step.messages if isinstance(m, Send)):
            sent[rank] += len(message.source)
            received[message.peer] += len(message.source)
    blocks = card.vector_blocks(size)
    return tuple(max(pair) / blocks for pair in zip(sent, received, strict=True))
