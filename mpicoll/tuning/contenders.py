"""The tuner's plan: message sizes, the probes of a path, and the choices that are worth a try at each size."""

from __future__ import annotations

import math
from dataclasses import replace

from mpicoll.dispatch.facts import Facts
from mpicoll.dispatch.rules import NATIVE, Choice
from mpicoll.dispatch.select import candidates
from mpicoll.dispatch.tuning import Tuning

#: bytes of the first sizes, which hardly differ; bytes from which they grow by a factor
SHORT, FROM, FACTOR = (8, 256), 1024, 4
#: bytes between which they grow by its root: MPI libraries change their protocol there, and what sends halves does so
#: at twice the size
PROTOCOLS = 4096, 65536
#: bytes of the longest message, where none is given
LONGEST = {"host": 4 << 20, "device": 256 << 20}
#: a choice whose predicted time is so many times the least is not measured; a race of it would be short, and a wrong
#: prediction would leave it out of all longer messages
HOPELESS = 10.0
#: the same where predictions follow from times of sizes nearby
FAR = 1.6
#: calls whose times fix the parameters of a path's model: method, algorithm, message sizes in bytes
PROBES = (
    ("bcast", "linear", (8, 1 << 16, 1 << 20)),
    ("bcast", "binomial", (8,)),
    ("allgather", "ring", (8, 1 << 20)),
    ("reduce", "linear", (8, 1 << 18)),
    ("reduce_scatter_block", "all_pairs", (8, 1 << 20)),
    ("allreduce", "ring", (8, 1 << 16, 1 << 20)),
    ("alltoall", "linear", (8, 1 << 18)),
)


def sizes(longest: int) -> list[int]:
    """Return message sizes in bytes, ascending, the longest among them."""
    found, nbytes = [one for one in SHORT if one < longest], FROM
    while nbytes < longest:
        found.append(nbytes)
        nbytes *= math.isqrt(FACTOR) if PROTOCOLS[0] <= nbytes < PROTOCOLS[1] else FACTOR
    return [*found, longest]


def contenders(facts: Facts, tuning: Tuning, hopeless: float = HOPELESS, *, native: bool = False) -> list[Choice]:
    """Return what is worth a try for a call, the least predicted time first; a pipelined algorithm uncut as well.

    Args:
        facts: the call.
        tuning: predicts.
        hopeless: times the least predicted time beyond which a choice is not.
        native: MPI's own collective is, too, where it does the same.
    """
    able = sorted((c for c in candidates(facts, tuning) if c.seconds is not None), key=lambda c: c.seconds or 0.0)
    most = hopeless * (able[0].seconds or 0.0)
    found: dict[Choice, None] = {}
    for one in able:
        if (one.seconds or 0.0) <= most:
            found[one.choice] = None
            if one.choice.segments > 1:
                found[replace(one.choice, segments=1)] = None
    own = [Choice(NATIVE)] if native and not facts.not_native else []
    return [*found, *own]
