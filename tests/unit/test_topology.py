"""Topologies, the traffic between hosts that follows from them, and what is chosen because of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mpicoll
from mpicoll.algorithms import known
from mpicoll.algorithms.registry import get
from mpicoll.analysis.host_traffic import INCAST, HostLink, HostTraffic, host_traffic
from mpicoll.dispatch.facts import Facts
from mpicoll.dispatch.limits import LANES
from mpicoll.dispatch.select import candidates
from mpicoll.dispatch.tuning import here
from mpicoll.schedule import COLLECTIVES
from mpicoll.schedule.ir import Recv
from mpicoll.schedule.topology import FLAT, Topology, forced, laid_out

BLOCK, CYCLIC = "0-3,4-7", "0+2+4+6,1+3+5+7"


@pytest.mark.parametrize(
    ("text", "size", "expected"),
    [
        ("hosts=2", 8, "2 hosts: 0-3, 4-7"),
        ("hosts=2", 5, "2 hosts: 0-1, 2-4"),
        (CYCLIC, 8, "2 hosts: 0+2+4+6, 1+3+5+7"),
        ("4-7,0-3", 8, "2 hosts: 0-3, 4-7"),
        ("hosts=1", 8, "one host"),
        ("auto", 8, "one host"),
        ("flat", 8, "one host"),
        ("hosts=8", 3, "3 hosts: 0, 1, 2"),
    ],
)
def test_the_setting_says_which_ranks_are_on_one_host(text, size, expected):
    assert str(forced(text, size)) == expected


@pytest.mark.parametrize(("text", "size"), [("0-2,4-7", 8), ("0-4,4-7", 8), ("0-3", 8)])
def test_each_rank_is_on_one_host(text, size):
    with pytest.raises(ValueError, match="each of the ranks 0 to 7 is on one host"):
        laid_out(text, size)


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=9))
def test_topologies_are_equal_where_the_same_ranks_are_together(names):
    topology = Topology.of(names)
    renamed = Topology.of([name * 2 for name in names])
    assert topology is renamed
    assert hash(topology) == hash(Topology(topology.host_of))
    if len(set(names)) == 1:
        assert topology is FLAT
        return
    assert topology.hosts == len(set(names))
    assert sorted(rank for group in topology.groups for rank in group) == list(range(len(names)))
    together = {(a, b) for group in topology.groups for a in group for b in group}
    assert together == {(a, b) for a, x in enumerate(names) for b, y in enumerate(names) if x == y}


@pytest.mark.parametrize(
    ("collective", "algorithm", "text", "expected"),
    [
        ("allreduce", "reduce_scatter_allgather", BLOCK, HostTraffic(2, 1.0, 0.25, 1.0, 0.25, messages=2, turns=2)),
        ("allreduce", "reduce_scatter_allgather", CYCLIC, HostTraffic(2, 4.0, 1.0, 4.0, 1.0, messages=2, turns=2)),
        ("allreduce", "two_shot", BLOCK, HostTraffic(2, 4.0, 1.0, 4.0, 1.0, messages=8, turns=2)),
        ("allreduce", "ring", BLOCK, HostTraffic(4, 1.75, 1.75, 1.75, 1.75, messages=14, turns=14)),
        ("bcast", "linear", BLOCK, HostTraffic(1, 4.0, 4.0, 4.0, 4.0, messages=4, turns=1)),
        ("bcast", "binomial", BLOCK, HostTraffic(1, 1.0, 1.0, 1.0, 1.0, messages=1, turns=1)),
        ("bcast", "binomial", CYCLIC, HostTraffic(1, 4.0, 1.0, 4.0, 1.0, messages=1, turns=1)),
        ("alltoall", "linear", BLOCK, HostTraffic(1, 2.0, 0.5, 2.0, 0.5, messages=4, turns=1)),
        ("bcast", "chained", "hosts=4", HostTraffic(3, 1.0, 0.5, 3.0, 1.5, messages=1, turns=1)),  # one by one
        ("bcast", "striped", "hosts=4", HostTraffic(4, 1.5, 0.75, 1.5, 0.75, messages=4, turns=4)),
        ("bcast", "binomial", "hosts=4", HostTraffic(2, 2.0, 2.0, 3.0, 3.0, messages=2, turns=1)),
        ("allgather", "bruck_4", "0+4,1+5,2+6,3+7", HostTraffic(1, 0.75, 0.375, 0.75, 0.375, 1.5, messages=3, turns=1)),
        ("allgather", "striped", "0+4,1+5,2+6,3+7", HostTraffic(2, 0.75, 0.375, 0.75, 0.375, 0.0, messages=2, turns=2)),
    ],
)
def test_traffic_by_hand(collective, algorithm, text, expected):
    """Message size of an alltoall: what one rank sends; 4 ranks of a host send half of it to the other."""
    assert host_traffic(get(collective, algorithm), forced(text, 8)) == expected


@pytest.mark.parametrize("text", [BLOCK, CYCLIC, "hosts=3", "0,1-7"])
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_what_hosts_receive_is_what_they_are_sent(collective, text):
    """Counted once more, from the receives."""
    topology, size = forced(text, 8), 8
    for card in (card for card in known(collective) if not card.refuses(size)):
        for root in (0, 5) if card.row.rooted else (0,):
            entering, leaving = [0] * 8, [0] * 8
            for rank in range(size):
                for step in card.schedule(rank, size, root, topology).steps:
                    for one in step.messages:
                        if isinstance(one, Recv) and topology.host_of[one.peer] != topology.host_of[rank]:
                            entering[topology.host_of[rank]] += len(one.target)
                            leaving[topology.host_of[one.peer]] += len(one.target)
            found = host_traffic(card, topology, root)
            assert found.vectors == max(entering + leaving) / card.vector_blocks(size)
            assert (found.rounds == 0) == (found.vectors == 0)


def test_the_time_of_traffic():
    assert HostLink(2.0, 0.5).seconds(HostTraffic(3, 1.5, 1.5, 1.5, 1.5), 8) == 3 * 2.0 + 1.5 * 8 * 0.5


def test_segments_let_hosts_send_at_the_same_time():
    """A chain of four hosts: three vectors one after the other, or one and a half with four segments."""
    link, chain = HostLink(1.0, 1.0), HostTraffic(3, 1.0, 1.0, 3.0, 3.0)
    assert [link.seconds(chain, 8, s) for s in (1, 4)] == [3 + 3 * 8, 3 + 1.5 * 8]


def test_segments_fill_the_delays_between_turns_of_a_host():
    """Four turns of 3 s: with four segments half of that is others' in each delay of 1 s, with two nothing is."""
    link, turns = HostLink(1.0, 1.0), HostTraffic(4, 1.5, 1.5, 1.5, 1.5, turns=4)
    assert [link.seconds(turns, 8, s) for s in (1, 2, 4)] == [4 + 12, 4 + 12, 1 + 12]
    assert [link.seconds(turns, 2, s) for s in (1, 2, 4)] == [4 + 3] * 3  # too short
    assert link.seconds(HostTraffic(2, 1.5, 1.5, 1.5, 1.5, turns=7), 28, 4) == 1 + 42  # most turns wait for nobody
    chain = HostTraffic(3, 1.0, 1.0, 1.0, 1.0, turns=1)
    assert link.seconds(chain, 80, 4) == 3 + 80  # nothing to do meanwhile


def test_hosts_that_send_to_one_at_once_take_longer():
    link = HostLink(0.0, 1.0)
    assert link.seconds(HostTraffic(1, 1.0, 1.0, 1.0, 1.0, 2.0), 10) == pytest.approx(10 * (1 + 2 * INCAST))


def test_long_vectors_pass_along_a_chain_of_hosts_in_segments(tmp_path):
    """On a link of 20 ms and 2.5 MB/s; one vector leaves each host, where a tree sends one and a half."""
    file = tmp_path / "mine"
    file.write_text("model:between_hosts:alpha=0.02:beta=4e-07", encoding="utf-8")
    for collective in ("bcast", "reduce"):
        with mpicoll.override(topology="0+4,1+5,2+6,3+7", tuning=file):
            plan = mpicoll.plan(collective, size=8, nbytes=1 << 20)
        assert (plan.algorithm, plan.segments) == ("chained", 32)
        assert host_traffic(get(collective, plan.algorithm), plan.key.facts.topology).vectors == 1.0


def test_hosts_that_exchange_in_turns_use_as_many_segments_as_are_in_flight(tmp_path):
    """On a link of 20 ms and 2.5 MB/s: 32 KiB are too short for it, and two hosts have one turn."""
    file = tmp_path / "mine"
    file.write_text("model:between_hosts:alpha=0.02:beta=4e-07", encoding="utf-8")
    found = {}
    for layout in ("0+4,1+5,2+6,3+7", "0-3,4-7"):
        with mpicoll.override(topology=layout, tuning=file):
            plans = [mpicoll.plan("allreduce", size=8, nbytes=n) for n in (1 << 15, 1 << 20, 1 << 22)]
        found[layout] = [(plan.algorithm, plan.segments) for plan in plans]
    assert found == {
        "0+4,1+5,2+6,3+7": [("leader", 1), ("striped", 4), ("striped", 4)],
        "0-3,4-7": [("striped", 1)] * 3,
    }


@pytest.mark.parametrize("collective", ["scan", "bcast"])
def test_a_chain_of_ranks_is_cut_into_more_segments_than_are_in_flight(collective):
    """Hosts have several turns in it, but each rank one: it is free for the next segment."""
    with mpicoll.override(topology="0+4,1+5,2+6,3+7", tuning="model"):
        assert mpicoll.plan(collective, size=8, nbytes=1 << 22, algorithm="ring").segments > LANES


def test_one_rank_alone_may_not_fill_the_link():
    """A host sends 1 GB/s, one of its ranks 0.25 GB/s."""
    link, n = HostLink(0.0, 1e-9, 4e-9), 1_000_000
    assert link.seconds(HostTraffic(1, 1.0, 1.0, 1.0, 1.0), n) == pytest.approx(4e-3)
    assert link.seconds(HostTraffic(1, 1.0, 0.25, 1.0, 0.25), n) == pytest.approx(1e-3)
    assert link.seconds(HostTraffic(1, 1.0, 0.125, 1.0, 0.125), n) == pytest.approx(1e-3)


@pytest.mark.parametrize("text", [BLOCK, CYCLIC, "0-4,5-7", "hosts=4"])
def test_long_vectors_take_what_sends_least_over_the_network(text):
    topology = forced(text, 8)
    for collective in ("allreduce", "allgather", "reduce_scatter", "bcast"):
        with mpicoll.override(topology=text, tuning="model"):
            plan = mpicoll.plan(collective, size=8, nbytes=1 << 19)
        able = [get(collective, c.choice.algorithm) for c in candidates(plan.key.asked) if c.seconds is not None]
        least = min(host_traffic(card, topology).vectors for card in able)
        assert host_traffic(get(collective, plan.algorithm), topology).vectors <= 1.3 * least


def test_one_host_changes_nothing():
    for hosts in ("auto", "flat", "hosts=1"):
        with mpicoll.override(topology=hosts):
            assert mpicoll.plan("allreduce", size=8, nbytes=1 << 19).key.facts == Facts(
                "allreduce", 8, 1 << 19, paths=("host",)
            )


def test_a_plan_says_where_ranks_are():
    with mpicoll.override(topology=CYCLIC):
        text = str(mpicoll.plan("allreduce", size=8, nbytes=1 << 19, rank=3))
    assert text.startswith("allreduce of 512K on 8 ranks (host arrays, rank 3, 2 hosts: 0+2+4+6, 1+3+5+7)\n")


def test_tables_of_one_host_are_not_in_force_on_two():
    assert not any(table.machine.hosts == "1" for table in here(2).tables)
    with mpicoll.override(topology="hosts=2"):
        plan = mpicoll.plan("allreduce", size=8, nbytes=1 << 19)
    assert not any(table.machine.hosts == "1" for table in plan.key.tuning.tables)
