"""Plans of neighbour collectives, which have one algorithm."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from mpicoll.dispatch.explain import Explanation, Verdict, plural
from mpicoll.dispatch.explain_text import call_text
from mpicoll.dispatch.facts import Facts
from mpicoll.dispatch.plan import Plan
from mpicoll.dispatch.plan_key import PlanKey
from mpicoll.dispatch.select import Candidate
from mpicoll.schedule.neighbourhood import Neighbourhood
from mpicoll.schedule.neighbours import linear

#: who chooses, where there is one way
REASON = "the only algorithm"


@dataclass(frozen=True, eq=False)
class NeighbourPlan(Plan):
    """The plan of a neighbour collective: one algorithm in one segment, on a path of messages."""

    def candidates(self) -> list[Candidate]:
        """Return nothing: there is no choice."""
        return []

    def explanation(self) -> Explanation:
        """Return that there is no choice."""
        return Explanation(self.reason, (Verdict(self.choice, chosen=True, why=REASON),), (), (), (), self.unoffered)

    def words(self) -> str:
        """Return what runs, in words."""
        messages = sum(len(one.messages) for one in self.schedule.steps)
        return f"{self.algorithm}, path {self.path}, {plural(messages, 'message')}, {self.reason}"

    def __str__(self) -> str:
        facts = self.key.facts
        lines = [f"{call_text(facts)} ({facts.memory} arrays, rank {self.key.rank})", self.words()]
        return "\n  ".join([*lines, *(f"path {name}: {why}" for name, why in self.unoffered)])


@lru_cache(maxsize=1024)
def neighbour_plan(facts: Facts, rank: int, neighbourhood: Neighbourhood, shared: bool) -> NeighbourPlan:
    """Return the plan of a neighbour collective; the same object for the same arguments.

    Args:
        facts: of the call, with one path.
        rank: whose plan it is.
        neighbourhood: of the rank.
        shared: as in `linear`.
    """
    schedule = linear(rank, neighbourhood, shared)
    return NeighbourPlan(PlanKey(facts, rank), "linear", 1, 1, facts.paths[0], REASON, schedule)
