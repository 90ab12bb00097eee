"""Phases along chains and rings, between all pairs, and in rounds in which all send equally far."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mpicoll.algorithms.phases.trees import combine, relative
from mpicoll.schedule.ir import Copy, Recv, Reduce, Ref, Scratch, Send, Step, inp, out, step
from mpicoll.schedule.patterns import others

#: rounds as of `schedule.patterns.circulant_rounds`: (distance, whose blocks)
Rounds = Sequence[tuple[int, range]]


def chain_reduce(rank: int, size: int, root: int, source: Ref, target: Ref | None, tmp: Scratch) -> list[Step]:
    """Combine source along a chain that ends at the root, each rank before what it received."""
    rel = relative(rank, size, root)
    if rel == size - 1:
        sent = source
        steps = [step(combine(target, [source]))] if target else []
    else:
        received = tmp.take(source.cells)
        sent = target or received
        steps = [step(Recv(received, (rank + 1) % size), Reduce(sent, (source, received)))]
    if rel:
        steps.append(step(Send(sent, (rank - 1) % size)))
    return steps


def chain_bcast(rank: int, size: int, root: int, cells: Ref) -> list[Step]:
    """Pass cells along a chain that starts at the root."""
    rel = relative(rank, size, root)
    return [
        step(Recv(cells, (rank - 1) % size) if rel else ()),
        step(Send(cells, (rank + 1) % size) if rel < size - 1 else ()),
    ]


def ring_allgather(
    rank: int, size: int, block_of: Callable[[int], Ref], name: Callable[[int], int] = int
) -> list[Step]:
    """Pass each rank's block once around the ring; `name` turns a place in the ring into a rank."""
    right, left = name((rank + 1) % size), name((rank - 1) % size)
    steps, held = [], block_of(rank)
    for k in range(size - 1):
        received = block_of((rank - k - 1) % size)
        steps.append(Step((Send(held, right), Recv(received, left)), ()))
        held = received
    return steps


def ring_reduce_scatter(rank: int, size: int, source: Ref, target: Ref, tmp: Scratch) -> list[Step]:
    """Send partial sums around the ring; each ends, complete, at the rank with its number."""
    right, left = (rank + 1) % size, (rank - 1) % size
    if size == 1:
        return [step(Copy(target, source))]
    steps = []
    sent = source[(rank - 1) % size]
    for k in range(size - 1):
        block = (rank - k - 2) % size
        received = tmp.take(source.cells[block])
        result = target if k == size - 2 else received
        combined = Reduce(result, (received, source[block]))
        steps.append(Step((Send(sent, right), Recv(received, left)), (combined,)))
        sent = result
    return steps


def all_pairs_allgather(rank: int, size: int, own: Ref) -> Step:
    """Send a block to every rank and receive theirs."""
    sends = [Send(own, q) for q in others(rank, size)]
    return step([Recv(out(q), q) for q in reversed(others(rank, size))], sends)


def all_pairs_reduce_scatter(rank: int, size: int, tmp: Scratch) -> list[Step]:
    """Send every rank its block of the input; combine p blocks in rank order in one fused reduction."""
    operands = {q: inp(rank) if q == rank else tmp.take(rank) for q in range(size)}
    sends = [Send(inp(q), q) for q in others(rank, size)]
    receives = [Recv(operands[q], q) for q in reversed(others(rank, size))]
    return [step(receives, sends, Reduce(out(rank), tuple(operands.values())))]


def shifted_allgather(rank: int, size: int, rounds: Rounds) -> list[Step]:
    """Send, in each round, the blocks of ranks at some distances to the left to a rank to the right."""
    steps = []
    for distance, which in rounds:
        mine, theirs = (out((rank - d - ahead) % size for d in reversed(which)) for ahead in (0, distance))
        steps.append(step(Send(mine, (rank + distance) % size), Recv(theirs, (rank - distance) % size)))
    return steps


def shifted_reduce_scatter(rank: int, size: int, rounds: Rounds, tmp: Scratch) -> list[Step]:
    """Combine all blocks of the input by the rounds of an allgather, backwards in time; the own one ends in the output.

    Args:
        rank: this rank.
        size: number of ranks.
        rounds: those of the allgather; in the first one each rank sends its own block.
        tmp: from which scratch is taken.
    """
    held = [inp((rank - d) % size) for d in range(size)]  # by distance to the right of the rank that it is for
    steps = [step(Copy(out(rank), held[0]) if size == 1 else ())]
    for distance, which in reversed(rounds):
        kept = which[::-1]
        received = tmp.take((rank - d) % size for d in kept)
        copies, sent = _together([held[d + distance] for d in kept], tmp)
        _, mine = _together([held[d] for d in kept], tmp)
        total = received if distance != rounds[0][0] else out(rank)
        messages = Send(sent, (rank - distance) % size), Recv(received, (rank + distance) % size)
        steps += [step(copies), step(messages, Reduce(total, (mine, received)))]
        for d, cell in zip(kept, received, strict=True):
            held[d] = cell
    return steps


def _together(cells: Sequence[Ref], tmp: Scratch) -> tuple[list[Copy], Ref]:
    """Return (copies, cells of one buffer): blocks of the input that go with partial sums are copied to them."""
    if len({one.buffer for one in cells}) == 1:
        return [], Ref(cells[0].buffer, tuple(one.cells[0] for one in cells))
    copies = [Copy(tmp.take(one.cells), one) for one in cells if one.buffer == "input"]
    moved = {copy.source: copy.target for copy in copies}
    return copies, Ref("scratch", tuple(moved.get(one, one).cells[0] for one in cells))
