"""Lower bounds: what a collective takes at least, whatever the algorithm.

Each rank has one port, through which a message goes out and another one comes in at the same time.  An allreduce
of 1 MiB on 8 ranks of the path host takes at least 459 us: its bytes on a link, 7/4 of the vector.

The three parts may overlap, so their sum is no lower bound; the largest of them is one.

Latency is counted in two ways.  One message after the other reaches p ranks in ceil(log2 p) α (Chan et al. 2007).
But a cost charges only o for a further message that is sent at once.  With such messages less is enough: the time
after which a broadcast has reached p ranks, if each that has it sends one more every o (Bar-Noy, Kipnis 1992).
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from functools import lru_cache

from mpicoll.analysis.cost import CostModel
from mpicoll.schedule.collectives import collective as row_of

CHAN = "Chan, Heimlich, Purkayastha, van de Geijn 2007"


@dataclass(frozen=True)
class Minimum:
    """A collective's least terms in the language of costs, with the reason.

    Allreduce: "2*(p-1)/p*n*β" and "(p-1)/p*n*γ".

    Attributes:
        bandwidth: bytes that some rank must send or receive; "0" for none.
        computation: bytes that some rank must combine, where all ranks share the work; "0" for none.
        source: where it comes from; for ours the reason.
    """

    bandwidth: str
    computation: str
    source: str


#: n is the message size of `dispatch.plan`; each is for 2 or more ranks
MINIMA = {
    "barrier": Minimum("0", "0", f"{CHAN}: every rank must hear of every other"),
    "bcast": Minimum("n*β", "0", f"{CHAN}: a rank must receive the vector"),
    "reduce": Minimum("n*β", "(p-1)/p*n*γ", f"{CHAN}: a rank must send its vector; p-1 combinations of each element"),
    "allreduce": Minimum(
        "2*(p-1)/p*n*β",
        "(p-1)/p*n*γ",
        f"{CHAN}; Patarasuk, Yuan 2009: each element is in p-1 messages until a rank has the result, and in p-1 after",
    ),
    "gather": Minimum("(p-1)/p*n*β", "0", f"{CHAN}: the root must receive the others' blocks"),
    "scatter": Minimum("(p-1)/p*n*β", "0", f"{CHAN}: the root must send the others' blocks"),
    "allgather": Minimum("(p-1)/p*n*β", "0", f"{CHAN}: each rank must receive the others' blocks"),
    "reduce_scatter": Minimum(
        "(p-1)/p*n*β",
        "(p-1)/p*n*γ",
        f"{CHAN}: a rank must send what it has for others; p-1 combinations of each element",
    ),
    "alltoall": Minimum(
        "(p-1)/p*n*β", "0", "Thakur, Rabenseifner, Gropp 2005; ours: each rank must send all blocks but its own"
    ),
    "scan": Minimum(
        "n*β",
        "(p-1)/p*n*γ",
        "ours: rank 1 must receive a vector; p-1 results of each element are new, one combination each",
    ),
    "exscan": Minimum(
        "n*β",
        "(p-2)/p*n*γ",
        "ours: rank 1 must receive a vector; p-2 results of each element are new, one combination each",
    ),
}


@dataclass(frozen=True)
class LowerBound:
    """Seconds that a collective takes at least, part by part.

    Attributes:
        latency: from the first message to the last, with messages that are sent at once.
        one_port: the same, one message after the other: ceil(log2 p) α.
        bandwidth: the bytes on the busiest link.
        computation: the combining, shared evenly among all ranks.
        call: what every call costs on top.
        source: where the bounds come from.
    """

    latency: float
    one_port: float
    bandwidth: float
    computation: float
    call: float
    source: str

    @property
    def seconds(self) -> float:
        """The largest part, and what every call costs on top: no cost is below."""
        return self.call + max(self.latency, self.bandwidth, self.computation)


def bound(collective: str, model: CostModel, p: int, n: int) -> LowerBound:
    """Return the lower bound of a collective.

    Args:
        collective: its name.
        model: the machine.
        p: number of ranks.
        n: message size in bytes, as in `dispatch.plan`.
    """
    least, call = MINIMA[row_of(collective).name], model.call + n * model.call_byte
    if p == 1:
        return LowerBound(0.0, 0.0, 0.0, 0.0, call, least.source)
    one_port, bandwidth, computation = (
        float(model.value(cost, p, n, 1)) for cost in ("q*α", least.bandwidth, least.computation)
    )
    return LowerBound(_reached(p, model.alpha, model.extra), one_port, bandwidth, computation, call, least.source)


@lru_cache(maxsize=256)
def _reached(p: int, alpha: float, extra: float) -> float:
    """Return the seconds until a broadcast has reached p ranks, each of which sends on as soon as it can.

    Args:
        p: number of ranks, 2 or more.
        alpha: seconds from a message's start to its end.
        extra: seconds between the starts of a rank's messages, at most alpha.
    """
    arrivals = [alpha]
    for _ in range(p - 2):
        first = arrivals[0]
        heapq.heapreplace(arrivals, first + min(extra, alpha))  # the sender's next message
        heapq.heappush(arrivals, first + alpha)  # the first message of the rank that was reached
    return arrivals[0]
