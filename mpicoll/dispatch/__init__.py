"""Which: from facts that are equal on all ranks to an algorithm, and why."""

from mpicoll.dispatch.plan import Key, Plan, make_plan, plan

__all__ = ["Key", "Plan", "make_plan", "plan"]
