"""Algorithms for several hosts: proven on many topologies, with the least traffic between hosts, and chosen there."""

import dataclasses
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mpicoll
from mpicoll import ScheduleError
from mpicoll.algorithms import known, space
from mpicoll.algorithms.registry import get
from mpicoll.analysis.host_traffic import host_traffic
from mpicoll.analysis.proof import demand, prove
from mpicoll.analysis.registration import verify_algorithm
from mpicoll.analysis.verify import verify
from mpicoll.dispatch.facts import Facts
from mpicoll.dispatch.select import candidates, select
from mpicoll.dispatch.tuning import Tuning
from mpicoll.schedule import COLLECTIVES
from mpicoll.schedule.embed import Region, beside, embed
from mpicoll.schedule.ir import Reduce, Ref, Schedule, Scratch, Send, inp, out, step
from mpicoll.schedule.topology import FLAT, Topology, forced, tried
from unit.left_out import without

CARDS = [card for row in COLLECTIVES for card in known(row) if card.by_hosts]
NAMES = [f"{card.collective}.{card.name}" for card in CARDS]
STRIPED = [card for card in CARDS if card.name == "striped"]
#: ranks on one host of each: blocks, in turns, uneven, one rank on a host of its own
LAYOUTS = ["0-3,4-7", "0+2+4+6,1+3+5+7", "0-4,5-7", "0,1-7", "0-1,2-3,4-5,6-7", "0+3,1+2+5,4+6+7"]


def test_they_are_those_that_there_are():
    assert sorted(NAMES) == [
        "allgather.striped",
        "allreduce.leader",
        "allreduce.striped",
        "alltoall.bundles",
        "barrier.leader",
        "bcast.chained",
        "bcast.leader",
        "bcast.striped",
        "exscan.leader",
        "gather.leader",
        "reduce.chained",
        "reduce.leader",
        "reduce.striped",
        "reduce_scatter.striped",
        "scan.leader",
        "scatter.leader",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("own", CARDS, ids=NAMES)
def test_they_are_right_on_hosts_of_any_kind(own):
    """Up to 7 ranks here; `make verify` proves more."""
    assert verify_algorithm(own, range(1, 8)) > 30


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_they_are_right_on_hosts_at_random(data):
    hosts = data.draw(st.lists(st.integers(0, 4), min_size=2, max_size=11))
    topology, card = Topology.of(hosts), data.draw(st.sampled_from(CARDS))
    root = data.draw(st.integers(0, len(hosts) - 1)) if card.row.rooted else 0
    schedules = card.schedules(len(hosts), root, topology)
    verify(card.collective, schedules, root=root, pipelines=())
    needed = space.counted(card.row, schedules)
    assert needed.packed <= card.scratch_blocks(len(hosts), True)
    assert needed.blocks == (card.vector_blocks(len(hosts)) if card.row.free else card.row.blocks(len(hosts)))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("own", STRIPED, ids=[card.collective for card in STRIPED])
def test_stripes_send_no_more_between_hosts_than_must_be(own, layout):
    """With H hosts of n ranks: an allreduce 2(H-1)/H vectors, the others what the largest host must get or give."""
    topology = forced(layout, 8)
    hosts, largest = topology.hosts, max(map(len, topology.groups))
    least = {
        "allreduce": 2 * (hosts - 1) / hosts,
        "bcast": 1.0 if hosts == 2 else 2.0,
        "reduce": 1.0 if hosts == 2 else 2.0,
        "allgather": max((hosts - 1) * largest / 8, 1 - min(map(len, topology.groups)) / 8),
        "reduce_scatter": max((hosts - 1) * largest / 8, 1 - min(map(len, topology.groups)) / 8),
    }[own.collective]
    even = len(set(map(len, topology.groups))) == 1
    assert host_traffic(own, topology).vectors <= least * (1 if even or hosts == 2 else 1.3)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("collective", ["allreduce", "allgather", "reduce_scatter", "bcast"])
def test_they_are_chosen_for_512_kib_and_by_name(collective, layout):
    with mpicoll.override(topology=layout, tuning="model"):
        plan = mpicoll.plan(collective, size=8, nbytes=1 << 19)
        if collective in ("allreduce", "allgather"):
            assert plan.algorithm == "striped"
        assert mpicoll.plan(collective, size=8, nbytes=8, algorithm="striped").algorithm == "striped"
    assert mpicoll.plan(collective, size=8, nbytes=1 << 19, algorithm="striped").algorithm == "striped"


@pytest.mark.parametrize("own", CARDS, ids=NAMES)
def test_on_one_host_nobody_chooses_them_but_the_caller(own):
    assert own.name not in {one.choice.algorithm for one in candidates(Facts(own.collective, 8, 1 << 16))}
    choice, _ = select(Facts(own.collective, 8, 1 << 16), own.name, "", "", Tuning())
    assert choice.algorithm == own.name
    verify(own.collective, own.schedules(8, 0, FLAT), pipelines=())


def test_an_operator_that_does_not_commute_is_refused():
    """Hosts in turns combine ranks out of order."""
    facts = Facts("allreduce", 4, 1 << 19, commutative=False, topology=forced("0+2,1+3", 4))
    with pytest.raises(mpicoll.UnsupportedError, match="'striped' needs a commutative operator"):
        select(facts, "striped", "", "", Tuning())
    proof = verify("allreduce", get("allreduce", "striped").schedules(4, 0, facts.topology))
    assert not proof.ordered


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("collective", ["scan", "exscan"])
def test_prefixes_are_in_rank_order_on_any_hosts(collective, layout):
    """An operator that does not commute is served, and hosts in blocks send a vector in each round between them."""
    topology = forced(layout, 8)
    facts = Facts(collective, 8, 1 << 19, commutative=False, topology=topology)
    assert select(facts, "leader", "", "", Tuning())[0].algorithm == "leader"
    assert verify(collective, get(collective, "leader").schedules(8, 0, topology)).ordered
    if topology.stretches == topology and topology.hosts == 2:
        assert host_traffic(get(collective, "leader"), topology).vectors == 1.0


def test_stretches_of_ranks_that_follow_each_other_count_as_hosts():
    assert str(forced("0-1+4-5,2-3", 6).stretches) == "3 hosts: 0-1, 2-3, 4-5"
    assert forced("0-2,3-5", 6).stretches is forced("0-2,3-5", 6)
    assert FLAT.stretches is FLAT


@pytest.mark.parametrize("collective", ["scan", "exscan"])
def test_prefixes_that_are_combined_the_other_way_round_are_found(collective):
    card, topology = get(collective, "leader"), forced("0-3,4-7", 8)
    assert prove(card, 8, topology=topology).blocks == 1

    def turned(stage):
        found = card.function(stage)
        steps = [dataclasses.replace(one, local=tuple(map(other_way_round, one.local))) for one in found.steps]
        return dataclasses.replace(found, steps=tuple(steps))

    with pytest.raises(ScheduleError, match="claims to be ordered, but does not"):
        prove(dataclasses.replace(card, function=turned), 8, topology=topology)


def other_way_round(work):
    """Return local work whose operands are in the opposite order."""
    return Reduce(work.target, work.sources[::-1]) if isinstance(work, Reduce) else work


def test_the_very_topology_is_proven_when_it_is_first_used(monkeypatch):
    """One whose stripes go to a wrong owner is an error, and no wrong result."""
    card = get("allreduce", "striped")
    topology = forced("0-3,4-7", 8)
    demand(card, 8, 0, topology)

    def of_others(stage):
        return card.schedule(stage.rank, 8, 0, topology if stage.rank < 4 else forced("0+2+4+6,1+3+5+7", 8))

    wrong = dataclasses.replace(card, function=of_others)
    with pytest.raises(ScheduleError, match="striped, size 8"):
        demand(wrong, 8, 0, topology)


@pytest.mark.parametrize("own", CARDS, ids=NAMES)
def test_a_message_that_is_left_out_is_found(own):
    topology, chance = forced("0-4,5-7", 8), random.Random(3)
    schedules = own.schedules(8, 0, topology)
    for _ in range(8):
        rank = chance.choice([r for r, s in enumerate(schedules) if any(one.messages for one in s.steps)])
        number = chance.randrange(sum(len(one.messages) for one in schedules[rank].steps))
        with pytest.raises(ScheduleError):
            verify(own.collective, without(schedules, rank, number), pipelines=())


def test_embedded_schedules_have_other_ranks_and_lists_of_blocks():
    """An allgather of two, on ranks 4 and 6, with blocks of three and two."""
    lists = [[0, 1, 2], [3, 4]]
    cells = [out(blocks) for blocks in lists]
    region = Region((4, 6), lists, cells, cells)
    first, second = embed(get("allgather", "linear").schedule(0, 2), region, Scratch()), Scratch()
    assert [str(one) for one in first] == ["recv output[3-4] from 6; send output[0-2] to 6", "nothing"]
    region = Region((4, 6), lists, list(map(inp, lists)), cells)
    reduce = embed(get("reduce_scatter", "all_pairs").schedule(1, 2), region, second)
    assert str(reduce[0]) == "recv scratch[0-1] from 4; send input[0-2] to 4; output[3-4] = scratch[0-1] + input[3-4]"
    assert second.ids == [3, 4]


def test_what_moves_nothing_is_left_out():
    lists = [[], [0]]
    region = Region((2, 5), lists, list(map(inp, lists)), [out(blocks) for blocks in lists])
    steps = embed(get("allgather", "linear").schedule(0, 2), region, Scratch())
    assert [str(one) for one in steps] == ["recv output[0] from 5", "nothing"]


def test_a_list_without_blocks_does_not_say_which_buffer_it_is():
    """Rank 5 sends on what it has of two blocks, of which the first is empty."""
    region = Region((2, 5), [[], [1]], [Ref("scratch", ()), inp([1])], [out([]), out([1])])
    inner = Schedule.of([step(Send(inp([0, 1]), 0))], 2)
    assert [str(one) for one in embed(inner, region, Scratch())] == ["send input[1] to 2"]


@pytest.mark.parametrize("blocks", [[[4], [7], [5]], [[4, 1], [], [5]]])
def test_cells_that_follow_each_other_are_the_same_in_one_reference(blocks):
    """A reference for each block took most of the time of a plan on thousands of hosts."""
    ids = [block for part in blocks for block in part]
    apart = Region((0, 1, 2), blocks, list(map(inp, blocks)), list(map(out, blocks)))
    together = Region.of((0, 1, 2), blocks, inp(ids), out(ids))
    for name in ("circulant", "recursive_halving", "ring"):
        for inner in get("reduce_scatter", name).schedules(3):
            assert embed(inner, together, Scratch()) == embed(inner, apart, Scratch())
    unread = Region.of((0, 1, 2), blocks, Ref("scratch", ()), out(ids))
    assert [ref.cells for ref in unread.inputs] == [(), (), ()]


def test_cells_are_referred_to_by_their_places():
    assert str(out([4, 7, 5]).at([2, 0])) == "output[5,4]"
    assert str(out(range(4, 9)).at(range(1, 4))) == "output[5-7]"
    assert str(out([4]).at((0,))) == "output[4]"


def test_parts_beside_each_other_go_step_by_step():
    a, b = step(), step()
    two = beside([a, b], [a])
    assert len(two) == 2
    assert beside() == []
    assert Schedule.of(two, 1).steps == ()
    assert Ref("scratch", ()).cells == ()


def test_topologies_that_are_tried_have_several_hosts():
    for size in (2, 3, 5, 8, 9, 64):
        found = list(tried(size))
        assert found
        assert all(len(topology.host_of) == size and topology.hosts > 1 for topology in found)


def test_rounds_between_hosts_are_messages_that_wait_for_each_other():
    """Not those that a rank sends one after the other: a bcast along the ring goes to the other host once."""
    blocks, turns = forced("0-3,4-7", 8), forced("0+2+4+6,1+3+5+7", 8)
    found = {name: host_traffic(get("bcast", name), blocks).rounds for name in ("linear", "ring", "binomial")}
    assert found == {"linear": 1, "ring": 1, "binomial": 1}
    assert host_traffic(get("bcast", "ring"), turns).rounds == 7
    assert host_traffic(get("allreduce", "circulant"), turns).rounds == 2
    assert host_traffic(get("allreduce", "striped"), turns).rounds == 1
    assert host_traffic(get("barrier", "leader"), blocks).rounds >= 1
