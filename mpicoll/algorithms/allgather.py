"""Allgather and Allgatherv: every rank's block goes to all."""

from functools import partial

from mpicoll.algorithms import phases, uniform
from mpicoll.algorithms.registry import packaged
from mpicoll.schedule.ir import Copy, Recv, Schedule, Scratch, Send, Step, inp, out, step
from mpicoll.schedule.patterns import masks

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

    One round of p-1 messages: few ranks that are all one hop apart.
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
    tmp = Scratch()
    ids = phases.subtree(rank, size, 0)
    held = out(ids)
    up = phases.gather_ranges(rank, size, 0, held)
    down = phases.binomial_bcast(rank, size, 0, out(range(size)))
    return Schedule.of([_own(rank), *up, *down], size, tmp)


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
    tmp = Scratch()
    ids = [(rank + k) % size for k in range(size)]
    held = tmp.take(ids)
    steps = [step(Copy(held[0], inp(rank)))]
    for mask in masks(size):
        count = min(mask, size - mask)
        send = Send(held[:count], (rank - mask) % size)
        steps.append(step(send, Recv(held[mask : mask + count], (rank + mask) % size)))
    return Schedule.of([*steps, step(Copy(out(ids), held))], size, tmp)


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
