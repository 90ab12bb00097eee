"""Alltoall and Alltoallv: block source*size+target goes from source to target."""

from functools import partial

from mpicoll.algorithms import uniform
from mpicoll.algorithms.registry import packaged
from mpicoll.schedule.ir import Copy, Recv, Ref, Schedule, Scratch, Send, Step, inp, out, step
from mpicoll.schedule.patterns import masks, others

alltoall = partial(packaged, "alltoall")


def _own(rank: int, size: int) -> Step:
    return step(Copy(out(rank * size + rank), inp(rank * size + rank)))


@alltoall(
    cost="α + (p-2)*o + (p-1)/p*n*β",
    reference="folklore",
    forwards=False,
    scratch="0",
    uniform=uniform.ALL_PAIRS,
)
def linear(rank: int, size: int) -> Schedule:
    """Start all sends and receives at once.

    One round of p-1 messages: few ranks, or blocks that are not long.
    """
    sends = [Send(inp(rank * size + q), q) for q in others(rank, size)]
    receives = [Recv(out(q * size + rank), q) for q in reversed(others(rank, size))]
    return Schedule.of([step(receives, sends, _own(rank, size).local)], size * size)


@alltoall(
    cost="(p-1)*(α + n/p*β)",
    reference="pairwise shift; Thakur, Rabenseifner, Gropp 2005",
    forwards=False,
    scratch="0",
    uniform=uniform.RING,
)
def ring(rank: int, size: int) -> Schedule:
    """In round k send to the rank k to the right and receive from the one k to the left.

    Two rounds are in flight at any time, so links and memory are not flooded: long blocks.
    """
    steps = [_own(rank, size)]
    for k in range(1, size):
        to, source = (rank + k) % size, (rank - k) % size
        steps.append(step(Send(inp(rank * size + to), to), Recv(out(source * size + rank), source)))
    return Schedule.of(steps, size * size, window=2)


def _store_and_forward(rank: int, size: int, target_of: list[int], source_of: list[int], rounds: list) -> Schedule:  # type: ignore[type-arg]
    """Move blocks in places 0..size-1; each round sends some of them and receives as many.

    Args:
        rank: this rank.
        size: number of ranks.
        target_of: target of the block that is in each place at first.
        source_of: source of the block that is in each place at the end.
        rounds: for each round (places that move, rank to send to, rank to receive from, ids of what comes).
    """
    tmp = Scratch()
    held: list[Ref] = [inp(rank * size + target) for target in target_of]
    steps = []
    for places, to, source, ids in rounds:
        received = tmp.take(ids)
        packed = tmp.take([cell_id for place in places for cell_id in _ids_of(held[place], tmp)])
        steps.append(step(Copy(one, held[place]) for one, place in zip(packed, places, strict=True)))
        steps.append(step(Send(packed, to), Recv(received, source)))
        for place, cell in zip(places, received, strict=True):
            held[place] = cell
    last = step(Copy(out(source * size + rank), held[place]) for place, source in enumerate(source_of))
    return Schedule.of([*steps, last], size * size, tmp)


def _ids_of(cell: Ref, tmp: Scratch) -> list[int]:
    return [tmp.ids[c] if cell.buffer == "scratch" else c for c in cell.cells]


@alltoall(
    cost="lg*(α + n/2*β + λ + n/2*γ) + λ",
    reference="hypercube exchange; Johnsson, Ho 1989",
    power_of_two=True,
    scratch="q*p",
    uniform=uniform.PAIRS,
)
def recursive_doubling(rank: int, size: int) -> Schedule:
    """Partners 1, 2, 4, ... away exchange the half of the blocks that belongs to the other side.

    log2 p rounds, for powers of two, carrying n/2 each: short blocks.
    """
    rounds, done = [], 0
    for mask in masks(size):
        places = [j for j in range(size) if (j ^ rank) & mask]
        partner = rank ^ mask
        ids = [_hypercube_id(partner, j ^ mask, done, size) for j in places]
        rounds.append((places, partner, partner, ids))
        done |= mask
    return _store_and_forward(rank, size, list(range(size)), list(range(size)), rounds)


def _hypercube_id(rank: int, place: int, done: int, size: int) -> int:
    """Return the block in a place of a rank after exchanging over the dimensions in `done`.

    Args:
        rank: whose place it is.
        place: the place.
        done: bits of the dimensions.
        size: number of ranks.
    """
    source, target = (rank & ~done) | (place & done), (rank & done) | (place & ~done)
    return source * size + target


@alltoall(
    cost="q*(α + n/2*β + λ + n/2*γ) + 2*λ",
    reference="Bruck et al. 1997",
    scratch="q*p",
    uniform=uniform.SHIFT,
)
def bruck(rank: int, size: int) -> Schedule:
    """Blocks travel the binary digits of their distance: in round k those with bit k go 2^k to the right.

    ceil(log2 p) rounds for any number of ranks, carrying about n/2 each: short blocks.
    """
    rounds = []
    for mask in masks(size):
        places = [j for j in range(size) if j & mask]
        left = (rank - mask) % size
        ids = []
        for j in places:
            source = (left - (j & (mask - 1))) % size
            ids.append(source * size + (source + j) % size)
        rounds.append((places, (rank + mask) % size, left, ids))
    targets = [(rank + j) % size for j in range(size)]
    return _store_and_forward(rank, size, targets, [(rank - j) % size for j in range(size)], rounds)
