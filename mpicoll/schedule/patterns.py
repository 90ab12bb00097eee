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
class TreeNode:
    """A place's parent (None at the root) and children in a tree."""

    parent: int | None
    children: tuple[int, ...]


@dataclass(frozen=True)
class Subtree(TreeNode):
    """A place with all places below it, which follow each other.

    In the binomial tree of 6 places, place 4 has parent 0, child 5, places 4 to 5, and the part 5 to 5.

    Attributes:
        places: itself and all below it.
        parts: those below each child, with the child.
    """

    places: range
    parts: tuple[range, ...]


def knomial(relative: int, size: int, radix: int) -> Subtree:
    """Return a place in the k-nomial tree, whose root is place 0: each level has radix - 1 children a rank more."""
    children: list[int] = []
    parts: list[range] = []
    reach = 1
    while reach < size and not relative // reach % radix:
        for child in range(relative + reach, min(relative + radix * reach, size), reach):
            children.append(child)
            parts.append(range(child, min(child + reach, size)))
        reach *= radix
    parent = relative - relative // reach % radix * reach if relative else None
    return Subtree(parent, tuple(children), range(relative, min(relative + reach, size)), tuple(parts))


def binomial(relative: int, size: int) -> Subtree:
    """Return a place in the binomial tree, whose root is place 0."""
    return knomial(relative, size, 2)


def bine(relative: int, size: int) -> TreeNode:
    """Return a place in the Bine tree of a power of two of places, whose root is place 0 (De Sensi et al. 2025).

    Round by round partners are 1, 1, 3, 5, 11, ... apart, to the right of even places and to the left of odd ones:
    about two thirds of the way of a binomial tree.  The digits of a place to the base -2 end in as many equal ones as
    it has partners.
    """
    bits = (size - 1).bit_length()
    odd = sum(2 << 2 * k for k in range(bits))  # adding it turns places into digits to the base -2, and back
    digits = (relative + odd ^ odd) & size - 1
    equal = next((k for k in range(1, bits) if (digits >> k ^ digits) & 1), bits)
    sign = -1 if relative % 2 else 1
    partners = [(relative + sign * (1 - (-2) ** k) // 3) % size for k in range(1, equal + 1)]
    return TreeNode(partners.pop() if relative else None, tuple(partners))


def in_order_tree(node: int, nodes: int) -> TreeNode:
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
    return TreeNode(parent - 1 if parent else None, tuple(c - 1 for c in children))


def double_tree(node: int, nodes: int) -> tuple[TreeNode, TreeNode]:
    """Return (place, place) of a node in two binary trees, inner in at most one of them (Sanders et al. 2009)."""
    odd = nodes % 2
    there = (node - 1) % nodes if odd else nodes - 1 - node  # shift by one, or mirror
    second = in_order_tree(there, nodes)

    def back(n: int) -> int:
        return (n + 1) % nodes if odd else nodes - 1 - n

    parent = None if second.parent is None else back(second.parent)
    return in_order_tree(node, nodes), TreeNode(parent, tuple(back(c) for c in second.children))


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


def doubling_tree(rank: int, size: int, root: int) -> Subtree:
    """Return a rank in the tree of those that meet partners 1, 2, 4, ... away until all is at the root.

    Neighbours fold first; a pair's place follows from the bits in which its index differs from that of the root.
    So every subtree is a range of ranks, whatever the root; places are ranks.
    """
    folded = fold(rank, size)
    pair = (rank,) if folded.partner is None else (rank, folded.partner)
    if rank != root and (root in pair or folded.index is None):
        assert folded.partner is not None
        return Subtree(folded.partner, (), range(rank, rank + 1), ())

    def index(of: int) -> int:
        return of - min((of + 1) // 2, folded.extra)

    def ranks(of: range) -> range:
        first = (of.start ^ index(root)) & -len(of)
        return range(folded.member(first), folded.member(first + len(of)))

    def name(place: int) -> int:
        return folded.member(place ^ index(root)) if place else root

    node = binomial(index(rank) ^ index(root), 1 << folded.bits)
    parent = None if node.parent is None else name(node.parent)
    extras = tuple(r for r in pair if r != rank)
    children = (*extras, *map(name, node.children))
    parts = (*(range(r, r + 1) for r in extras), *map(ranks, node.parts))
    return Subtree(parent, children, ranks(node.places), parts)


def circulant_rounds(size: int) -> list[tuple[int, range]]:
    """Return the rounds of an allgather in a circulant graph (Träff 2024), whose last one has half of the blocks.

    A round is (distance, which): to the rank at this distance to the right go the blocks of the ranks that are
    so far to the left.  For 5 ranks: (1, 0 to 0), (2, 0 to 0), (3, 0 to 1).
    """
    rounds: list[tuple[int, range]] = []
    high = size
    while high > 1:
        low = high - high // 2
        rounds.append((low, range(high - low)))
        high = low
    return rounds[::-1]


def far_first_rounds(size: int) -> list[tuple[int, range]]:
    """Return rounds as `circulant_rounds`, but the farther a message travels, the fewer blocks it has (PAT).

    For 5 ranks: (4, 0 to 0), (2, 0 to 0), (1, 0 and 2).
    """
    return [(mask, range(0, size - mask, 2 * mask)) for mask in reversed(masks(size))]


def power_of_two(size: int) -> bool:
    """Tell whether size is a power of two."""
    return size & (size - 1) == 0
