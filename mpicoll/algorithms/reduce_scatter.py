"""Reduce_scatter and Reduce_scatter_block: blocks are combined, each rank gets its own."""

from functools import partial

from mpicoll.algorithms import phases, uniform
from mpicoll.algorithms.registry import packaged
from mpicoll.schedule.ir import Copy, Recv, Reduce, Ref, Schedule, Scratch, Send, inp, out, step
from mpicoll.schedule.patterns import circulant_rounds, far_first_rounds, fold

reduce_scatter = partial(packaged, "reduce_scatter")


@reduce_scatter(
    cost="2*α + 2*(p-2)*o + (p-1)*n*(β+γ) + λ + (p-1)/p*n*β",
    reference="folklore",
    left_fold=True,
    scratch="p*p",
    uniform=uniform.AT_RANK_0,
)
def linear(rank: int, size: int) -> Schedule:
    """Everybody sends everything to rank 0, which combines and sends each rank its block.

    Two rounds; rank 0's link carries p-1 vectors: a reference, seldom the best.
    """
    tmp = Scratch()
    blocks = range(size)
    if rank:
        return Schedule.of([step(Send(inp(blocks), 0)), step(Recv(out(rank), 0))], size)
    held = [tmp.take(blocks) for _ in range(1, size)]
    total = tmp.take(blocks)
    collect = step([Recv(cells, q + 1) for q, cells in enumerate(held)], Reduce(total, (inp(blocks), *held)))
    spread = step([Send(total[q], q) for q in range(1, size)], Copy(out(0), total[0]))
    return Schedule.of([collect, spread], size, tmp)


@reduce_scatter(
    cost="2*q*α + q*(n*β + λ + (lg+1)/2*n*γ) + (p-1)/p*n*β",
    reference="folklore",
    ordered=True,
    scratch="(q+1)*p",
    uniform=uniform.TREE,
)
def binomial(rank: int, size: int) -> Schedule:
    """Combine up a binomial tree to rank 0, then scatter down it.

    Fewest messages; rank 0's link carries the vector log2 p times: short vectors.
    """
    tmp = Scratch()
    blocks = range(size)
    total = tmp.take(blocks) if rank == 0 else None
    node, name = phases.rooted(rank, size, 0)
    up = phases.tree_reduce(rank, node, name, inp(blocks), total, tmp)
    held = total or (tmp.take(node.places) if len(node.places) > 1 else out(rank))
    down = phases.scatter_ranges(node, name, held)
    own = [] if held == out(rank) else [step(Copy(out(rank), held[0]))]
    return Schedule.of(up + down + own, size, tmp)


@reduce_scatter(
    cost="(p-1)*(α + λ) + (p-1)/p*n*β + (p-1)/p*n*γ/s + (s-1)*o",
    reference="Patarasuk, Yuan 2009",
    scratch="p-1",
    uniform=uniform.RING,
)
def ring(rank: int, size: int) -> Schedule:
    """Partial sums pass around a ring, each ending at the rank that it is for.

    Bandwidth-optimal with one neighbour to talk to; p-1 rounds: long vectors.
    """
    tmp = Scratch()
    return Schedule.of(phases.ring_reduce_scatter(rank, size, inp(range(size)), out(rank), tmp), size, tmp)


@reduce_scatter(
    cost="lg*(α + λ) + (p-1)/p*n*(β+γ) + r*(2*α + λ + 3/2*n*(β+γ))",
    reference="Thakur, Rabenseifner, Gropp 2005",
    scratch="p-1+r*(p-1+2*2**lg)",
    packed="3/2*p-1+r*(p/2+2*2**lg)",
    uniform=uniform.FOLD,
)
def recursive_halving(rank: int, size: int) -> Schedule:
    """Partners p/2, p/4, ... away exchange the half that the other needs; ranks fold in and out.

    log2 p rounds, bandwidth-optimal for powers of two: middle vectors.
    """
    tmp = Scratch()
    folded = fold(rank, size)
    source: Ref = inp(range(size))
    if size == 1:
        return Schedule.of([step(Copy(out(0), source))], size)
    steps, held = phases.fold_in(folded, source, tmp.take(range(size)) if folded.partner is not None else source, tmp)
    if folded.index is None:
        assert folded.partner is not None
        return Schedule.of([*steps, step(Recv(out(rank), folded.partner))], size, tmp)
    groups = [folded.group(i) for i in range(1 << folded.bits)]
    low, high = 0, len(groups)
    first = 0  # block id of the first cell of held
    while high - low > 1:
        middle = (low + high) // 2
        upper = folded.index >= middle
        partner = folded.member(folded.index + (middle - high if upper else high - middle))
        halves = [[b for g in groups[slice(*ends)] for b in g] for ends in ((low, middle), (middle, high))]
        keeps, gives = (halves[1], halves[0]) if upper else (halves[0], halves[1])
        received, kept = tmp.take(keeps), held[keeps[0] - first : keeps[-1] + 1 - first]
        sent = held[gives[0] - first : gives[-1] + 1 - first]
        last = high - low == 2 and len(keeps) == 1
        result = out(rank) if last else received
        steps.append(step(Send(sent, partner), Recv(received, partner), Reduce(result, (kept, received))))
        held, first = result, keeps[0]
        low, high = (middle, high) if upper else (low, middle)
    if folded.partner is not None:
        mine, theirs = held[0], held[1]
        steps.append(step(Send(theirs, folded.partner), Copy(out(rank), mine)))
    return Schedule.of(steps, size, tmp)


@reduce_scatter(
    cost="(p-1)*(α + λ) + (p-1)/p*n*(β+γ)",
    reference="Thakur, Rabenseifner, Gropp 2005",
    scratch="2",
    uniform=uniform.RING,
)
def pairwise(rank: int, size: int) -> Schedule:
    """In round k send a block to the rank k to the right and receive one from k to the left.

    Bandwidth-optimal with two blocks of scratch and one message in flight: long vectors.
    """
    tmp = Scratch()
    if size == 1:
        return Schedule.of([step(Copy(out(0), inp(0)))], size)
    cells = (tmp.take(rank), tmp.take(rank))
    steps, total = [], inp(rank)
    for k in range(1, size):
        to, source, received = (rank + k) % size, (rank - k) % size, cells[k % 2]
        steps.append(step(Send(inp(to), to), Recv(received, source), Reduce(out(rank), (total, received))))
        total = out(rank)
    return Schedule.of(steps, size, tmp, window=2)


@reduce_scatter(
    cost="α + (p-2)*o + (p-1)/p*n*β + λ + (p-1)/p*n*γ",
    reference="direct exchange",
    left_fold=True,
    scratch="p-1",
    uniform=uniform.ALL_PAIRS,
)
def all_pairs(rank: int, size: int) -> Schedule:
    """Send each rank its block and combine p blocks in rank order in one fused reduction.

    Bandwidth-optimal in one round: few ranks that are all one hop apart.
    """
    tmp = Scratch()
    if size == 1:
        return Schedule.of([step(Copy(out(0), inp(0)))], size)
    return Schedule.of(phases.all_pairs_reduce_scatter(rank, size, tmp), size, tmp)


@reduce_scatter(
    cost="q*(α + (1+r)*λ) + λ + (p-1)/p*n*(β + γ) + n*γ/2",
    reference="Träff 2024",
    scratch="2*p",
    uniform=uniform.HALVING,
)
def circulant(rank: int, size: int) -> Schedule:
    """In each round send half of the partial sums that are left to the left, all ranks equally far.

    Bandwidth-optimal in ceil(log2 p) rounds for any number of ranks: middle vectors off powers of two.
    """
    tmp = Scratch()
    return Schedule.of(phases.shifted_reduce_scatter(rank, size, circulant_rounds(size), tmp), size, tmp)


@reduce_scatter(
    cost="q*(α + (2+r)*λ) + (p-1)/p*n*(β + 3/2*γ)",
    reference="PAT; Jeaugey 2025",
    scratch="2*p",
    uniform=uniform.SHIFT,
)
def pat(rank: int, size: int) -> Schedule:
    """A binomial tree for each block, all at once, near ranks first: the farther a message travels, the shorter it is.

    ceil(log2 p) rounds for any number of ranks: where far ranks share links.
    """
    tmp = Scratch()
    return Schedule.of(phases.shifted_reduce_scatter(rank, size, far_first_rounds(size), tmp), size, tmp)
