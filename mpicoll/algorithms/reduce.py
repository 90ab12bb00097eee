"""Reduce: all vectors are combined, the root gets the result."""

from collections.abc import Callable
from functools import partial

from mpicoll.algorithms import phases, uniform
from mpicoll.algorithms.registry import packaged
from mpicoll.schedule.ir import Copy, Recv, Reduce, Schedule, Scratch, Send, Step, inp, out, step
from mpicoll.schedule.patterns import TreeNode, doubling_tree, fold
from mpicoll.schedule.patterns import bine as bine_node

reduce = partial(packaged, "reduce")


@reduce(
    cost="α + (p-2)*o + (p-1)*n*β + λ + (p-1)*n*γ",
    reference="folklore",
    left_fold=True,
    blocks="1",
    scratch="p-1",
    uniform=uniform.AT_ROOT,
)
def linear(rank: int, size: int, root: int) -> Schedule:
    """Everybody sends to the root, which combines all in rank order with one fused reduction.

    One step; the root's link carries p-1 vectors: for few ranks or short vectors.
    """
    tmp = Scratch()
    if rank != root:
        return Schedule.of([step(Send(inp(0), root))], 1)
    operands = {q: inp(0) if q == rank else tmp.take(0) for q in range(size)}
    if size == 1:
        return Schedule.of([step(Copy(out(0), inp(0)))], 1)
    receives = [Recv(cells, q) for q, cells in operands.items() if q != rank]
    return Schedule.of([step(receives, Reduce(out(0), tuple(operands.values())))], 1, tmp)


@reduce(
    cost="q*(α + n*β + λ + (lg+1)/2*n*γ)",
    reference="Thakur, Rabenseifner, Gropp 2005",
    blocks="1",
    scratch="q",
    uniform=uniform.TREE,
)
def binomial(rank: int, size: int, root: int) -> Schedule:
    """Vectors are combined up a binomial tree, one fused reduction a rank.

    ceil(log2 p) rounds: short vectors on many ranks.
    """
    return _up(rank, root, *phases.rooted(rank, size, root))


@reduce(
    cost="(p-2+s)*(α + λ + n/s*(β+γ))",
    reference="chain; pipelined by segments",
    blocks="1",
    scratch="1",
    uniform=uniform.CHAIN,
)
def ring(rank: int, size: int, root: int) -> Schedule:
    """Partial sums pass along a chain to the root; cut into segments, all links work at once.

    Approaches one vector's time on a link for any p: long vectors.
    """
    tmp = Scratch()
    target = out(0) if rank == root else None
    return Schedule.of(phases.chain_reduce(rank, size, root, inp(0), target, tmp), 1, tmp)


@reduce(
    cost="(lg+r)*(α + n*β + λ + (lg+1)/2*n*γ)",
    reference="Thakur, Rabenseifner, Gropp 2005",
    ordered=True,
    blocks="1",
    scratch="q",
    uniform=uniform.FOLD,
)
def recursive_doubling(rank: int, size: int, root: int) -> Schedule:
    """Partners 1, 2, 4, ... away combine what they have, on the way to the root; ranks off a power of two fold first.

    The rounds of a binomial tree, but in rank order for every root: operators that do not commute.
    """
    return _up(rank, root, doubling_tree(rank, size, root), int)


@reduce(
    cost="(2*q+2*s-2)*(α + λ + n/(2*s)*(β+γ))",
    reference="Sanders, Speck, Träff 2009",
    blocks="2",
    scratch="3",
    uniform=uniform.TWO_TREES,
)
def double_binary_tree(rank: int, size: int, root: int) -> Schedule:
    """Half of the vector is combined up each of two binary trees; who is inner in one is a leaf in the other.

    All links are used in both directions and the depth is log2 p: long vectors on many ranks.
    """
    tmp = Scratch()
    trees = phases.tree_pair(rank, size, root)
    if rank == root:
        return Schedule.of([_combined_at_root(half, tops, tmp) for half, (_, tops) in enumerate(trees)], 2, tmp)
    inner, leaf = (0, 1) if trees[0][1] else (1, 0)  # a leaf in both sends its halves in order
    (above, below), (other, _) = trees[inner], trees[leaf]
    received = [tmp.take(inner) for _ in below]
    total = tmp.take(inner) if below else inp(inner)
    receives = [Recv(cells, child) for cells, child in zip(received, below, strict=True)]
    sums = [Reduce(total, (inp(inner), *received))] if below else []
    return Schedule.of([step(receives, Send(inp(leaf), other), sums), step(Send(total, above))], 2, tmp)


def _combined_at_root(half: int, tops: list[int], tmp: Scratch) -> Step:
    """Combine what comes from the top of a tree with the root's own."""
    if not tops:
        return step(Copy(out(half), inp(half)))
    received = tmp.take(half)
    return step(Recv(received, tops[0]), Reduce(out(half), (inp(half), received)))


@reduce(
    cost="2*lg*α + 2*(p-1)/p*n*β + lg*λ + (p-1)/p*n*γ + r*(α + λ + n*(β+γ))",
    reference="Rabenseifner 2004; Thakur, Rabenseifner, Gropp 2005",
    blocks="2**lg",
    scratch="(2+r)*2**lg-1",
    uniform=uniform.FOLD,
)
def reduce_scatter_gather(rank: int, size: int, root: int) -> Schedule:
    """Reduce-scatter by halving, then gather the blocks at the root (Rabenseifner).

    The root's link carries two vectors, in 2 log2 p rounds: long vectors on many ranks.
    """
    tmp = Scratch()
    folded = fold(phases.relative(rank, size, root), size)
    blocks = range(1 << folded.bits)

    def name(rel: int) -> int:
        return phases.absolute(rel, size, root)

    if size == 1:
        return Schedule.of([step(Copy(out(blocks), inp(blocks)))], 1)
    target = out(blocks) if rank == root else tmp.take(blocks)
    steps, held = phases.fold_in(folded, inp(blocks), target, tmp, name)
    if folded.index is not None:
        steps += phases.halving_reduce_scatter(folded, held, target, tmp, name)
        steps += phases.halves_gather(folded, target, name)
    return Schedule.of(steps, len(blocks), tmp)


@reduce(
    cost="(q+1)//2*(α + 2*o + 3*n*β + λ) + 3/8*q*(q+2)*n*γ",
    reference="k-nomial tree of radix 4",
    blocks="1",
    scratch="3/2*(q+1)",
    uniform=uniform.TREE_4,
)
def knomial_4(rank: int, size: int, root: int) -> Schedule:
    """Vectors are combined up a tree of three more children a level, one fused reduction a rank.

    Half the rounds of a binomial tree, with three messages each: short vectors.
    """
    return _up(rank, root, *phases.rooted(rank, size, root, 4))


@reduce(
    cost="q*(α + n*β + λ + (lg+1)/2*n*γ)",
    reference="De Sensi et al. 2025",
    power_of_two=True,
    blocks="1",
    scratch="q",
    uniform=uniform.BINE,
)
def bine(rank: int, size: int, root: int) -> Schedule:
    """Vectors are combined up a tree whose children are to the left and to the right in turn.

    The rounds of a binomial tree, on about two thirds of its way: where near ranks are near in the network.
    """
    node = bine_node(phases.relative(rank, size, root), size)
    return _up(rank, root, node, partial(phases.absolute, size=size, root=root))


def _up(rank: int, root: int, node: TreeNode, name: Callable[[int], int]) -> Schedule:
    """Combine up a tree; arguments as in `phases.tree_reduce`."""
    tmp = Scratch()
    return Schedule.of(phases.tree_reduce(rank, node, name, inp(0), out(0) if rank == root else None, tmp), 1, tmp)
