import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpicoll.schedule.patterns import (
    bine,
    binomial,
    circulant_rounds,
    double_tree,
    doubling_tree,
    far_first_rounds,
    fold,
    halves,
    in_order_tree,
    knomial,
    masks,
    others,
    power_of_two,
)

SIZES = [*range(1, 35), 48, 63, 64, 65, 100, 127, 128, 129]
some_size = st.integers(1, 600)


def depths(parents):
    """Each node's distance from the root; fails on a cycle, on two roots and on none."""
    (root,) = [node for node, parent in enumerate(parents) if parent is None]
    found = {root: 0}
    for _ in parents:
        found |= {n: found[p] + 1 for n, p in enumerate(parents) if p in found}
    assert len(found) == len(parents), f"not reached: {set(range(len(parents))) - set(found)}"
    return found


def assert_tree(nodes):
    """Every node is reached once and parent and child agree; returns the depths."""
    for node, place in enumerate(nodes):
        for child in place.children:
            assert nodes[child].parent == node
        if place.parent is not None:
            assert nodes[place.parent].children.count(node) == 1
    assert sum(len(place.children) for place in nodes) == len(nodes) - 1
    return depths([place.parent for place in nodes])


@pytest.mark.parametrize("size", SIZES)
def test_others_hit_each_target_once_at_a_time(size):
    rows = [others(rank, size) for rank in range(size)]
    for rank, row in enumerate(rows):
        assert sorted([rank, *row]) == list(range(size))
    for targets in zip(*rows, strict=True):
        assert len(set(targets)) == size


@given(some_size)
def test_masks_are_the_powers_of_two_below_the_size(size):
    assert list(masks(size)) == [1 << k for k in range(20) if 1 << k < size]


@pytest.mark.parametrize("bits", range(7))
def test_halving_shares_what_the_pair_held(bits):
    for index in range(1 << bits):
        mine = halves(index, bits)
        assert mine[0] == range(1 << bits)
        assert len(mine[bits]) == 1
        for k in range(bits):
            theirs = halves(index ^ 1 << k, bits)
            assert theirs[k] == mine[k]  # both hold the same before they share
            assert sorted([*mine[k + 1], *theirs[k + 1]]) == list(mine[k])
            assert len(mine[k + 1]) == len(theirs[k + 1])


@pytest.mark.parametrize("bits", range(7))
def test_halving_ends_with_a_block_for_everyone(bits):
    assert sorted(b for i in range(1 << bits) for b in halves(i, bits)[bits]) == list(range(1 << bits))


@pytest.mark.parametrize("size", SIZES)
def test_binomial_tree(size):
    nodes = [binomial(rank, size) for rank in range(size)]
    depth = assert_tree(nodes)
    assert nodes[0].parent is None
    assert max(depth.values()) <= (size - 1).bit_length()
    for rank, node in enumerate(nodes):
        assert list(node.children) == sorted(node.children)
        # at most ceil(log2 p) rounds: a child's subtree is done before its turn comes
        assert all(len(nodes[c].children) <= k for k, c in enumerate(node.children))
        assert len(node.children) <= (size - 1).bit_length()
        assert subtree(nodes, rank) == list(node.places)


def subtree(nodes, rank):
    return sorted([rank, *(r for c in nodes[rank].children for r in subtree(nodes, c))])


def assert_parts(nodes):
    """A node's places are itself and its children's, each of which has a part of them."""
    for place, node in enumerate(nodes):
        assert [nodes[c].places for c in node.children] == list(node.parts)
        assert sorted([place, *(p for part in node.parts for p in part)]) == list(node.places)


@pytest.mark.parametrize("radix", [2, 3, 4])
@pytest.mark.parametrize("size", SIZES)
def test_knomial_tree(size, radix):
    nodes = [knomial(place, size, radix) for place in range(size)]
    levels = next(k for k in range(20) if radix**k >= size)
    assert max(assert_tree(nodes).values()) <= levels
    assert_parts(nodes)
    assert len(nodes[0].children) <= (radix - 1) * levels
    assert nodes[0].places == range(size)


@pytest.mark.parametrize("size", SIZES)
def test_doubling_tree_has_subtrees_of_neighbours_for_every_root(size):
    for root in range(size) if size < 35 else (0, 1, size // 2, size - 1):
        nodes = [doubling_tree(rank, size, root) for rank in range(size)]
        assert nodes[root].parent is None
        # one round for those that fold, and one for each bit
        assert max(assert_tree(nodes).values()) <= (size - 1).bit_length()
        assert_parts(nodes)


@pytest.mark.parametrize("bits", range(9))
def test_bine_tree_is_shorter_than_a_binomial_one(bits):
    size = 1 << bits
    nodes = [bine(place, size) for place in range(size)]
    assert max(assert_tree(nodes).values()) <= bits
    assert len(nodes[0].children) == bits
    assert all(len(nodes[c].children) == k for k, c in enumerate(nodes[0].children))
    if bits > 1:
        assert distance(nodes, size) <= 3 / 4 * distance([binomial(place, size) for place in range(size)], size)


def distance(nodes, size):
    """The sum of the ways to all parents, around the ring of places."""
    ways = [abs(place - node.parent) for place, node in enumerate(nodes) if node.parent is not None]
    return sum(min(way, size - way) for way in ways)


@pytest.mark.parametrize("rounds_of", [circulant_rounds, far_first_rounds])
@pytest.mark.parametrize("size", SIZES)
def test_rounds_bring_every_block_once(size, rounds_of):
    rounds = rounds_of(size)
    assert len(rounds) == (size - 1).bit_length()
    held = {0}
    for distance, which in rounds:
        assert set(which) <= held
        come = {d + distance for d in which}
        assert not come & held
        held |= come
    assert held == set(range(size))


@pytest.mark.parametrize("size", SIZES[1:])
def test_far_messages_are_short(size):
    lengths = [len(which) for _, which in far_first_rounds(size)]
    ways = [distance for distance, _ in far_first_rounds(size)]
    assert lengths == sorted(lengths)
    assert ways == sorted(ways, reverse=True)


@pytest.mark.parametrize("size", SIZES)
def test_in_order_tree(size):
    nodes = [in_order_tree(n, size) for n in range(size)]
    depth = assert_tree(nodes)
    assert max(depth.values()) <= size.bit_length()
    for n, node in enumerate(nodes):
        assert len([c for c in node.children if c < n]) <= 1
        assert len([c for c in node.children if c > n]) <= 1
        if n % 2 == 0:
            assert node.children == ()
        below = [r for c in node.children if c < n for r in subtree(nodes, c)]
        above = [r for c in node.children if c > n for r in subtree(nodes, c)]
        assert [*sorted(below), n, *sorted(above)] == subtree(nodes, n)  # in order


@pytest.mark.parametrize("size", SIZES)
def test_double_tree_makes_every_node_inner_at_most_once(size):
    places = [double_tree(n, size) for n in range(size)]
    for tree in (0, 1):
        depth = assert_tree([place[tree] for place in places])
        assert max(depth.values()) <= size.bit_length()
        assert max(len(place[tree].children) for place in places) <= 2
    for first, second in places:
        assert not (first.children and second.children)


@pytest.mark.parametrize("size", SIZES)
def test_fold_keeps_the_largest_power_of_two(size):
    folds = [fold(rank, size) for rank in range(size)]
    members, bits = folds[0].members, folds[0].bits
    assert 1 << bits <= size < 2 << bits
    assert len(set(members)) == 1 << bits
    assert list(members) == sorted(members)  # so that rank order is index order
    assert members[0] == 0
    assert {(f.members, f.bits) for f in folds} == {(members, bits)}
    for rank, folded in enumerate(folds):
        assert (rank in members) == (folded.index is not None)
        if folded.index is not None:
            assert members[folded.index] == rank


@pytest.mark.parametrize("size", SIZES)
def test_fold_pairs_neighbours_so_that_groups_are_in_rank_order(size):
    folds = [fold(rank, size) for rank in range(size)]
    for rank, folded in enumerate(folds):
        if folded.partner is None:
            assert folded.index is not None
            continue
        assert folds[folded.partner].partner == rank
        assert abs(folded.partner - rank) == 1
        assert (folded.index is None) != (folds[folded.partner].index is None)
        if folded.index is None:  # the proxy's operand comes first
            assert folded.partner == rank - 1
    groups = [folds[0].group(i) for i in range(len(folds[0].members))]
    assert [r for group in groups for r in group] == list(range(size))
    for member, group in zip(folds[0].members, groups, strict=True):
        partner = folds[member].partner
        assert group == ((member,) if partner is None else (member, partner))


def test_powers_of_two():
    assert [size for size in range(1, 1000) if power_of_two(size)] == [2**k for k in range(10)]
