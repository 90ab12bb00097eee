"""The run of a bound program in a blocking call: by itself, or together with the operations in flight."""

from __future__ import annotations

import os
import time

from mpicoll.runtime.program.bound import Bound
from mpicoll.runtime.progress import faults
from mpicoll.runtime.progress.modes import modes
from mpicoll.runtime.progress.operations import Operation, steps
from mpicoll.runtime.progress.traffic import Traffic
from mpicoll.runtime.progress.turns import in_flight, wait_for

#: seconds that a call with a time limit may wait before it is watched
PROMPT = 200e-6


def run(bound: Bound, traffic: Traffic) -> None:
    """Run a program to its end; with others in flight, advancing them too.

    A program that only launches ends on the device.  Its end is awaited where messages are in flight: the
    caller may wait for the device next, and nobody would advance what other ranks wait for before they launch.
    """
    if in_flight or bound.limited:
        messages = any(not o.started or o.bound.requests for o in in_flight)
        alone = not in_flight and bound.device < 0 and not modes()[1]
        reached = _run_promptly(bound, traffic) if alone else 0
        if reached < len(bound.actions):
            Operation(traffic, lambda operation: steps(operation, bound, reached), device=bound.device).wait()
        if messages and bound.mark is not None:
            wait_for(bound.mark())
        return
    try:
        bound.run()
    except BaseException as error:
        failed(bound, traffic, error)
        raise


def _run_promptly(bound: Bound, traffic: Traffic) -> int:
    """Run a program of host memory until it has waited for a while; return the position of the action to come.

    So a time limit costs next to nothing where nobody is late.
    """
    position, end = 0, 0.0
    bound.running = traffic.busy = True
    try:
        for position, action in enumerate(bound.actions):
            poll = bound.polls[position]
            while poll is not None and not poll():
                now = time.monotonic()
                end = end or now + PROMPT
                if now > end:
                    return position
                os.sched_yield()
            action()
    except BaseException as error:
        bound.reached = position
        failed(bound, traffic, error)
        raise
    finally:
        traffic.busy = False
    position, bound.running, traffic.ended = len(bound.actions), False, time.monotonic()
    traffic.moved += 1
    if bound.retired:
        bound.free()
    return position


def failed(bound: Bound, traffic: Traffic, error: BaseException) -> None:
    """Note that a program raised while it ran by itself; raises the error with more words, if there are any."""
    raised = faults.explained(error, bound.name.format(traffic.calls), traffic.rank, bound.pending(bound.reached))
    traffic.spoiled(bound, bound.reached, error)
    if raised is not error:
        raise raised from error
