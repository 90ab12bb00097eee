"""Phases that several algorithms are composed of; each returns steps over the given cells.

They take `rank`, `size` (number of ranks) and `root`; `source` and `target`, the cells that are read and written;
`held`, cells that a rank has already; `tmp`, from which they take scratch; and `name`, which turns a place into a rank.
On 4 ranks `ring_allgather(0, 4, out)` has 3 steps; rank 0 sends blocks 0, 3, 2 and receives blocks 3, 2, 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mpicoll.schedule.ir import Copy, Recv, Reduce, Ref, Scratch, Send, Step, inp, out, step
from mpicoll.schedule.patterns import Fold, binomial, double_tree, fold, halves, others
from mpicoll.schedule.reverse import reverse_steps


def relative(rank: int, size: int, root: int) -> int:
    """Return the rank as counted from the root."""
    return (rank - root) % size


def absolute(rel: int, size: int, root: int) -> int:
    """Return the rank whose relative rank is rel."""
    return (rel + root) % size


def binomial_bcast(rank: int, size: int, root: int, cells: Ref) -> list[Step]:
    """Send cells down a binomial tree, the largest subtree first."""
    node = binomial(relative(rank, size, root), size)
    steps = []
    if node.parent is not None:
        steps.append(step(Recv(cells, absolute(node.parent, size, root))))
    steps.append(step(Send(cells, absolute(c, size, root)) for c in reversed(node.children)))
    return steps


def binomial_reduce(rank: int, size: int, root: int, source: Ref, target: Ref | None, tmp: Scratch) -> list[Step]:
    """Combine source up a binomial tree, one fused reduction a rank; the root gets target."""
    node = binomial(relative(rank, size, root), size)
    ids = source.cells
    if target is None:
        target = tmp.take(ids) if node.children and node.parent is not None else source
    received = [(c, tmp.take(ids)) for c in node.children]
    steps = [
        step(
            [Recv(cells, absolute(c, size, root)) for c, cells in received],
            _combine(target, [source, *(cells for _, cells in received)]),
        )
    ]
    if node.parent is not None:
        steps.append(step(Send(target, absolute(node.parent, size, root))))
    return steps


def chain_reduce(rank: int, size: int, root: int, source: Ref, target: Ref | None, tmp: Scratch) -> list[Step]:
    """Combine source along a chain that ends at the root, each rank before what it received."""
    rel = relative(rank, size, root)
    if rel == size - 1:
        sent = source
        steps = [step(_combine(target, [source]))] if target else []
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


def tree_pair(rank: int, size: int, root: int) -> list[tuple[int, list[int]]]:
    """Return a rank's parent and children in two binary trees that hang from the root; inner in at most one of them.

    The root, which is not part of either, has each tree's top as its child, and itself as its parent.
    """
    nodes = size - 1

    def named(found: Iterable[int]) -> list[int]:
        return [absolute(node + 1, size, root) for node in found]

    if rank == root:
        tops = ([n for n in range(nodes) if double_tree(n, nodes)[tree].parent is None] for tree in (0, 1))
        return [(root, named(top)) for top in tops]
    places = double_tree(relative(rank, size, root) - 1, nodes)
    parents = [root if place.parent is None else absolute(place.parent + 1, size, root) for place in places]
    return [(parent, named(place.children)) for parent, place in zip(parents, places, strict=True)]


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


def all_pairs_reduce_scatter(rank: int, size: int, tmp: Scratch) -> list[Step]:
    """Send every rank its block of the input; combine p blocks in rank order in one fused reduction."""
    operands = {q: inp(rank) if q == rank else tmp.take(rank) for q in range(size)}
    sends = [Send(inp(q), q) for q in others(rank, size)]
    receives = [Recv(operands[q], q) for q in reversed(others(rank, size))]
    return [step(receives, sends, Reduce(out(rank), tuple(operands.values())))]


def all_pairs_allgather(rank: int, size: int, own: Ref) -> Step:
    """Send a block to every rank and receive theirs."""
    sends = [Send(own, q) for q in others(rank, size)]
    return step([Recv(out(q), q) for q in reversed(others(rank, size))], sends)


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


def fold_in(
    folded: Fold, source: Ref, target: Ref, tmp: Scratch, name: Callable[[int], int] = int
) -> tuple[list[Step], Ref]:
    """Return (steps in which extra ranks hand their part to their proxies, cells that then hold a member's part)."""
    if folded.partner is None:
        return [], source
    if folded.index is None:
        return [step(Send(source, name(folded.partner)))], source
    received = tmp.take(source.cells)
    return [step(Recv(received, name(folded.partner)), Reduce(target, (source, received)))], target


def fold_out(folded: Fold, cells: Ref) -> list[Step]:
    """Proxies hand the result back to their extra ranks."""
    if folded.partner is None:
        return []
    other = folded.partner
    return [step(Recv(cells, other) if folded.index is None else Send(cells, other))]


def doubling_allreduce(rank: int, size: int, source: Ref, target: Ref, tmp: Scratch) -> list[Step]:
    """Exchange everything with partners 1, 2, 4, ... away, lower rank's operand first."""
    if size == 1:
        return [step(Copy(target, source))]
    folded = fold(rank, size)
    steps, held = fold_in(folded, source, target, tmp)
    if folded.index is not None:
        for k in range(folded.bits):
            partner = folded.member(folded.index ^ 1 << k)
            received = tmp.take(source.cells)
            pair = (held, received) if rank < partner else (received, held)
            steps.append(step(Send(held, partner), Recv(received, partner), Reduce(target, pair)))
            held = target
    return steps + fold_out(folded, target)


def halving_reduce_scatter(
    folded: Fold, source: Ref, target: Ref, tmp: Scratch, name: Callable[[int], int] = int
) -> list[Step]:
    """Exchange half of what a member still holds with partners 1, 2, 4, ... away (Rabenseifner).

    Neighbours combine first, so rank order is kept.  `source` and `target` have 2**bits blocks;
    `name` turns a member into the rank to send to.
    """
    assert folded.index is not None
    held = source
    steps = []
    for k in range(folded.bits):
        other = folded.index ^ 1 << k
        partner = name(folded.member(other))
        keeps, gives = halves(folded.index, folded.bits)[k + 1], halves(other, folded.bits)[k + 1]
        received = tmp.take(keeps)
        kept = _part(held, keeps)
        pair = (kept, received) if folded.index < other else (received, kept)
        result = _part(target, keeps)
        steps.append(step(Send(_part(held, gives), partner), Recv(received, partner), Reduce(result, pair)))
        held = target
    return steps


def doubling_allgather(folded: Fold, cells: Ref) -> list[Step]:
    """Exchange what members hold after halving, in the opposite order of rounds."""
    assert folded.index is not None
    steps = []
    for k in reversed(range(folded.bits)):
        other = folded.index ^ 1 << k
        mine, theirs = halves(folded.index, folded.bits)[k + 1], halves(other, folded.bits)[k + 1]
        partner = folded.member(other)
        steps.append(step(Send(_part(cells, mine), partner), Recv(_part(cells, theirs), partner)))
    return steps


def halves_gather(folded: Fold, cells: Ref, name: Callable[[int], int]) -> list[Step]:
    """Collect at member 0 what members hold after halving."""
    assert folded.index is not None
    steps: list[Step] = []
    for k in reversed(range(folded.bits)):
        other = folded.index ^ 1 << k
        partner = name(folded.member(other))
        if folded.index >> k & 1:
            return [*steps, step(Send(_part(cells, halves(folded.index, folded.bits)[k + 1]), partner))]
        steps.append(step(Recv(_part(cells, halves(other, folded.bits)[k + 1]), partner)))
    return steps


def subtree(rank: int, size: int, root: int) -> list[int]:
    """Return the ranks of a rank's binomial subtree, itself first."""
    rel = relative(rank, size, root)
    return [absolute(q, size, root) for q in range(rel, rel + binomial(rel, size).span)]


def gather_ranges(rank: int, size: int, root: int, held: Ref) -> list[Step]:
    """Collect blocks up a binomial tree; `held` has cells for the rank's subtree, its own first."""
    rel = relative(rank, size, root)
    node = binomial(rel, size)
    receives = [Recv(held[c - rel : c - rel + binomial(c, size).span], absolute(c, size, root)) for c in node.children]
    last = step(Send(held, absolute(node.parent, size, root))) if node.parent is not None else step()
    return [step(receives), last]


def scatter_ranges(rank: int, size: int, root: int, held: Ref) -> list[Step]:
    """Spread blocks down a binomial tree; `held` has cells for the rank's subtree, its own first."""
    return reverse_steps(gather_ranges(rank, size, root, held))


def _part(cells: Ref, blocks: range) -> Ref:
    return cells[blocks.start : blocks.stop]


def _combine(target: Ref, sources: list[Ref]) -> list[Reduce | Copy]:
    if len(sources) > 1:
        return [Reduce(target, tuple(sources))]
    return [] if target == sources[0] else [Copy(target, sources[0])]
