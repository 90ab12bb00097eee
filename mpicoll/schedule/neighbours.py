"""Neighbour collectives: each block goes from its rank to one of its neighbours.

This one schedule is in no registry: what a rank does depends on its neighbourhood, and not
on rank and size alone.
"""

from __future__ import annotations

from functools import lru_cache

from mpicoll.schedule.ir import Copy, Recv, Schedule, Send, inp, out, step
from mpicoll.schedule.neighbourhood import Neighbourhood


@lru_cache(maxsize=256)
def linear(rank: int, neighbourhood: Neighbourhood, shared: bool) -> Schedule:
    """Start all sends and receives at once, and copy what the rank sends to itself.

    Args:
        rank: whose schedule it is.
        neighbourhood: of the rank.
        shared: all targets get the one block of the input (allgather); else each has its own (alltoall).
    """
    receives = [Recv(out(k), neighbourhood.sources[k]) for k in neighbourhood.arrivals(rank)]
    sends = [Send(inp(0 if shared else k), neighbourhood.targets[k]) for k in neighbourhood.departures(rank)]
    copies = [Copy(out(to), inp(0 if shared else k)) for to, k in neighbourhood.own(rank)]
    blocks = max(len(neighbourhood.sources), len(neighbourhood.targets))
    return Schedule.of([step(receives, sends, copies)], blocks)
