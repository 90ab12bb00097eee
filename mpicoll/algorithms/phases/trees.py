"""Phases along trees; a node's places become ranks by `name`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from mpicoll.schedule.ir import Copy, Recv, Reduce, Ref, Scratch, Send, Step, step
from mpicoll.schedule.patterns import Subtree, TreeNode, double_tree, knomial
from mpicoll.schedule.reverse import reverse_steps

#: turns a place into a rank
Name = Callable[[int], int]


def relative(rank: int, size: int, root: int) -> int:
    """Return the rank as counted from the root."""
    return (rank - root) % size


def absolute(rel: int, size: int, root: int) -> int:
    """Return the rank whose relative rank is rel."""
    return (rel + root) % size


def rooted(rank: int, size: int, root: int, radix: int = 2) -> tuple[Subtree, Name]:
    """Return (this rank's node, name of a place) of a k-nomial tree, binomial if not said otherwise.

    Args:
        rank: this rank.
        size: number of ranks.
        root: the rank at place 0.
        radix: factor by which the ranks that are reached grow from level to level.
    """
    return knomial(relative(rank, size, root), size, radix), partial(absolute, size=size, root=root)


def tree_bcast(node: TreeNode, name: Name, cells: Ref) -> list[Step]:
    """Send cells down a tree, the last child first, whose subtree is the largest."""
    receive = Recv(cells, name(node.parent)) if node.parent is not None else ()
    return [step(receive), step(Send(cells, name(c)) for c in reversed(node.children))]


def tree_reduce(rank: int, node: TreeNode, name: Name, source: Ref, target: Ref | None, tmp: Scratch) -> list[Step]:
    """Combine source up a tree, operands by rank in one fused reduction; the root gets target.

    Args:
        rank: this rank.
        node: its place in the tree.
        name: turns a place into a rank.
        source: this rank's part.
        target: cells for what it combines; None for its own part where there is nothing to combine, else scratch.
        tmp: from which scratch is taken.
    """
    if target is None:
        target = tmp.take(source.cells) if node.children else source
    received = {name(c): tmp.take(source.cells) for c in node.children}
    operands = {rank: source, **received}
    receives = [Recv(cells, child) for child, cells in received.items()]
    steps = [step(receives, combine(target, [operands[r] for r in sorted(operands)]))]
    if node.parent is not None:
        steps.append(step(Send(target, name(node.parent))))
    return steps


def gather_ranges(node: Subtree, name: Name, held: Ref, width: int = 1) -> list[Step]:
    """Collect blocks up a tree.

    Args:
        node: this rank's place.
        name: turns a place into a rank.
        held: cells for all places of its subtree, in order.
        width: cells of a place.
    """
    first = node.places.start
    receives = [
        Recv(held[(part.start - first) * width : (part.stop - first) * width], name(child))
        for child, part in zip(node.children, node.parts, strict=True)
    ]
    return [step(receives), step(Send(held, name(node.parent)) if node.parent is not None else ())]


def scatter_ranges(node: Subtree, name: Name, held: Ref, width: int = 1) -> list[Step]:
    """Spread blocks down a tree; arguments as in `gather_ranges`."""
    return reverse_steps(gather_ranges(node, name, held, width))


def combine(target: Ref, sources: list[Ref]) -> list[Reduce | Copy]:
    """Combine several sources, copy a single one, and do nothing where it is the target."""
    if len(sources) > 1:
        return [Reduce(target, tuple(sources))]
    return [] if target == sources[0] else [Copy(target, sources[0])]


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
