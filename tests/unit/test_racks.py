"""Hosts in racks: what the setting says of them, and hierarchies of more than two levels."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mpicoll
from mpicoll import ScheduleError
from mpicoll.algorithms import known
from mpicoll.algorithms.card import SIZES_AT_REGISTRATION
from mpicoll.algorithms.naming import listed, parsed
from mpicoll.algorithms.registry import get, unregister
from mpicoll.analysis.proof import doubt, prove
from mpicoll.analysis.registration import verify_algorithm
from mpicoll.analysis.verify import verify
from mpicoll.dispatch.explain_text import head
from mpicoll.schedule import COLLECTIVES
from mpicoll.schedule.ir import Send
from mpicoll.schedule.topology import FLAT, Topology, forced, laid_out
from mpicoll.simulate.network import placed

#: of 4 hosts of 2 ranks, two in each rack
RACKS = "0-1,2-3,4-5,6-7/0-1,2-3"

#: ranks of the largest size that is proven of a user's algorithm at registration
SMALL = max(SIZES_AT_REGISTRATION)


def three_levels():
    """Return (collective, name) of each algorithm for several hosts with one of the same name between its hosts."""
    cards = [(row, card) for row in COLLECTIVES for card in known(row) if card.by_hosts]
    inner = [(row, card.name, one.collective) for row, card in cards for one in card.inner if one.between]
    return [(row, f"{name}({what}={name})") for row, name, what in inner if name in {c.name for c in known(what)}]


NESTED = three_levels()


def between_racks(collective, name, topology):
    """Return the vectors that leave the busiest rack."""
    size = len(topology.host_of)
    card, rack_of, left = get(collective, name), topology.levels[1], {}
    for rank, schedule in enumerate(card.schedules(size, 0, topology)):
        for message in (m for step in schedule.steps for m in step.messages if isinstance(m, Send)):
            if rack_of[message.peer] != rack_of[rank]:
                left[rack_of[rank]] = left.get(rack_of[rank], 0) + len(message.source.cells)
    return max(left.values()) / card.vector_blocks(size)


def test_racks_are_read_and_written_in_words():
    assert str(forced("hosts=4/2", 8)) == "4 hosts: 0-1, 2-3, 4-5, 6-7 in 2 racks: 0-1, 2-3"
    assert str(forced("0+2,1+3/0,1", 4)) == "2 hosts: 0+2, 1+3 in 2 racks: 0, 1"
    assert forced("hosts=8/4/2", 16).levels[2] == (0,) * 8 + (1,) * 8
    assert forced(RACKS, 8) == forced("hosts=4/2", 8) != forced("hosts=4", 8)
    assert hash(forced(RACKS, 8)) != hash(forced("hosts=4", 8))


def test_one_rack_is_none():
    assert forced("hosts=4/1", 8) is forced("hosts=4", 8)
    assert forced("hosts=1/1", 8) is FLAT


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0-3,4-7/0", "racks 0: each of the hosts 0 to 1 is in one rack"),
        ("hosts=4/0-1,1-3", "racks 0-1,1-3: each of the hosts 0 to 3 is in one rack"),
        ("hosts=4/2/0", "racks 0: each of the racks 0 to 1 is in one rack"),
        ("0-2,2-7/2", "hosts 0-2,2-7: each of the ranks 0 to 7 is on one host"),
    ],
)
def test_a_host_in_no_rack_or_in_two_is_refused(text, said):
    with pytest.raises(ValueError, match=said):
        forced(text, 8)


@pytest.mark.parametrize("text", ["hosts=4/", "/2", "auto/2", "flat/2", "hosts=4/a", "hosts=4//2"])
def test_a_setting_that_is_none_is_refused(text):
    with pytest.raises(ValueError, match="topology"):
        mpicoll.override(topology=text).__enter__()


def test_a_part_of_a_topology_keeps_hosts_and_racks():
    """Hosts are counted anew, in the order of the part's ranks."""
    part = forced(RACKS, 8).part([7, 6, 0, 4])
    assert part.levels == [(0, 0, 1, 2), (0, 0, 1, 0)]
    assert forced(RACKS, 8).part([0, 1]) is FLAT
    assert forced(RACKS, 8).part([0, 2]) == forced("hosts=2", 2)
    assert FLAT.part([3, 1]) is FLAT


def test_names_may_be_in_names():
    assert listed("ring,striped(allreduce=leader(reduce=ring,bcast=ring),allgather=ring), linear") == [
        "ring",
        "striped(allreduce=leader(reduce=ring,bcast=ring),allgather=ring)",
        "linear",
    ]
    assert parsed("striped(allreduce=leader(reduce=ring,bcast=ring),allgather=ring)") == (
        "striped",
        {"allreduce": "leader(reduce=ring,bcast=ring)", "allgather": "ring"},
    )
    assert get("allreduce", "striped(allreduce=striped(allreduce=ring))").name == (
        "striped(allreduce=striped(allreduce=ring))"
    )


def test_all_that_run_between_hosts_may_be_hierarchies():
    assert len(NESTED) == 15
    assert ("allreduce", "striped(allreduce=striped)") in NESTED


@pytest.mark.slow
@pytest.mark.parametrize(("collective", "name"), NESTED)
def test_three_levels_are_right_on_hosts_and_racks_of_any_kind(collective, name):
    assert verify_algorithm(get(collective, name), range(3, 6)) >= 30


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_three_levels_are_right_on_racks_at_random(data):
    hosts = data.draw(st.lists(st.integers(0, 5), min_size=2, max_size=11))
    racks = data.draw(st.lists(st.integers(0, 2), min_size=len(set(hosts)), max_size=len(set(hosts))))
    topology, (collective, name) = Topology.of(hosts, Topology.of(racks)), data.draw(st.sampled_from(NESTED))
    card = get(collective, name)
    root = data.draw(st.integers(0, len(hosts) - 1)) if card.row.rooted else 0
    verify(card.collective, card.schedules(len(hosts), root, topology), root=root, pipelines=())


def test_four_levels_are_right():
    card = get("allreduce", "striped(allreduce=striped(allreduce=striped))")
    prove(card, 16, topology=forced("hosts=8/4/2", 16))
    prove(card, 11, topology=forced("0,1+4,2+3,5-8,9,10/0+3,1,2,4+5/0+2,1+3", 11))


@pytest.mark.parametrize(
    ("collective", "least", "in_blocks", "in_turns"),
    [
        ("allreduce", 1.0, 2.5, 1.0),
        ("reduce_scatter", 0.5, 1.25, 0.5),
        ("allgather", 0.5, 1.25, 0.5),
        ("bcast", 1.0, 1.0, 1.5),
        ("reduce", 1.0, 1.0, 1.5),
    ],
)
def test_three_levels_send_the_least_between_racks(collective, least, in_blocks, in_turns):
    """2 racks of 2 hosts of 2 ranks; two levels send more where hosts follow each other, or take turns."""
    for racks, vectors in (("0-1,2-3", in_blocks), ("0+2,1+3", in_turns)):
        topology = forced(f"hosts=4/{racks}", 8)
        assert between_racks(collective, f"striped({collective}=striped)", topology) == least
        assert between_racks(collective, "striped", topology) == vectors


def test_ranks_that_see_other_racks_are_found():
    """A rank whose hosts are in other racks sends to others."""
    card, here, there = get("allreduce", "striped(allreduce=striped)"), forced(RACKS, 8), "0-1,2-3,4-5,6-7/0+2,1+3"
    prove(card, 8, topology=here)
    schedules = card.schedules(8, 0, here)
    schedules[3] = card.schedule(3, 8, 0, forced(there, 8))
    with pytest.raises(ScheduleError):
        verify("allreduce", schedules, pipelines=())


def test_a_hierarchy_runs_between_hosts_only():
    both = get("allgather", "striped(allgather=striped)")
    assert [(one.between, one.algorithm) for one in both.inner] == [(True, "striped"), (False, "linear")]
    assert both.cost == get("allgather", "striped").cost
    with pytest.raises(ValueError, match="inner reduce_scatter 'striped' is one for several hosts"):
        get("allreduce", "striped(reduce_scatter=striped)")


def test_what_an_inner_hierarchy_needs_is_asked_of_its_racks():
    """Its reduce_scatter needs a power of two of the hosts of a rack, not of all hosts."""
    halving = get("reduce_scatter", "recursive_halving").function

    def powers(rank, size):
        return halving(rank, size)

    mpicoll.algorithm("reduce_scatter", name="of_powers", power_of_two=True)(powers)
    try:
        card = get("allreduce", "striped(allreduce=striped(reduce_scatter=of_powers))")
        assert card.refuses(8, topology=forced(RACKS, 8)) is None
        assert card.refuses(8, topology=forced("hosts=8/4", 8)) is None
        assert "which needs a power-of-two number of ranks, got 3" in card.refuses(6, topology=forced("hosts=6/2", 6))
    finally:
        unregister("reduce_scatter", "of_powers")


def test_stretches_of_ranks_are_in_the_racks_of_their_hosts():
    """The hosts of a scan: three levels keep the order of ranks."""
    topology = forced("0-1+4-5,2-3,6-7/0+2,1", 8)
    assert topology.stretches.levels == [(0, 0, 1, 1, 2, 2, 3, 3), (0, 0, 1, 1, 0, 0, 0, 0)]
    nested = get("scan", "leader(exscan=leader)")
    assert verify("scan", nested.schedules(8, 0, topology)).ordered
    assert nested.schedules(8, 0, topology) != nested.schedules(8, 0, Topology.of(topology.host_of))


def test_a_user_s_algorithm_at_the_third_level_is_proven_for_each_root():
    """It runs with any root there: that of root 0 alone says nothing."""
    binomial = get("bcast", "binomial").function

    def mine(rank, size, root):
        return binomial(rank, size, root if size <= SMALL else 0)

    mpicoll.algorithm("bcast", name="mine")(mine)
    try:
        card = get("bcast", "striped(bcast=striped(bcast=mine))")
        many = forced(f"hosts={2 * SMALL + 2}/{SMALL + 1}", 2 * SMALL + 2)
        assert doubt(card, 2 * SMALL + 2, 0, many) is None
        kind, _ = doubt(card, 2 * SMALL + 2, 2 * SMALL + 1, many)
        assert kind is ScheduleError
    finally:
        unregister("bcast", "mine")


def test_a_user_s_algorithm_is_proven_for_each_root_of_many_ranks():
    """Above 64 ranks the inner algorithms are proven, each by itself."""
    binomial = get("bcast", "binomial").function
    mpicoll.algorithm("bcast", name="mine")(lambda rank, size, root: binomial(rank, size, root if size <= SMALL else 0))
    try:
        many = forced(f"hosts={SMALL + 1}", 4 * SMALL + 4)
        assert many.hosts == SMALL + 1
        kind, _ = doubt(get("bcast", "striped(bcast=mine)"), 4 * SMALL + 4, 0, many)
        assert kind is ScheduleError
    finally:
        unregister("bcast", "mine")


def test_names_that_are_too_deep_are_refused_with_the_limit():
    deep = "striped(allreduce=striped(allreduce=striped(allreduce=striped(allreduce=ring))))"
    with pytest.raises(ValueError, match="with such in such up to 3 deep"):
        get("allreduce", deep)


def test_the_choice_of_racks_is_planned_drawn_and_named():
    with mpicoll.override(topology="hosts=4/2", tuning="model"):
        plan = mpicoll.plan("allreduce", size=8, nbytes=1 << 16, algorithm="striped(allreduce=striped)/2")
    assert str(plan.choice) == "striped(allreduce=striped)/2@host"
    assert "in 2 racks: 0-1, 2-3" in head(plan.key)


def test_a_link_between_racks_is_simulated():
    """A message from host 0 to host 3 goes out of host and rack, and into rack and host."""
    given = {"alpha": 0.0, "bandwidth": 1e9, "net_alpha": 0.0, "net_bandwidth": 1e8, "rack_bandwidth": 1e7}
    network = placed(8, layout=RACKS, **given)
    names = [network.links[link].name for link in network.route(1, 6)[1]]
    assert names == ["1 out", "1 far out", "host 0 out", "rack 0 out", "rack 1 in", "host 3 in", "6 far in", "6 in"]
    names = [network.links[link].name for link in network.route(1, 2)[1]]
    assert names == ["1 out", "1 far out", "host 0 out", "host 1 in", "2 far in", "2 in"]
    assert network.topology == laid_out(RACKS, 8)
    assert placed(4, layout="1", **given | {"rack_bandwidth": math.inf}).topology is FLAT
    with pytest.raises(ValueError, match="layout 2 has no racks; 2/2 has two"):
        placed(4, layout="2", **given)
