"""From a call's operands to its plan."""

from __future__ import annotations

import sys
from dataclasses import replace

from mpicoll.dispatch.facts import Facts
from mpicoll.dispatch.neighbour_plan import neighbour_plan
from mpicoll.dispatch.paths import PATHS, wanted
from mpicoll.dispatch.plan import Plan, make_plan
from mpicoll.dispatch.plan_key import PlanKey
from mpicoll.errors import UnsupportedError
from mpicoll.kinds import PLAN
from mpicoll.runtime.arguments.operands import Operands
from mpicoll.runtime.context.context import Context
from mpicoll.runtime.cuda.streams import CAPTURED
from mpicoll.runtime.paths.native import not_native
from mpicoll.runtime.paths.offer import offered, reasons
from mpicoll.settings import settings


def explained(plan: Plan, operands: Operands, context: Context) -> Plan:
    """Return a plan that says which paths the call could not take, and why."""
    unoffered = tuple((name, why) for name, why in reasons(context, operands).items() if why)
    return replace(plan, unoffered=unoffered) if unoffered else plan


def tell_choice(plan: Plan, context: Context) -> None:
    """Print a choice on rank 0 where `debug` asks for it, once for a communicator: a line on the standard error."""
    if settings.debug != PLAN or context.rank:
        return
    line, told = plan.line, context.kept("choices told", set[str])
    if line not in told:
        told.add(line)
        print(f"[mpicoll] {line}", file=sys.stderr, flush=True)


def plan_for(
    operands: Operands,
    context: Context,
    algorithm: str | None,
    rules: str,
    scratch_limit: int | None = None,
    captured: bool = False,
) -> Plan:
    """Return the plan for a call; nothing is sent.

    Args:
        operands: the call.
        context: the communicator's.
        algorithm: as in the call.
        rules: of the communicator.
        scratch_limit: bytes of scratch at most; the setting if None.
        captured: the call is captured into a CUDA graph.

    Raises:
        UnsupportedError: what is forced cannot serve, or the call cannot be captured.
    """
    if operands.neighbours is not None:
        return _neighbour_plan(operands, context, captured)
    facts = Facts(
        operands.row.name,
        context.size,
        operands.nbytes,
        "host" if operands.device < 0 else "device",
        operands.op.commutative if operands.op else True,
        operands.counts_known,
        offered(context, operands, captured=captured),
        settings.segment_bytes,
        settings.reproducible if operands.row.reducing else "",
        gpus=context.gpus if operands.device >= 0 else 0,
        topology=context.topology,
        not_native=not_native(operands),
    )
    limit, tuning = scratch_limit or settings.scratch_limit, context.tuning()
    asked = algorithm or "", rules, settings.algorithms
    key = PlanKey(facts, context.rank, operands.root, *asked, tuning, limit, settings.native)
    try:
        return make_plan(key)
    except UnsupportedError as error:
        if captured:
            raise UnsupportedError(f"{error} ({CAPTURED})") from None
        raise


def _neighbour_plan(operands: Operands, context: Context, captured: bool) -> Plan:
    """Return the plan of a neighbour collective, on the best path of messages; arguments as in `plan_for`."""
    if captured:
        raise UnsupportedError(f"{operands.method}: {CAPTURED}, which neighbour collectives cannot be part of")
    assert operands.neighbours is not None
    usable = [name for name, why in reasons(context, operands).items() if not why and PATHS[name].takes_segments]
    path = name if (name := wanted()) in usable else usable[0]
    memory = "host" if operands.device < 0 else "device"
    facts = Facts(operands.row.name, context.size, None, memory, counts_known=False, paths=(path,))
    return neighbour_plan(facts, context.rank, operands.neighbours, "allgather" in operands.row.name)
