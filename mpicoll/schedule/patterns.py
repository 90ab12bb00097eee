"""Rank arithmetic: rings, trees, folds.  Integers only, no blocks and no buffers."""

from __future__ import annotations

from dataclasses import dataclass


def others(rank: int, size: int) -> tuple[int, ...]:
    """Return all other ranks, nearest to the right first, so that no target is hit by all at once."""
    return tuple((rank + k) % size for k in range(1, size))


def masks(size: int) -> tuple[int, ...]:
    """Return the powers of two below size, ascending."""
    return tuple(1 << k for k in range((size - 1).bit_length()))


def halves(index: int, bits: int) -> tuple[range, ...]:
    """Return the blocks of 2**bits that a member holds after 0, 1, 2, ... rounds of halving.

    Round k keeps the lower or the upper half as bit k of the index says.
    """
    held = [range(1 << bits)]
    for k in range(bits):
        middle = len(held[-1]) // 2
        held.append(held[-1][middle:] if index >> k & 1 else held[-1][:middle])
    return tuple(held)


@dataclass(frozen=True)
class Binomial:
    """A rank's place in a binomial tree rooted at relative rank 0.

    Attributes:
        parent: relative rank of the parent, None at the root.
        children: relative ranks of the children, nearest first.
        span: number of relative ranks in the subtree (rank, rank + 1, ...).
    """

    parent: int | None
    children: tuple[int, ...]
    span: int


def binomial(relative: int, size: int) -> Binomial:
    """Return a relative rank's parent, children and subtree; subtrees are contiguous ranges."""
    lowest = relative & -relative if relative else 1 << (size - 1).bit_length()
    children = tuple(relative + m for m in masks(size) if m < lowest and relative + m < size)
    parent = relative - lowest if relative else None
    return Binomial(parent, children, min(lowest, size - relative))


@dataclass(frozen=True)
class BinaryNode:
    """A node's parent (None at the root) and children in a binary tree."""

    parent: int | None
    children: tuple[int, ...]


def in_order_tree(node: int, nodes: int) -> BinaryNode:
    """Return a place in the in-order binary tree of nodes 0..nodes-1, whose even nodes are leaves."""
    label = node + 1
    low = label & -label
    up = (label ^ low) | (low << 1)
    parent = up if up <= nodes else label ^ low
    children = [] if low == 1 else [label - low // 2]
    right = low // 2
    while right and label + right > nodes:
        right //= 2
    if right:
        children.append(label + right)
    return BinaryNode(parent - 1 if parent else None, tuple(c - 1 for c in children))


def double_tree(node: int, nodes: int) -> tuple[BinaryNode, BinaryNode]:
    """Return (place, place) of a node in two binary trees, inner in at most one of them (Sanders et al. 2009)."""
    odd = nodes % 2
    there = (node - 1) % nodes if odd else nodes - 1 - node  # shift by one, or mirror
    second = in_order_tree(there, nodes)

    def back(n: int) -> int:
        return (n + 1) % nodes if odd else nodes - 1 - n

    parent = None if second.parent is None else back(second.parent)
    return in_order_tree(node, nodes), BinaryNode(parent, tuple(back(c) for c in second.children))


@dataclass(frozen=True)
class Fold:
    """The folding of a number of ranks to a power of two.

    The first 2*extra ranks pair up, even with odd: the odd one (*extra*) hands its part to
    the even one (*proxy*), which takes part for both; the rest (*base*) take part for
    themselves.  Pairs are neighbours, so rank order is kept, and rank 0 is a member.
    Of 6 ranks, 4 members are left: 0 (for 0 and 1), 2 (for 2 and 3), 4 and 5.

    Attributes:
        extra: number of extra ranks.
        bits: log2 of the number of members.
        index: this rank's index among the members, None for an extra rank.
        partner: the other rank of the pair, None for a base rank.
    """

    extra: int
    bits: int
    index: int | None
    partner: int | None

    @property
    def members(self) -> tuple[int, ...]:
        """The ranks that take part, by their index 0..2**bits-1."""
        return tuple(map(self.member, range(1 << self.bits)))

    def member(self, index: int) -> int:
        """Return the rank that takes part with this index."""
        return index + min(index, self.extra)

    def group(self, index: int) -> tuple[int, ...]:
        """Return the ranks that a member stands for: itself, and its extra rank after it."""
        member = self.member(index)
        return tuple(range(member, member + 2 if index < self.extra else member + 1))


def fold(rank: int, size: int) -> Fold:
    """Fold size ranks to the largest power of two that is not larger."""
    bits = size.bit_length() - 1
    extra = size - (1 << bits)
    if rank >= 2 * extra:
        return Fold(extra, bits, rank - extra, None)
    return Fold(extra, bits, None if rank % 2 else rank // 2, rank ^ 1)


def power_of_two(size: int) -> bool:
    """Tell whether size is a power of two."""
    return size & (size - 1) == 0
