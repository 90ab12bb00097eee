"""Alltoall and Alltoallv: block source*size+target goes from source to target."""

from collections.abc import Iterable
from functools import partial

from mpicoll.algorithms import phases, uniform
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

    One step of p-1 messages: few ranks, or blocks that are not long.
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
    return _paired(rank, size, [((rank + k) % size, (rank - k) % size) for k in range(1, size)])


@alltoall(
    cost="2*q*α + 2*(p-1)*n*β + 3*λ + (p+2)*n*γ/2",
    reference="folklore",
    scratch="2*p*p",
    uniform=uniform.TREE,
)
def binomial(rank: int, size: int) -> Schedule:
    """Gather everything up a binomial tree to rank 0, which sorts it by target, then scatter down it.

    Fewest messages, but rank 0's link carries all that all ranks send: tiny blocks.
    """
    tmp, (node, name) = Scratch(), phases.rooted(rank, size, 0)
    up = tmp.take(range(node.places.start * size, node.places.stop * size))
    down = tmp.take(source * size + target for target in node.places for source in range(size))
    rows = step(Copy(up[:size], inp(range(rank * size, rank * size + size))))
    by_target = [up[source * size + target] for target in range(size) for source in range(size)] if rank == 0 else []
    turned = step(_copies(down, by_target) if by_target else ())
    columns = step(Copy(out(range(rank, size * size, size)), down[:size]))
    ways = phases.gather_ranges(node, name, up, size), phases.scatter_ranges(node, name, down, size)
    return Schedule.of([rows, *ways[0], turned, *ways[1], columns], size * size, tmp)


@alltoall(
    cost="(p-1)*(α + n/p*β)",
    reference="pairwise exchange; Thakur, Rabenseifner, Gropp 2005",
    power_of_two=True,
    forwards=False,
    scratch="0",
    uniform=uniform.PAIRS,
)
def pairwise(rank: int, size: int) -> Schedule:
    """In round k exchange blocks with the rank whose number differs in the bits of k.

    Each round is of pairs that talk to nobody else: long blocks, where links are shared by pairs.
    """
    return _paired(rank, size, [(rank ^ k, rank ^ k) for k in range(1, size)])


def _paired(rank: int, size: int, rounds: Iterable[tuple[int, int]]) -> Schedule:
    """Send one block and receive one in each round of (target, source), two rounds at a time."""
    steps = [_own(rank, size)]
    for to, source in rounds:
        steps.append(step(Send(inp(rank * size + to), to), Recv(out(source * size + rank), source)))
    return Schedule.of(steps, size * size, window=2)


#: one exchange of a round: (places that move, rank to send to, rank to receive from, ids of what comes)
Exchange = tuple[list[int], int, int, list[int]]


def _store_and_forward(
    rank: int, size: int, target_of: list[int], source_of: list[int], rounds: list[list[Exchange]]
) -> Schedule:
    """Move blocks in places 0..size-1; each exchange of a round sends some of them and receives as many.

    Args:
        rank: this rank.
        size: number of ranks.
        target_of: target of the block that is in each place at first.
        source_of: source of the block that is in each place at the end.
        rounds: the exchanges of each round.
    """
    tmp = Scratch()
    held: list[Ref] = [inp(rank * size + target) for target in target_of]
    steps = []
    for exchanges in rounds:
        copies: list[Copy] = []
        messages: list[Send | Recv] = []
        moved: dict[int, Ref] = {}
        for places, to, source, ids in exchanges:
            received = tmp.take(ids)
            packed = tmp.take([cell_id for place in places for cell_id in _ids_of(held[place], tmp)])
            copies += _copies(packed, [held[place] for place in places])
            messages += [Send(packed, to), Recv(received, source)]
            moved |= zip(places, received, strict=True)
        steps += [step(copies), step(messages)]
        for place, cell in moved.items():
            held[place] = cell
    last = step(_copies(out(source * size + rank for source in source_of), held))
    return Schedule.of([*steps, last], size * size, tmp)


def _copies(target: Ref, sources: list[Ref]) -> list[Copy]:
    """Copy single cells to the cells of the target, all those of one buffer at once."""
    copies = []
    for buffer in sorted({source.buffer for source in sources}):
        pairs = [
            (to, source.cells[0]) for to, source in zip(target.cells, sources, strict=True) if source.buffer == buffer
        ]
        targets, cells = zip(*pairs, strict=True)
        copies.append(Copy(Ref(target.buffer, targets), Ref(buffer, cells)))
    return copies


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
        rounds.append([(places, partner, partner, ids)])
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
    return _bruck(rank, size, 2)


@alltoall(
    cost="(q+1)//2*(α + 2*o + 3/4*n*β + λ + 3/4*n*γ) + 2*λ",
    reference="Bruck et al. 1997, radix 4",
    scratch="3/2*((q+1)//2)*p",
    uniform=uniform.SHIFT_4,
)
def bruck_4(rank: int, size: int) -> Schedule:
    """Blocks travel the digits of their distance to the base 4: in round k those with digit j go j*4^k to the right.

    ceil(log4 p) rounds of three messages for any number of ranks, carrying about 3n/4 together: short blocks.
    """
    return _bruck(rank, size, 4)


def _bruck(rank: int, size: int, radix: int) -> Schedule:
    """Move each block by the digits of its distance to the base of the radix, one digit a round."""
    rounds = []
    reach = 1
    while reach < size:
        exchanges: list[Exchange] = []
        for digit in range(1, radix):
            places = [j for j in range(size) if j // reach % radix == digit]
            left = (rank - digit * reach) % size
            sources = [(left - j % reach) % size for j in places]
            ids = [source * size + (source + j) % size for source, j in zip(sources, places, strict=True)]
            if places:
                exchanges.append((places, (rank + digit * reach) % size, left, ids))
        rounds.append(exchanges)
        reach *= radix
    targets = [(rank + j) % size for j in range(size)]
    return _store_and_forward(rank, size, targets, [(rank - j) % size for j in range(size)], rounds)
