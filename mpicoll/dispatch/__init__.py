"""Dispatch: from facts that are equal on all ranks to an algorithm, and why."""

from mpicoll.dispatch.plan import Plan, PlanKey, make_plan, plan

__all__ = ["Plan", "PlanKey", "make_plan", "plan"]
