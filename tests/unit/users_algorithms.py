"""Algorithms as a user might register them, right and wrong."""

from itertools import count

import mpicoll
from mpicoll.algorithms import get
from mpicoll.schedule import Copy, Schedule, inp, out, step

FRESH = count(1000)


def ring(rank, size):
    return get("allreduce", "ring").function(rank, size)


def alone(rank, size):
    """Every rank keeps its own vector."""
    return Schedule.of([step(Copy(out(0), inp(0)))], 1)


def wrong_from(first):
    """An allreduce that is right for fewer ranks only."""
    return lambda rank, size: ring(rank, size) if size < first else alone(rank, size)


def register(function, collective="allreduce", **declared):
    mpicoll.algorithm(collective, name="mine", **declared)(function)


def planned(size, algorithm="mine", collective="allreduce", **facts):
    return mpicoll.plan(collective, size=size, nbytes=next(FRESH), algorithm=algorithm, **facts)
