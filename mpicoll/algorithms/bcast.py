"""Bcast: the root's vector goes to every rank; input and output are one buffer."""

from functools import partial

from mpicoll.algorithms import phases, uniform
from mpicoll.algorithms.registry import packaged
from mpicoll.schedule.ir import Recv, Schedule, Send, out, step
from mpicoll.schedule.patterns import bine as bine_node
from mpicoll.schedule.patterns import fold
from mpicoll.schedule.reverse import reverse_steps

bcast = partial(packaged, "bcast")


@bcast(
    cost="α + (p-2)*o + (p-1)*n*β",
    reference="folklore",
    blocks="1",
    scratch="0",
    uniform=uniform.AT_ROOT,
)
def linear(rank: int, size: int, root: int) -> Schedule:
    """The root sends everything to everybody.

    One step; the root's link carries the vector p-1 times: for few ranks or tiny vectors.
    """
    if rank != root:
        return Schedule.of([step(Recv(out(0), root))], 1)
    return Schedule.of([step(Send(out(0), (root + k) % size) for k in range(1, size))], 1)


@bcast(
    cost="q*(α + n*β)",
    reference="Thakur, Rabenseifner, Gropp 2005",
    blocks="1",
    scratch="0",
    uniform=uniform.TREE,
)
def binomial(rank: int, size: int, root: int) -> Schedule:
    """Every rank that has the vector passes it on: 1, 2, 4, ... ranks have it.

    ceil(log2 p) rounds: short vectors on many ranks.
    """
    return Schedule.of(phases.tree_bcast(*phases.rooted(rank, size, root), out(0)), 1)


@bcast(
    cost="(p-2+s)*(α + n/s*β)",
    reference="chain; pipelined by segments",
    blocks="1",
    scratch="0",
    uniform=uniform.CHAIN,
)
def ring(rank: int, size: int, root: int) -> Schedule:
    """The vector passes along a chain; cut into segments, all links work at once.

    Approaches one vector's time on a link for any p: long vectors.
    """
    return Schedule.of(phases.chain_bcast(rank, size, root, out(0)), 1)


@bcast(
    cost="2*lg*α + 2*(p-1)/p*n*β + r*(α + n*β)",
    reference="van de Geijn; Thakur, Rabenseifner, Gropp 2005",
    blocks="2**lg",
    scratch="0",
    uniform=uniform.FOLD,
)
def recursive_doubling(rank: int, size: int, root: int) -> Schedule:
    """Scatter by halving, then partners 1, 2, 4, ... away exchange all that they have; extra ranks get the whole.

    Bandwidth-optimal in 2 log2 p rounds for powers of two: middle and long vectors.
    """
    name = partial(phases.absolute, size=size, root=root)
    folded = fold(phases.relative(rank, size, root), size)
    blocks = out(range(1 << folded.bits))
    steps = []
    if folded.index is not None:
        steps = reverse_steps(phases.halves_gather(folded, blocks, name))
        steps += phases.doubling_allgather(folded, blocks, name)
    return Schedule.of(steps + phases.fold_out(folded, blocks, name), len(blocks))


@bcast(
    cost="(q+p-1)*α + 2*(p-1)/p*n*β",
    reference="van de Geijn; Thakur, Rabenseifner, Gropp 2005",
    blocks="p",
    scratch="0",
    uniform="It is the scatter of a binomial tree and the allgather of a ring, both uniform, on the same blocks.",
)
def scatter_allgather(rank: int, size: int, root: int) -> Schedule:
    """Scatter p blocks down a binomial tree, then pass each around a ring.

    Every link carries twice the vector at most, whatever p: long vectors on many ranks.
    """
    node, name = phases.rooted(rank, size, root)  # block j belongs to the j-th rank after the root
    spread = phases.scatter_ranges(node, name, out(node.places))
    around = phases.ring_allgather(node.places.start, size, out, name)
    return Schedule.of(spread + around, size)


@bcast(
    cost="(2*q+2*s-2)*(α + n/(2*s)*β)",
    reference="Sanders, Speck, Träff 2009",
    blocks="2",
    scratch="0",
    uniform=uniform.TWO_TREES,
)
def double_binary_tree(rank: int, size: int, root: int) -> Schedule:
    """Half of the vector goes down each of two binary trees; who is inner in one is a leaf in the other.

    All links are used in both directions and the depth is log2 p: long vectors on many ranks.
    """
    trees = phases.tree_pair(rank, size, root)
    if rank == root:
        return Schedule.of([step(Send(out(half), top) for top in tops) for half, (_, tops) in enumerate(trees)], 2)
    # the half that this rank passes on comes first, or two ranks could wait for each other
    inner, leaf = (1, 0) if trees[1][1] else (0, 1)
    (above, below), (other, _) = trees[inner], trees[leaf]
    passes = [Send(out(inner), child) for child in below]
    return Schedule.of([step(Recv(out(inner), above)), step(passes, Recv(out(leaf), other))], 2)


@bcast(
    cost="(q+1)//2*(α + 2*o + 3*n*β)",
    reference="k-nomial tree of radix 4",
    blocks="1",
    scratch="0",
    uniform=uniform.TREE_4,
)
def knomial_4(rank: int, size: int, root: int) -> Schedule:
    """Every rank that has the vector passes it to three at once: 1, 4, 16, ... ranks have it.

    Half the rounds of a binomial tree, with three messages each: short vectors.
    """
    return Schedule.of(phases.tree_bcast(*phases.rooted(rank, size, root, 4), out(0)), 1)


@bcast(
    cost="q*(α + n*β)",
    reference="De Sensi et al. 2025",
    power_of_two=True,
    blocks="1",
    scratch="0",
    uniform=uniform.BINE,
)
def bine(rank: int, size: int, root: int) -> Schedule:
    """Every rank that has the vector passes it on, to the left and to the right in turn.

    The rounds of a binomial tree, on about two thirds of its way: where near ranks are near in the network.
    """
    node = bine_node(phases.relative(rank, size, root), size)
    return Schedule.of(phases.tree_bcast(node, partial(phases.absolute, size=size, root=root), out(0)), 1)
