"""Least bytes between hosts: no algorithm sends less, some reach them, and a search over all messages agrees."""

import math
from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpicoll.algorithms import known
from mpicoll.algorithms.registry import get
from mpicoll.analysis.host_bounds import LEAST, UNKNOWN, least_host_bytes
from mpicoll.analysis.host_traffic import host_bytes, host_traffic
from mpicoll.schedule import COLLECTIVES
from mpicoll.schedule.topology import FLAT, Topology, forced, tried

BLOCK, CYCLIC, UNEVEN = "0-3,4-7", "0+2+4+6,1+3+5+7", "0-4,5-7"


def equal(card, size):
    """One byte for each block of a vector, as the algorithm cuts it."""
    return [1] * (card.vector_blocks(size) if card.row.free else card.row.blocks(size))


def test_every_collective_has_a_bound_or_a_reason_why_it_has_none():
    assert LEAST.keys() | UNKNOWN.keys() == COLLECTIVES.keys()
    assert not LEAST.keys() & UNKNOWN.keys()


@pytest.mark.parametrize(
    ("collective", "text", "root", "vectors"),
    [
        ("allreduce", BLOCK, 0, 1),
        ("allreduce", UNEVEN, 0, 1),
        ("allreduce", "hosts=4", 0, 1.5),
        ("bcast", CYCLIC, 5, 1),
        ("reduce", "hosts=4", 5, 1),
        ("gather", UNEVEN, 0, 3 / 8),
        ("scatter", UNEVEN, 7, 5 / 8),
        ("allgather", UNEVEN, 0, 5 / 8),
        ("reduce_scatter", "hosts=4", 0, 6 / 8),
        ("scan", BLOCK, 0, 1),
        ("scan", CYCLIC, 0, 4),
        ("exscan", "0+2,1+3-7", 0, 2),
        ("scan", "0,1+3-7,2", 0, 2),
    ],
)
def test_bounds_by_hand(collective, text, root, vectors):
    assert least_host_bytes(collective, forced(text, 8), root, [1 / 8] * 8) == pytest.approx(vectors)


def test_all_blocks_of_an_alltoall_that_leave_a_host_must_leave_it():
    assert least_host_bytes("alltoall", forced(UNEVEN, 8), 0, [1] * 64) == 5 * 3
    sizes = [0] * 64
    sizes[7 * 8 + 0] = 9  # from rank 7 to rank 0, on another host
    sizes[0 * 8 + 1] = 99
    assert least_host_bytes("alltoall", forced(UNEVEN, 8), 0, sizes) == 9


def test_on_one_host_nothing_must_be_sent_between_hosts():
    assert all(least_host_bytes(name, FLAT, 0, [1] * 64) == 0 for name in LEAST)


@pytest.mark.parametrize("collective", LEAST)
def test_no_algorithm_sends_less(collective):
    found = 0
    for size in range(2, 9):
        for card in (card for card in known(collective) if not card.refuses(size)):
            for root in (0, size - 1) if card.row.rooted else (0,):
                for topology in tried(size):
                    least = least_host_bytes(collective, topology, root, equal(card, size))
                    assert host_bytes(card, topology, root, equal(card, size)) >= least * (1 - 1e-12), (card, topology)
                    found += 1
    assert found > 100


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_no_algorithm_sends_less_of_uneven_blocks(data):
    names = [name for name in LEAST if not COLLECTIVES[name].free]
    card = data.draw(st.sampled_from([card for name in names for card in known(name)]))
    hosts = data.draw(st.lists(st.integers(0, 2), min_size=2, max_size=6).filter(lambda one: len(set(one)) > 1))
    topology, size = Topology.of(hosts), len(hosts)
    if not card.refuses(size):
        blocks = card.row.blocks(size)
        sizes = data.draw(st.lists(st.integers(0, 9), min_size=blocks, max_size=blocks))
        root = data.draw(st.integers(0, size - 1)) if card.row.rooted else 0
        assert host_bytes(card, topology, root, sizes) >= least_host_bytes(card.collective, topology, root, sizes)


@pytest.mark.parametrize(
    ("collective", "algorithm", "layouts"),
    [
        ("allreduce", "striped", (BLOCK, CYCLIC, UNEVEN, "0,1-7", "hosts=4")),
        ("bcast", "striped", (BLOCK, CYCLIC, UNEVEN, "0,1-7")),
        ("reduce", "striped", (BLOCK, CYCLIC, UNEVEN, "0,1-7")),
        ("allgather", "striped", (BLOCK, CYCLIC, UNEVEN, "0,1-7", "hosts=4")),
        ("reduce_scatter", "striped", (BLOCK, CYCLIC, UNEVEN, "0,1-7", "hosts=4")),
        ("gather", "leader", (BLOCK, CYCLIC, UNEVEN, "0,1-7", "hosts=4")),
        ("scatter", "leader", (BLOCK, CYCLIC, UNEVEN, "0,1-7", "hosts=4")),
        ("alltoall", "bundles", (BLOCK, CYCLIC, UNEVEN, "0,1-7", "hosts=4")),
        ("scan", "ring", (BLOCK, CYCLIC, UNEVEN, "0,1-7", "hosts=4")),
        ("exscan", "ring", (BLOCK, CYCLIC, UNEVEN, "0,1-7", "hosts=4")),
    ],
)
def test_algorithms_reach_the_bound(collective, algorithm, layouts):
    card = get(collective, algorithm)
    for text in layouts:
        topology = forced(text, 8)
        least = least_host_bytes(collective, topology, 0, equal(card, 8))
        assert host_bytes(card, topology, 0, equal(card, 8)) == pytest.approx(least), text


@pytest.mark.parametrize("text", [BLOCK, CYCLIC, UNEVEN, "hosts=4"])
@pytest.mark.parametrize("collective", LEAST)
def test_bytes_of_equal_blocks_are_those_of_the_cost_model(collective, text):
    topology = forced(text, 8)
    for card in (card for card in known(collective) if not card.refuses(8)):
        found = host_bytes(card, topology, 0, [1] * len(equal(card, 8))) / card.vector_blocks(8)
        assert found == host_traffic(card, topology).vectors


# A search over all messages: what hosts know are blocks, each made of some ranks' operands.


def joined(parts, reducing):
    """All that a host can make of what it has, adding what has no rank in common."""
    found = set(parts)
    while reducing:
        new = {(a, x | y) for (a, x), (b, y) in combinations(found, 2) if a == b and not x & y} - found
        if not new:
            break
        found |= new
    return frozenset(found)


def searched(collective, topology, root):
    """Return the least number of messages of a block each out of, or into, the busiest host."""
    row, size = COLLECTIVES[collective], len(topology.host_of)
    blocks = 1 if row.free else row.blocks(size)
    start, goal = [], []
    for group in topology.groups:
        has = {(i, frozenset([rank])) for rank in group for i in row.before(rank, size, root, blocks)}
        wants = {(i, frozenset(of)) for rank in group for i, of in row.after(rank, size, root, blocks).items()}
        start.append(joined(has, row.reducing))
        goal.append(wants)
    return next(most for most in range(99) if reached(start, goal, most, row.reducing))


def reached(start, goal, most, reducing):
    """Tell whether hosts get what they want with so many messages out of and into each."""
    none = (0,) * len(start)
    stack, seen = [(tuple(start), none, none)], set()
    while stack:
        state = stack.pop()
        if state in seen:
            continue
        seen.add(state)
        knows, out, into = state
        missing = [sum(one not in has for one in wants) for has, wants in zip(knows, goal, strict=True)]
        if not any(missing):
            return True
        for a, has in enumerate(knows):
            for b in range(len(knows)):
                if a != b and out[a] < most and into[b] < most:
                    for part in has - knows[b]:
                        after = joined(knows[b] | {part}, reducing)
                        parts = (*knows[:b], after, *knows[b + 1 :])
                        stack.append((parts, bumped(out, a), bumped(into, b)))
    return False


def bumped(counts, place):
    return (*counts[:place], counts[place] + 1, *counts[place + 1 :])


@pytest.mark.parametrize(
    ("collective", "text"),
    [
        *product(sorted(LEAST.keys() - {"alltoall"}), ["0,1", "0-1,2", "0+2,1", "0-1,2-3", "0+2,1+3", "0,1,2"]),
        *product(["bcast", "reduce", "scan", "exscan"], ["0,1+3,2"]),
    ],
)
def test_a_search_over_all_messages_finds_the_bound(collective, text):
    """In whole blocks, so that a third of one more counts as one."""
    topology = forced(text, 1 + max(int(one) for one in text if one.isdecimal()))
    size, row = len(topology.host_of), COLLECTIVES[collective]
    for root in (0, size - 1) if row.rooted else (0,):
        least = least_host_bytes(collective, topology, root, [1] * (1 if row.free else size))
        assert searched(collective, topology, root) == math.ceil(least)
