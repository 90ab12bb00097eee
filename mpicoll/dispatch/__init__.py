"""Dispatch: from facts that are equal on all ranks to an algorithm, and why."""

from mpicoll.dispatch.plan import Plan, make_plan, plan
from mpicoll.dispatch.plan_key import PlanKey

__all__ = ["Plan", "PlanKey", "make_plan", "plan"]
