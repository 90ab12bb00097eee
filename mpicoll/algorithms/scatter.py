"""Scatter and Scatterv: the root's blocks go to their ranks, most often as a gather reversed in time."""

from functools import partial

from mpicoll.algorithms import gather, uniform
from mpicoll.algorithms.registry import packaged
from mpicoll.schedule.ir import Copy, Recv, Schedule, Send, inp, out, step
from mpicoll.schedule.reverse import reverse

scatter = partial(packaged, "scatter")


@scatter(
    cost="α + (p-2)*o + (p-1)/p*n*β",
    reference="folklore",
    forwards=False,
    scratch="0",
    uniform=uniform.AT_ROOT,
)
def linear(rank: int, size: int, root: int) -> Schedule:
    """The root sends everybody its block.

    Bandwidth-optimal in one round; the root handles p-1 messages.  The only one for Scatterv,
    where nobody but the root knows the counts.
    """
    if rank != root:
        return Schedule.of([step(Recv(out(rank), root))], size)
    sends = [Send(inp((root + k) % size), (root + k) % size) for k in range(1, size)]
    return Schedule.of([step(sends, Copy(out(rank), inp(rank)))], size)


@scatter(
    cost="q*α + (p-1)/p*n*β",
    reference="Thakur, Rabenseifner, Gropp 2005",
    scratch="p/2",
    packed="p-2",
    uniform=uniform.TREE,
)
def binomial(rank: int, size: int, root: int) -> Schedule:
    """Blocks go down a binomial tree, each rank receiving those of its subtree as one message.

    ceil(log2 p) rounds: short blocks on many ranks.
    """
    return reverse(gather.binomial(rank, size, root))


@scatter(
    cost="(p-2+s)*α + (p-1)*o + (p-1)/p*n*β",
    reference="chain; pipelined by blocks",
    scratch="p-2",
    uniform=uniform.CHAIN,
)
def ring(rank: int, size: int, root: int) -> Schedule:
    """Blocks pass along a chain from the root, the farthest first; each rank keeps the last.

    Every rank talks to two neighbours only; the root sends one message at a time.
    """
    return reverse(gather.ring(rank, size, root))


@scatter(
    cost="(lg+r)*α + (p-1)/p*n*β",
    reference="hypercube scatter; Johnsson, Ho 1989",
    scratch="p-2**(lg-1)",
    packed="p-2+r",
    uniform=uniform.FOLD,
)
def recursive_doubling(rank: int, size: int, root: int) -> Schedule:
    """Each rank gives half of its blocks to partners ..., 4, 2, 1 away; off a power of two neighbours share at last.

    The rounds of a binomial tree, but every message is a range of ranks for every root, and needs no packing.
    """
    return reverse(gather.recursive_doubling(rank, size, root))


@scatter(
    cost="(q+1)//2*(α + 2*o) + (p-1)/p*n*β",
    reference="k-nomial tree of radix 4",
    scratch="p/2",
    packed="p-2",
    uniform=uniform.TREE_4,
)
def knomial_4(rank: int, size: int, root: int) -> Schedule:
    """Blocks go down a tree of three more children a level, each rank receiving those of its subtree as one message.

    Half the rounds of a binomial tree, with three messages each: short blocks.
    """
    return reverse(gather.knomial_4(rank, size, root))
