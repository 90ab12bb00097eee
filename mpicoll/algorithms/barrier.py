"""Barrier: an allreduce of zero elements; combining a rank twice is harmless."""

from functools import partial

from mpicoll.algorithms import phases, uniform
from mpicoll.algorithms.registry import packaged
from mpicoll.schedule.ir import Recv, Reduce, Schedule, Scratch, Send, Step, inp, out, step
from mpicoll.schedule.patterns import masks, others

barrier = partial(packaged, "barrier")


@barrier(
    cost="2*α + 2*(p-2)*o",
    reference="folklore",
    blocks="1",
    scratch="p-1",
    uniform=uniform.AT_RANK_0,
)
def linear(rank: int, size: int) -> Schedule:
    """Everybody reports to rank 0, which then tells everybody.

    Few rounds, but rank 0 handles 2(p-1) messages: for few ranks.
    """
    tmp = Scratch()
    if rank:
        steps = [step(Send(inp(0), 0)), step(Recv(out(0), 0))]
    else:
        tokens = [(q, tmp.take(0)) for q in others(0, size)]
        steps = [
            step([Recv(t, q) for q, t in tokens], Reduce(out(0), (inp(0), *(t for _, t in tokens)))),
            step(Send(out(0), q) for q in others(0, size)),
        ]
    return Schedule.of(steps, 1, tmp)


@barrier(
    cost="2*q*α",
    reference="folklore",
    blocks="1",
    scratch="q",
    uniform=uniform.TREE,
)
def binomial(rank: int, size: int) -> Schedule:
    """Tokens go up a binomial tree to rank 0 and down again.

    Fewest messages (2(p-1) in all) in 2 log2 p rounds.
    """
    tmp = Scratch()
    tree = phases.rooted(rank, size, 0)
    up = phases.tree_reduce(rank, *tree, inp(0), out(0) if rank == 0 else None, tmp)
    return Schedule.of(up + phases.tree_bcast(*tree, out(0)), 1, tmp)


@barrier(
    cost="2*(p-1)*α",
    reference="folklore",
    blocks="1",
    scratch="2",
    uniform=uniform.CHAIN,
)
def ring(rank: int, size: int) -> Schedule:
    """A token passes along all ranks twice: first to collect, then to release.

    One message in flight at any time; slow, but never more than one neighbour talks.
    """
    tmp = Scratch()
    last = size - 1
    collect: list[Step] = []
    total = out(0) if rank == last else tmp.take(0)
    if rank:
        collect.append(step(Recv(token := tmp.take(0), rank - 1), Reduce(total, (token, inp(0)))))
    else:
        total = inp(0)
    if rank < last:
        collect.append(step(Send(total, rank + 1)))
    elif size == 1:
        collect.append(step(Reduce(out(0), (inp(0),))))
    return Schedule.of(collect + phases.chain_bcast(rank, size, last, out(0)), 1, tmp)


@barrier(
    cost="(lg + 2*r)*α",
    reference="Thakur, Rabenseifner, Gropp 2005",
    blocks="1",
    scratch="q",
    uniform=uniform.FOLD,
)
def recursive_doubling(rank: int, size: int) -> Schedule:
    """Partners 1, 2, 4, ... away exchange tokens; ranks above a power of two fold in and out.

    log2 p rounds for powers of two, two more otherwise.
    """
    tmp = Scratch()
    return Schedule.of(phases.doubling_allreduce(rank, size, inp(0), out(0), tmp), 1, tmp)


@barrier(
    cost="q*α",
    reference="Hensgen, Finkel, Manber 1988",
    blocks="1",
    scratch="q",
    uniform=uniform.SHIFT,
)
def dissemination(rank: int, size: int) -> Schedule:
    """In round k tell the rank 2^k to the right and hear from the one 2^k to the left.

    Fewest rounds, ceil(log2 p), for any number of ranks: the default.
    """
    tmp = Scratch()
    steps, held = [step(Reduce(out(0), (inp(0),)))] if size == 1 else [], inp(0)
    for mask in masks(size):
        token = tmp.take(0)
        right, left = (rank + mask) % size, (rank - mask) % size
        steps.append(step(Send(held, right), Recv(token, left), Reduce(out(0), (held, token))))
        held = out(0)
    return Schedule.of(steps, 1, tmp)
