"""Scan and Exscan: rank r gets the combination of ranks 0..r, or of those before r."""

from functools import partial

from mpicoll.algorithms import phases, uniform
from mpicoll.algorithms.registry import packaged
from mpicoll.schedule.ir import Copy, Recv, Reduce, Ref, Schedule, Scratch, Send, Step, inp, out, step
from mpicoll.schedule.patterns import masks

scan = partial(packaged, "scan", ordered=True)
exscan = partial(packaged, "exscan", ordered=True)


@scan(
    cost="α + (p-2)*o + (p-1)*(n*β + λ + n*γ)",
    reference="folklore",
    left_fold=True,
    blocks="1",
    scratch="p-1",
    uniform=uniform.ALL_BEFORE,
)
def linear(rank: int, size: int) -> Schedule:
    """Everybody sends its vector to all ranks after it, and combines in rank order what it has and receives.

    One step; the last rank's link carries p-1 vectors: short vectors where all pairs are one hop apart.
    """
    return _all_before(rank, size, exclusive=False)


@scan(
    cost="(p-2+s)*(α + λ + n/s*(β+γ))",
    reference="chain; pipelined by segments",
    left_fold=True,
    blocks="1",
    scratch="1",
    uniform=uniform.CHAIN,
)
def ring(rank: int, size: int) -> Schedule:
    """Pass the running total from rank to rank.

    Cut into segments, all links work at once: long vectors; p-1 rounds.
    """
    tmp = Scratch()
    total = out(0) if rank else inp(0)
    before = [tmp.take(0)] if rank else []
    receive = [Recv(cells, rank - 1) for cells in before]
    steps = [step(receive, phases.combine(out(0), [*before, inp(0)]))]
    if rank < size - 1:
        steps.append(step(Send(total, rank + 1)))
    return Schedule.of(steps, 1, tmp)


@scan(
    cost="2*q*(α + n*β + λ) + lg*q*n*γ",
    reference="Blelloch 1990; Sanders, Träff 2006",
    blocks="1",
    scratch="lg",
    uniform=uniform.TREE,
)
def binomial(rank: int, size: int) -> Schedule:
    """Totals go up a binomial tree, prefixes come down it.

    2 log2 p rounds with at most 2p messages in all: vectors for which recursive doubling sends too much.
    """
    return _sweeps(rank, size, exclusive=False)


@scan(
    cost="q*(α + n*β + λ + n*γ)",
    reference="Hillis, Steele 1986",
    blocks="1",
    scratch="q",
    uniform="Round k is one rule in rank and k; ranks without a partner at that distance leave it out.",
)
def recursive_doubling(rank: int, size: int) -> Schedule:
    """In round k pass the total of 2^k ranks to the rank 2^k to the right.

    ceil(log2 p) rounds for any number of ranks: short vectors.
    """
    tmp = Scratch()
    first = [step(Copy(out(0), inp(0)))] if size == 1 or rank == 0 else []
    return Schedule.of(first + _doubling(rank, size, inp(0), tmp, lowest=0), 1, tmp)


def _exclusive_linear(rank: int, size: int) -> Schedule:
    """Everybody sends its vector to all ranks after it, and combines in rank order what it has and receives.

    One step; the last rank's link carries p-1 vectors: short vectors where all pairs are one hop apart.
    """
    return _all_before(rank, size, exclusive=True)


def _exclusive_ring(rank: int, size: int) -> Schedule:
    """Pass the running total from rank to rank.

    Cut into segments, all links work at once: long vectors; p-1 rounds.
    """
    tmp = Scratch()
    total, steps = inp(0), []
    if rank:
        before = tmp.take(0)
        total = tmp.take(0) if rank < size - 1 else total
        passed = Reduce(total, (before, inp(0))) if rank < size - 1 else ()
        steps.append(step(Recv(before, rank - 1), passed, Copy(out(0), before)))
    if rank < size - 1:
        steps.append(step(Send(total, rank + 1)))
    return Schedule.of(steps, 1, tmp)


def _exclusive_binomial(rank: int, size: int) -> Schedule:
    """Totals go up a binomial tree, prefixes come down it.

    2 log2 p rounds with at most 2p messages in all: vectors for which recursive doubling sends too much.
    """
    return _sweeps(rank, size, exclusive=True)


def _exclusive_doubling(rank: int, size: int) -> Schedule:
    """Shift by one rank, then in round k pass the total of 2^k ranks to the rank 2^k to the right.

    1 + ceil(log2(p-1)) rounds for any number of ranks: short vectors.
    """
    tmp = Scratch()
    before = tmp.take(0) if rank else inp(0)
    receive = Recv(before, rank - 1) if rank else ()
    steps = [step(receive, Send(inp(0), rank + 1) if rank < size - 1 else ())]
    if rank:
        steps += _doubling(rank, size, before, tmp, lowest=1)
    if rank == 1:
        steps.append(step(Copy(out(0), before)))
    return Schedule.of(steps, 1, tmp)


exscan(
    name="linear",
    cost="α + (p-2)*o + (p-1)*n*β + λ + (p-2)*(λ + n*γ)",
    reference="folklore",
    left_fold=True,
    blocks="1",
    scratch="p-1",
    uniform=uniform.ALL_BEFORE,
)(_exclusive_linear)
exscan(
    name="ring",
    cost="(p-2+s)*(α + λ + n/s*(β+γ))",
    reference="chain; pipelined by segments",
    left_fold=True,
    blocks="1",
    scratch="2",
    uniform=uniform.CHAIN,
)(_exclusive_ring)
exscan(
    name="binomial",
    cost="2*q*(α + n*β) + (3*q-2)*λ + 3/2*lg*q*n*γ",
    reference="Blelloch 1990; Sanders, Träff 2006",
    blocks="1",
    scratch="lg+1",
    uniform=uniform.TREE,
)(_exclusive_binomial)
exscan(
    name="recursive_doubling",
    cost="α + n*β + q*(α + n*β + λ + n*γ)",
    reference="Hillis, Steele 1986",
    blocks="1",
    scratch="q+1",
    uniform="Round k is one rule in rank and k; ranks without a partner at that distance leave it out.",
)(_exclusive_doubling)


def _all_before(rank: int, size: int, *, exclusive: bool) -> Schedule:
    """Receive the vectors of all ranks before this one, and combine them, with the own one or without.

    One at a time: where half precision is rounded, the bits are those of a chain (reproducible="ranks").
    """
    tmp = Scratch()
    received = [tmp.take(0) for _ in range(rank)]
    messages = [Recv(cells, q) for q, cells in enumerate(received)], [Send(inp(0), q) for q in range(rank + 1, size)]
    first, *rest = received if exclusive and rank else [*received, inp(0)]
    sums = [Reduce(first, (first, one)) for one in rest[:-1]]
    result = () if exclusive and not rank else phases.combine(out(0), [first, *rest[-1:]])
    return Schedule.of([step(*messages, sums, result)], 1, tmp)


def _doubling(rank: int, size: int, held: Ref, tmp: Scratch, lowest: int) -> list[Step]:
    """Add to out what ranks lowest..rank-1 hold.

    Args:
        rank: this rank.
        size: number of ranks.
        held: this rank's own part at first.
        tmp: from which scratch is taken.
        lowest: the first rank that takes part.
    """
    steps = []
    for mask in masks(size - lowest):
        send = Send(held, rank + mask) if rank + mask < size else ()
        if rank - mask < lowest:
            steps.append(step(send))
            continue
        received = tmp.take(0)
        steps.append(step(send, Recv(received, rank - mask), Reduce(out(0), (received, held))))
        held = out(0)
    return steps


def _sweeps(rank: int, size: int, *, exclusive: bool) -> Schedule:
    """Send totals to the right up a binomial tree, then prefixes to the right down it."""
    tmp = Scratch()
    reach = (rank + 1) & -(rank + 1)  # this rank's subtree is the `reach` ranks up to itself
    below = [m for m in reversed(masks(reach * 2)) if m < reach]
    children = [(rank - m, tmp.take(0)) for m in below]
    parts = [cells for _, cells in children]
    whole = reach == rank + 1  # the subtree starts at rank 0: no prefix is missing
    rights = [rank + m for m in below if rank + m < size]

    steps = [step(Recv(cells, q) for q, cells in children)]
    total = inp(0)
    if rank + reach < size:
        if parts:
            total = tmp.take(0)
            steps.append(step(phases.combine(total, [*parts, inp(0)])))
        steps.append(step(Send(total, rank + reach)))
    if not whole:
        prefix = tmp.take(0)
        steps.append(step(Recv(prefix, rank - reach)))
        parts = [prefix, *parts]
    upto = out(0)
    if exclusive and rights:
        upto = tmp.take(0)
    if not exclusive or rights:
        steps.append(step(phases.combine(upto, [*parts, inp(0)])))
    if exclusive and parts:
        steps.append(step(phases.combine(out(0), parts)))  # last: in place it overwrites the input
    steps.append(step(Send(upto, q) for q in rights))
    return Schedule.of(steps, 1, tmp)
