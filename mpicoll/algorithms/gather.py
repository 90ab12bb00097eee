"""Gather and Gatherv: every rank's block goes to the root."""

from collections.abc import Callable
from functools import partial

from mpicoll.algorithms import phases, uniform
from mpicoll.algorithms.registry import packaged
from mpicoll.schedule.ir import Copy, Recv, Schedule, Scratch, Send, inp, out, step
from mpicoll.schedule.patterns import Subtree, doubling_tree

gather = partial(packaged, "gather")


@gather(
    cost="α + (p-2)*o + (p-1)/p*n*β",
    reference="folklore",
    forwards=False,
    scratch="0",
    uniform=uniform.AT_ROOT,
)
def linear(rank: int, size: int, root: int) -> Schedule:
    """Everybody sends its block to the root.

    Bandwidth-optimal in one round; the root handles p-1 messages.  The only one for Gatherv,
    where nobody but the root knows the counts.
    """
    if rank != root:
        return Schedule.of([step(Send(inp(rank), root))], size)
    receives = [Recv(out((root + k) % size), (root + k) % size) for k in range(1, size)]
    return Schedule.of([step(receives, Copy(out(rank), inp(rank)))], size)


@gather(
    cost="q*α + (p-1)/p*n*β",
    reference="Thakur, Rabenseifner, Gropp 2005",
    scratch="p/2",
    packed="p-2",
    uniform=uniform.TREE,
)
def binomial(rank: int, size: int, root: int) -> Schedule:
    """Blocks go up a binomial tree, each rank sending those of its subtree as one message.

    ceil(log2 p) rounds: short blocks on many ranks.
    """
    return _up(rank, size, root, *phases.rooted(rank, size, root))


@gather(
    cost="(p-2+s)*α + (p-1)*o + (p-1)/p*n*β",
    reference="chain; pipelined by blocks",
    scratch="p-2",
    uniform=uniform.CHAIN,
)
def ring(rank: int, size: int, root: int) -> Schedule:
    """Blocks pass along a chain to the root, a rank's own first, then those after it.

    Every rank talks to two neighbours only; the root receives one message at a time.
    """
    tmp = Scratch()
    rel = phases.relative(rank, size, root)
    behind = [phases.absolute(q, size, root) for q in range(rel + 1, size)]
    cells = [out(q) if rel == 0 else tmp.take(q) for q in behind]
    sends = [inp(rank), *cells] if rel else []
    steps = [step(Copy(out(rank), inp(rank)) if rel == 0 else ())]
    for k in range(max(len(cells), len(sends))):
        receive = Recv(cells[k], (rank + 1) % size) if k < len(cells) else ()
        steps.append(step(receive, Send(sends[k], (rank - 1) % size) if k < len(sends) else ()))
    return Schedule.of(steps, size, tmp)


@gather(
    cost="(lg+r)*α + (p-1)/p*n*β",
    reference="hypercube gather; Johnsson, Ho 1989",
    scratch="p-2**(lg-1)",
    packed="p-2+r",
    uniform=uniform.FOLD,
)
def recursive_doubling(rank: int, size: int, root: int) -> Schedule:
    """Partners 1, 2, 4, ... away join their blocks, on the way to the root; ranks off a power of two fold first.

    The rounds of a binomial tree, but every message is a range of ranks for every root, and needs no packing.
    """
    return _up(rank, size, root, doubling_tree(rank, size, root), int)


@gather(
    cost="(q+1)//2*(α + 2*o) + (p-1)/p*n*β",
    reference="k-nomial tree of radix 4",
    scratch="p/2",
    packed="p-2",
    uniform=uniform.TREE_4,
)
def knomial_4(rank: int, size: int, root: int) -> Schedule:
    """Blocks go up a tree of three more children a level, each rank sending those of its subtree as one message.

    Half the rounds of a binomial tree, with three messages each: short blocks.
    """
    return _up(rank, size, root, *phases.rooted(rank, size, root, 4))


def _up(rank: int, size: int, root: int, node: Subtree, name: Callable[[int], int]) -> Schedule:
    """Collect blocks up a tree, in the order of its places.

    Args:
        rank: this rank.
        size: number of ranks.
        root: the root.
        node: the rank's place in the tree.
        name: turns a place into a rank.
    """
    tmp, places = Scratch(), {name(place): place for place in node.places}
    if rank == root:
        held = out(places)
    else:
        held = tmp.take(places) if len(places) > 1 else inp(rank)
    own = held[places[rank] - node.places.start]
    copy = step(() if own == inp(rank) else Copy(own, inp(rank)))
    return Schedule.of([copy, *phases.gather_ranges(node, name, held)], size, tmp)
