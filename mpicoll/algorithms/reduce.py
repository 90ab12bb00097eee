"""Reduce: all vectors are combined, the root gets the result."""

from functools import partial

from mpicoll.algorithms import phases
from mpicoll.algorithms.registry import algorithm
from mpicoll.schedule.ir import Copy, Recv, Reduce, Schedule, Scratch, Send, inp, out, step
from mpicoll.schedule.patterns import fold

reduce = partial(algorithm, "reduce", verified=False)


@reduce(cost="α + (p-2)*o + (p-1)*n*β + λ + (p-1)*n*γ", reference="folklore", left_fold=True)
def linear(rank: int, size: int, root: int) -> Schedule:
    """Everybody sends to the root, which combines all in rank order with one fused reduction.

    One round; the root's link carries p-1 vectors: for few ranks or short vectors.
    """
    tmp = Scratch()
    if rank != root:
        return Schedule.of([step(Send(inp(0), root))], 1)
    operands = {q: inp(0) if q == rank else tmp.take(0) for q in range(size)}
    if size == 1:
        return Schedule.of([step(Copy(out(0), inp(0)))], 1)
    receives = [Recv(cells, q) for q, cells in operands.items() if q != rank]
    return Schedule.of([step(receives, Reduce(out(0), tuple(operands.values())))], 1, tmp)


@reduce(cost="q*(α + n*β + λ + n*γ)", reference="Thakur, Rabenseifner, Gropp 2005")
def binomial(rank: int, size: int, root: int) -> Schedule:
    """Vectors are combined up a binomial tree, one fused reduction a rank.

    ceil(log2 p) rounds: short vectors on many ranks.
    """
    tmp = Scratch()
    target = out(0) if rank == root else None
    return Schedule.of(phases.binomial_reduce(rank, size, root, inp(0), target, tmp), 1, tmp)


@reduce(cost="(p-2+s)*(α + λ + n/s*(β+γ))", reference="chain; pipelined by segments")
def ring(rank: int, size: int, root: int) -> Schedule:
    """Partial sums pass along a chain to the root; cut into segments, all links work at once.

    Approaches one vector's time on a link for any p: long vectors.
    """
    tmp = Scratch()
    target = out(0) if rank == root else None
    return Schedule.of(phases.chain_reduce(rank, size, root, inp(0), target, tmp), 1, tmp)


@reduce(
    cost="2*lg*α + 2*(p-1)/p*n*β + lg*λ + (p-1)/p*n*γ + r*(α + λ + n*(β+γ))",
    reference="Rabenseifner 2004; Thakur, Rabenseifner, Gropp 2005",
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
