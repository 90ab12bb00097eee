"""Allgather and Allgatherv: every rank's block goes to all."""

from functools import partial

from mpicoll.algorithms import phases, uniform
from mpicoll.algorithms.registry import packaged
from mpicoll.schedule.ir import Copy, Recv, Schedule, Scratch, Send, Step, inp, out, step
from mpicoll.schedule.patterns import circulant_rounds, far_first_rounds, masks

allgather = partial(packaged, "allgather")


def _own(rank: int) -> Step:
    return step(Copy(out(rank), inp(rank)))


@allgather(
    cost="α + (p-2)*o + (p-1)/p*n*β",
    reference="folklore",
    scratch="0",
    uniform=uniform.ALL_PAIRS,
)
def linear(rank: int, size: int) -> Schedule:
    """Everybody sends its block to everybody, directly.

    One step of p-1 messages: few ranks that are all one hop apart.
    """
    return Schedule.of([phases.all_pairs_allgather(rank, size, inp(rank)), _own(rank)], size)


@allgather(
    cost="2*q*α + ((p-1)/p + q)*n*β",
    reference="folklore",
    scratch="0",
    packed="q*p+p-2",
    uniform=uniform.TREE,
)
def binomial(rank: int, size: int) -> Schedule:
    """Gather up a binomial tree to rank 0, then broadcast down it.

    Fewest messages, but rank 0's link carries everything log2 p times: tiny blocks.
    """
    tree = phases.rooted(rank, size, 0)
    up = phases.gather_ranges(*tree, out(tree[0].places))
    return Schedule.of([_own(rank), *up, *phases.tree_bcast(*tree, out(range(size)))], size)


@allgather(
    cost="(p-1)*(α + n/p*β)",
    reference="Thakur, Rabenseifner, Gropp 2005",
    scratch="0",
    uniform=uniform.RING,
)
def ring(rank: int, size: int) -> Schedule:
    """Pass each block once around the ring.

    Bandwidth-optimal with one neighbour to talk to; p-1 rounds: long blocks.
    """
    return Schedule.of([_own(rank), *phases.ring_allgather(rank, size, out)], size)


@allgather(
    cost="lg*α + (p-1)/p*n*β",
    reference="Thakur, Rabenseifner, Gropp 2005",
    power_of_two=True,
    scratch="0",
    packed="2*(p-2)",
    uniform=uniform.PAIRS,
)
def recursive_doubling(rank: int, size: int) -> Schedule:
    """Partners 1, 2, 4, ... away exchange all that they have.

    Bandwidth-optimal in log2 p rounds, for powers of two: short and middle blocks.
    """
    steps = [_own(rank)]
    for mask in masks(size):
        mine, partner = rank & -mask, rank ^ mask
        theirs = mine ^ mask
        send = Send(out(range(mine, mine + mask)), partner)
        steps.append(step(send, Recv(out(range(theirs, theirs + mask)), partner)))
    return Schedule.of(steps, size)


@allgather(
    cost="q*α + (p-1)/p*n*β + λ + n*γ/2",
    reference="Bruck et al. 1997",
    scratch="p",
    uniform=uniform.SHIFT,
)
def bruck(rank: int, size: int) -> Schedule:
    """In round k send all that is held to the rank 2^k to the left, then rotate into place.

    ceil(log2 p) rounds for any number of ranks, with one local rotation: short blocks.
    """
    return _bruck(rank, size, 2)


@allgather(
    cost="(q+1)//2*(α + 2*o) + (p-1)/p*n*β + λ + n*γ/2",
    reference="Bruck et al. 1997, with three ports",
    scratch="p",
    uniform=uniform.SHIFT_4,
)
def bruck_4(rank: int, size: int) -> Schedule:
    """In round k send all that is held to the ranks 4^k, 2*4^k and 3*4^k to the left, then rotate into place.

    ceil(log4 p) rounds of three messages for any number of ranks: short blocks.
    """
    return _bruck(rank, size, 4)


def _bruck(rank: int, size: int, radix: int) -> Schedule:
    """Multiply what all ranks hold by the radix in each round, then rotate."""
    tmp = Scratch()
    ids = [(rank + k) % size for k in range(size)]
    held = tmp.take(ids)
    steps = [step(Copy(held[0], inp(rank)))]
    reach = 1
    while reach < size:
        messages: list[Send | Recv] = []
        for at in range(reach, min(radix * reach, size), reach):
            count = min(reach, size - at)
            messages += [Send(held[:count], (rank - at) % size), Recv(held[at : at + count], (rank + at) % size)]
        steps.append(step(messages))
        reach *= radix
    return Schedule.of([*steps, step(Copy(out(ids), held))], size, tmp)


@allgather(
    cost="q*(α + λ) + (p-1)/p*n*(β + γ/2)",
    reference="Träff 2024",
    scratch="p-2",
    packed="2*(p-2)",
    uniform=uniform.HALVING,
)
def circulant(rank: int, size: int) -> Schedule:
    """In each round send blocks to the right, straight into place; the last round sends half of them.

    ceil(log2 p) rounds for any number of ranks; only messages that wrap around are packed.
    """
    return Schedule.of([_own(rank), *phases.shifted_allgather(rank, size, circulant_rounds(size))], size)


@allgather(
    cost="q*(α + 2*λ) + (p-1)/p*n*(β + γ)",
    reference="PAT; Jeaugey 2025",
    scratch="2*(p-2)",
    uniform=uniform.SHIFT,
)
def pat(rank: int, size: int) -> Schedule:
    """A binomial tree for each block, all at once, far ranks first: the farther a message travels, the shorter it is.

    ceil(log2 p) rounds for any number of ranks: where far ranks share links.
    """
    return Schedule.of([_own(rank), *phases.shifted_allgather(rank, size, far_first_rounds(size))], size)


@allgather(
    cost="p/2*α + (p-1)/p*n*β",
    reference="Chen et al. 2005",
    even=True,
    scratch="0",
    packed="2*(p-2)",
    uniform="Even and odd ranks each follow one rule in rank, size and k, taking turns with two neighbours.",
)
def neighbor_exchange(rank: int, size: int) -> Schedule:
    """Pairs exchange a block, then neighbours exchange two blocks at a time, left and right in turn.

    Half the rounds of a ring with two neighbours to talk to, for even numbers of ranks.
    """
    steps = [_own(rank)]
    if size == 1:
        return Schedule.of(steps, size)
    sign = 1 if rank % 2 == 0 else -1
    peers = ((rank + sign) % size, (rank - sign) % size)
    steps.append(step(Send(out(rank), peers[0]), Recv(out(peers[0]), peers[0])))
    pair = rank - rank % 2
    for k in range(1, size // 2):
        peer = peers[k % 2]
        ahead = -2 * sign if k % 2 else 2 * sign  # the pair that comes from this side, ever farther away
        got = (rank - rank % 2 + ahead * ((k + 1) // 2)) % size
        steps.append(step(Send(out((pair, pair + 1)), peer), Recv(out((got, got + 1)), peer)))
        pair = got
    return Schedule.of(steps, size)
