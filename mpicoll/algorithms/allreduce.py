"""Allreduce: all vectors are combined, every rank gets the result."""

from functools import partial

from mpicoll.algorithms import phases, uniform
from mpicoll.algorithms.registry import packaged
from mpicoll.schedule.ir import Copy, Recv, Reduce, Schedule, Scratch, Send, inp, out, step
from mpicoll.schedule.patterns import circulant_rounds, fold, others

allreduce = partial(packaged, "allreduce")


@allreduce(
    cost="2*α + 2*(p-2)*o + 2*(p-1)*n*β + λ + (p-1)*n*γ",
    reference="folklore",
    left_fold=True,
    blocks="1",
    scratch="p-1",
    uniform=uniform.AT_RANK_0,
)
def linear(rank: int, size: int) -> Schedule:
    """Everybody sends to rank 0, which combines all and sends the result to everybody.

    Two rounds; rank 0's link carries 2(p-1) vectors: a reference, seldom the best.
    """
    tmp = Scratch()
    if size == 1:
        return Schedule.of([step(Copy(out(0), inp(0)))], 1)
    if rank:
        return Schedule.of([step(Send(inp(0), 0)), step(Recv(out(0), 0))], 1)
    received = [(q, tmp.take(0)) for q in range(1, size)]
    operands = (inp(0), *(cells for _, cells in received))
    collect = step([Recv(cells, q) for q, cells in received], Reduce(out(0), operands))
    return Schedule.of([collect, step(Send(out(0), q) for q in range(1, size))], 1, tmp)


@allreduce(
    cost="2*q*(α + n*β) + q*(λ + (lg+1)/2*n*γ)",
    reference="folklore",
    ordered=True,
    blocks="1",
    scratch="q",
    uniform=uniform.TREE,
)
def binomial(rank: int, size: int) -> Schedule:
    """Combine up a binomial tree to rank 0, then send the result down it.

    2 log2 p rounds with the fewest messages; recursive doubling needs half the rounds.
    """
    tmp = Scratch()
    tree = phases.rooted(rank, size, 0)
    up = phases.tree_reduce(rank, *tree, inp(0), out(0) if rank == 0 else None, tmp)
    return Schedule.of(up + phases.tree_bcast(*tree, out(0)), 1, tmp)


@allreduce(
    cost="2*(p-1)*α + (p-1)*λ + 2*(p-1)/p*n*β + (p-1)/p*n*γ/s + (s-1)*o",
    reference="Patarasuk, Yuan 2009",
    blocks="p",
    scratch="p-1",
    uniform=uniform.RING,
)
def ring(rank: int, size: int) -> Schedule:
    """Reduce-scatter around a ring, then allgather around it.

    Bandwidth-optimal with one neighbour to talk to; 2(p-1) rounds: long vectors.
    """
    tmp = Scratch()
    blocks = range(size)
    steps = phases.ring_reduce_scatter(rank, size, inp(blocks), out(rank), tmp)
    return Schedule.of(steps + phases.ring_allgather(rank, size, out), size, tmp)


@allreduce(
    cost="(lg+2*r)*α + (lg+r)*λ + (lg+2*r)*n*β + (lg+r)*n*γ",
    reference="Thakur, Rabenseifner, Gropp 2005",
    ordered=True,
    blocks="1",
    scratch="q",
    uniform=uniform.FOLD,
)
def recursive_doubling(rank: int, size: int) -> Schedule:
    """Partners 1, 2, 4, ... away exchange whole vectors; ranks above a power of two fold in and out.

    log2 p rounds: short vectors.
    """
    tmp = Scratch()
    return Schedule.of(phases.doubling_allreduce(rank, size, inp(0), out(0), tmp), 1, tmp)


@allreduce(
    cost="2*lg*α + lg*λ + 2*(p-1)/p*n*β + (p-1)/p*n*γ + r*(2*α + λ + 2*n*β + n*γ)",
    reference="Rabenseifner 2004; Thakur, Rabenseifner, Gropp 2005",
    ordered=True,
    blocks="2**lg",
    scratch="(1+r)*2**lg-1",
    uniform=uniform.FOLD,
)
def reduce_scatter_allgather(rank: int, size: int) -> Schedule:
    """Reduce-scatter by halving, then allgather by doubling (Rabenseifner).

    Bandwidth-optimal in 2 log2 p rounds for powers of two: middle and long vectors.
    """
    tmp = Scratch()
    folded = fold(rank, size)
    blocks = range(1 << folded.bits)
    if size == 1:
        return Schedule.of([step(Copy(out(blocks), inp(blocks)))], 1)
    steps, held = phases.fold_in(folded, inp(blocks), out(blocks), tmp)
    if folded.index is not None:
        steps += phases.halving_reduce_scatter(folded, held, out(blocks), tmp)
        steps += phases.doubling_allgather(folded, out(blocks))
    return Schedule.of(steps + phases.fold_out(folded, out(blocks)), len(blocks), tmp)


@allreduce(
    cost="α + (p-2)*o + (p-1)*n*β + λ + (p-1)*n*γ",
    reference="all-to-all exchange with a local sum",
    left_fold=True,
    blocks="1",
    scratch="p-1",
    uniform=uniform.ALL_PAIRS,
)
def one_shot(rank: int, size: int) -> Schedule:
    """Everybody sends everything to everybody and combines p vectors in one fused reduction.

    One step and one reduction, in rank order: short vectors where all pairs are one hop apart.
    """
    tmp = Scratch()
    if size == 1:
        return Schedule.of([step(Copy(out(0), inp(0)))], 1)
    operands = {q: inp(0) if q == rank else tmp.take(0) for q in range(size)}
    sends = [Send(inp(0), q) for q in others(rank, size)]
    receives = [Recv(operands[q], q) for q in reversed(others(rank, size))]
    return Schedule.of([step(receives, sends, Reduce(out(0), tuple(operands.values())))], 1, tmp)


@allreduce(
    cost="2*(α + (p-2)*o) + 2*(p-1)/p*n*β + λ + (p-1)/p*n*γ",
    reference="direct reduce-scatter and allgather",
    left_fold=True,
    blocks="p",
    scratch="p-1",
    uniform=uniform.ALL_PAIRS,
)
def two_shot(rank: int, size: int) -> Schedule:
    """Send each rank its block, combine p blocks in one fused reduction, send the result to all.

    Bandwidth-optimal in two rounds, in rank order: middle vectors where all pairs are one hop apart.
    """
    tmp = Scratch()
    if size == 1:
        return Schedule.of([step(Copy(out(0), inp(0)))], 1)
    steps = phases.all_pairs_reduce_scatter(rank, size, tmp)
    return Schedule.of([*steps, phases.all_pairs_allgather(rank, size, out(rank))], size, tmp)


@allreduce(
    cost="2*q*α + (2*q+1+r*q)*λ + 2*(p-1)/p*n*β + (p-1)/p*n*γ + n*γ",
    reference="Träff 2024",
    blocks="p",
    scratch="5/2*p-1",
    uniform=uniform.HALVING,
)
def circulant(rank: int, size: int) -> Schedule:
    """Reduce-scatter in ceil(log2 p) rounds that all ranks shift equally far, then allgather in the same, backwards.

    Bandwidth-optimal in 2 ceil(log2 p) rounds for any number of ranks: middle vectors off powers of two.
    """
    tmp, rounds = Scratch(), circulant_rounds(size)
    steps = phases.shifted_reduce_scatter(rank, size, rounds, tmp)
    return Schedule.of(steps + phases.shifted_allgather(rank, size, rounds), size, tmp)
