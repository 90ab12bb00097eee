"""Simulations: exactly the closed formulas where nothing contends, and what sharing of links does."""

import importlib.util
import json
import math
from itertools import pairwise
from pathlib import Path

import pytest

import mpicoll
from mpicoll.algorithms import registry
from mpicoll.analysis.bounds import bound
from mpicoll.errors import ScheduleError
from mpicoll.pictures.gantt import gantt
from mpicoll.schedule.collectives import COLLECTIVES
from mpicoll.simulate.actions import of_messages
from mpicoll.simulate.calls import simulate_call, simulate_messages
from mpicoll.simulate.engine import simulate
from mpicoll.simulate.machine import UNIT, Machine, machine, machines
from mpicoll.simulate.network import KINDS
from mpicoll.simulate.path import between_hosts, busiest, shares

ROOT = Path(mpicoll.__file__).parent.parent

N, B = 1 << 20, 1e9
#: bytes take time, and nothing else
BYTES = Machine("bytes", network={"alpha": 0.0, "bandwidth": B})
#: everything takes time
ALL = Machine("all", network={"alpha": 5e-6, "bandwidth": B}, extra=1e-6, gamma=1e-10, launch=1e-6)
#: messages take time, further ones at once less
MESSAGES = Machine("messages", network={"alpha": 5e-6, "bandwidth": B}, extra=1e-6)
#: formulas that say what the last of all subtrees takes, which only full trees have
FULL_TREES = ("binomial", "knomial_4", "bruck_4", "double_binary_tree")
#: formulas that count the further messages of all ranks, of which some travel at the same time
UPPER = ("gather.ring", "scatter.ring", "bcast.striped", "reduce.striped", "alltoall.bundles")
#: those of which one host needs a part only
UPPER += ("scan.leader", "exscan.leader", "bcast.chained", "reduce.chained")


def seconds(collective, algorithm, ranks, where, nbytes=N, segments=1):
    return simulate_call(registry.get(collective, algorithm), where, ranks, nbytes, segments=segments).seconds


@pytest.mark.parametrize("k", [2, 3, 8, 13])
def test_a_naive_broadcast_sends_the_vector_to_one_rank_after_the_other(k):
    assert seconds("bcast", "linear", k, BYTES) == pytest.approx((k - 1) * N / B, rel=1e-12)


@pytest.mark.parametrize("k", [2, 3, 8, 13])
@pytest.mark.parametrize("segments", [1, 2, 7, 64])
def test_a_broadcast_around_the_ring_takes_as_many_steps_as_segments_and_ranks(k, segments):
    expected = N * (segments + k - 2) / (segments * B)
    assert seconds("bcast", "ring", k, BYTES, segments=segments) == pytest.approx(expected, rel=1e-12)


def test_a_broadcast_in_many_segments_takes_the_time_of_one_message():
    assert seconds("bcast", "ring", 4, BYTES, segments=2000) == pytest.approx(N / B, rel=2e-3)


@pytest.mark.parametrize("p", [2, 3, 8, 13])
def test_an_allreduce_around_the_ring_moves_nearly_two_vectors(p):
    assert seconds("allreduce", "ring", p, BYTES) == pytest.approx(2 * (p - 1) / p * N / B, rel=1e-12)


@pytest.mark.parametrize("p", [2, 4, 8, 16])
def test_a_binomial_tree_takes_a_message_for_each_doubling(p):
    expected = math.log2(p) * (5e-6 + N / B)
    assert seconds("bcast", "binomial", p, MESSAGES) == pytest.approx(expected, rel=1e-12)


def test_simulated_times_are_those_of_the_cost_formulas(card):
    """Exactly on powers of two, and nowhere later: a formula says what the largest subtrees take."""
    exact = 0
    for p in (2, 3, 4, 8, 13, 16):
        if card.refuses(p):
            continue
        for nbytes in (8, N):
            found = simulate_call(card, MESSAGES, p, nbytes).seconds
            formula = MESSAGES.model.seconds(card.cost, p, 0 if card.row.idempotent else nbytes)
            assert found <= formula * (1 + 1e-9), f"{p} ranks, {nbytes} bytes"
            if found == pytest.approx(formula, rel=1e-9):
                exact += 1
    assert exact >= (0 if card.name in FULL_TREES or f"{card.collective}.{card.name}" in UPPER else 2)


def test_algorithms_for_hosts_see_those_of_the_machine():
    """On 2 hosts of 8 one vector leaves each host in stripes; around a flat ring 1.875."""
    where = machines()["h100_infiniband"]
    runs = {name: simulate_call(registry.get("allreduce", name), where, 16, N) for name in ("striped", "ring")}
    assert between_hosts(runs["striped"]) == pytest.approx(2 * N)
    assert between_hosts(runs["ring"]) == pytest.approx(2 * 1.875 * N)
    assert runs["striped"].seconds < 0.2 * runs["ring"].seconds


def test_local_work_adds_to_the_time():
    """Ring: p-1 reductions of a p-th of the vector each."""
    p = 8
    added = seconds("allreduce", "ring", p, ALL) - seconds("allreduce", "ring", p, MESSAGES)
    assert added == pytest.approx((p - 1) * (1e-6 + N / p * 1e-10), rel=1e-9)


def test_rounds_are_seconds_on_the_unit_machine():
    assert seconds("allreduce", "recursive_doubling", 8, UNIT) == 3
    assert seconds("bcast", "linear", 8, UNIT) == 7


def test_ranks_of_a_host_share_its_card():
    """Two ranks of one host that send to another host take turns on one card, and not on two."""
    one = Machine("one", "hosts", {"per_host": 2, "alpha": 0, "bandwidth": 8 * B, "net_alpha": 0, "net_bandwidth": B})
    two = Machine("two", "hosts", {**one.network, "nics": 2})
    pairs = [(0, 2), (1, 3)]
    shared, apart = (simulate_messages(pairs, where, 4, N) for where in (one, two))
    assert shared.seconds == pytest.approx(2 * N / B)
    assert apart.seconds == pytest.approx(N / B)
    assert between_hosts(shared) == 2 * N
    assert busiest(shared) == ("host 0 card 0 out", 2 * N, pytest.approx(1.0))


def test_a_slow_message_leaves_room_beside_it_on_a_fast_port():
    """A message to another host takes an eighth of the port: one inside the host gets the other seven."""
    where = Machine("m", "hosts", {"per_host": 2, "alpha": 0, "bandwidth": 8 * B, "net_alpha": 0, "net_bandwidth": B})
    inside, outside = by_target(simulate_messages([(0, 2), (0, 1)], where, 4, N))
    assert (inside.start, outside.start) == (0, 0)
    assert inside.end == pytest.approx(N / B / 7)
    assert outside.end == pytest.approx(N / B)


def test_a_fast_port_is_shared_by_as_many_slow_messages_as_it_can_carry():
    where = Machine("n", "fat_tree", {"per_leaf": 2, "alpha": 0, "bandwidth": B, "uplinks": 2})
    assert simulate_messages([(0, 2), (1, 3)], where, 4, N).seconds == pytest.approx(N / B)


def by_target(run):
    return sorted(run.messages(), key=lambda message: message.target)


def test_an_oversubscribed_tree_is_slower():
    full, half = (
        Machine("t", "fat_tree", {"per_leaf": 2, "alpha": 0, "bandwidth": B, "uplinks": uplinks}) for uplinks in (2, 1)
    )
    pairs = [(0, 2), (1, 3)]
    fast, slow = (simulate_messages(pairs, where, 4, N).seconds for where in (full, half))
    assert slow == pytest.approx(2 * fast)


def test_messages_around_a_ring_take_every_link_between():
    where = Machine("r", "torus", {"alpha": 1e-6, "bandwidth": B, "hop": 1e-7})
    far = simulate_messages([(0, 3)], where, 8, N)
    assert far.seconds == pytest.approx(1e-6 + 2e-7 + N / B)
    assert sum(nbytes > 0 for nbytes in far.link_bytes) == 3 + 2
    assert simulate_messages([(0, 3), (1, 2)], where, 8, N).seconds == pytest.approx(1e-6 + 2 * N / B, rel=1e-3)
    assert simulate_messages([(0, 6)], where, 8, N).seconds == pytest.approx(1e-6 + 1e-7 + N / B)


def test_a_torus_goes_the_short_way_in_each_dimension():
    where = Machine("t", "torus", {"alpha": 0, "bandwidth": B, "shape": [3, 4]})
    done = simulate_messages([(0, 11)], where, 12, N)
    names = [link.name for link, nbytes in zip(done.network.links, done.link_bytes, strict=True) if nbytes]
    assert names == ["0 out", "11 in", "0>8", "8>11"]
    with pytest.raises(ValueError, match="3x4 has 12 ranks, not 8"):
        where.of_ranks(8)


def test_the_hybrid_cube_mesh_has_the_three_speeds_of_the_puzzle():
    done = simulate_messages([(0, 3), (0, 1), (0, 5)], machines()["hybrid_cube_mesh"], 8, 400e6)
    one_link, two_links, pcie = (one.nbytes / (one.end - one.start) for one in by_target(done))
    assert (one_link, two_links, pcie) == pytest.approx((25e9, 50e9, 16e9), rel=0.01)


def test_the_critical_path_takes_the_whole_time():
    one = simulate_call(registry.get("allreduce", "ring"), ALL, 5, N)
    path = one.critical_path()
    assert path[0].start == 0
    assert path[-1].end == one.seconds
    assert all(after.start <= before.end + 1e-12 for before, after in pairwise(path))
    assert len(path) == 2 * 4 + 4
    parts = shares(one)
    assert (parts.messages, parts.works) == (8, 4)
    assert parts.moving == pytest.approx(8 / 5 * N / B)
    assert parts.call + parts.moving + parts.latency + parts.working == pytest.approx(one.seconds)
    assert parts.latency == pytest.approx(8 * 5e-6)


def test_slow_bytes_are_no_latency():
    """Two messages share a card of 12 GB/s, and the second one gets a third of it."""
    network = {"per_host": 2, "alpha": 0, "bandwidth": 8 * B, "net_alpha": 0, "net_bandwidth": 12 * B}
    done = simulate_messages([(0, 2), (1, 3)], Machine("s", "hosts", network), 4, N)
    assert shares(done).latency == pytest.approx(0, abs=1e-12)


def test_a_message_that_waits_for_a_link_has_the_one_before_it_as_its_cause():
    one = simulate_call(registry.get("bcast", "linear"), BYTES, 4, N)
    assert [(part.source, part.target) for part in one.critical_path()] == [(0, 1), (0, 2), (0, 3)]


def test_messages_that_nobody_receives_are_an_error():
    actions = of_messages([(0, 1, 8.0)], 2)
    with pytest.raises(ScheduleError, match="rank 0 waits for messages for ever"):
        simulate([actions[0], iter([])], BYTES.of_ranks(2))


@pytest.mark.slow
def test_logarithmic_algorithms_run_on_many_ranks():
    """4,096 ranks here; `docs/measurements.md` has the times of 65,536."""
    p = 4096
    assert seconds("allreduce", "recursive_doubling", p, MESSAGES, 8) == pytest.approx(12 * (5e-6 + 8e-9))


@pytest.mark.parametrize("name", machines())
def test_every_machine_runs_and_says_where_its_figures_are_from(name):
    where = machines()[name]
    ranks = 16 if where.kind == "torus" else 8
    assert simulate_call(registry.get("allreduce", "ring"), where, ranks, N).seconds > 0
    assert where.source
    assert where.kind in KINDS


@pytest.mark.parametrize("name", machines())
def test_nothing_is_faster_than_its_lower_bound(name):
    where, tried = machines()[name], 0
    for ranks in (16,) if "shape" in where.network else (3, 8):
        for card in (card for row in COLLECTIVES for card in registry.known(row) if not card.refuses(ranks)):
            for nbytes in (8, 64 << 20):
                least = bound(card.collective, where.fastest(ranks), ranks, 0 if card.row.idempotent else nbytes)
                found = simulate_call(card, where, ranks, nbytes).seconds
                assert found >= least.seconds * (1 - 1e-9), f"{card.collective} {card.name} {ranks} {nbytes}"
                tried += 1
    assert tried > 100


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[1]", "a machine is a JSON object"),
        ('{"kind": "cloud"}', "'cloud' is none of"),
        ('{"alpha": 1e-6}', "switch needs 'bandwidth'"),
        ('{"alpha": 1e-6, "bandwidth": 1e9, "colour": 3}', "colour"),
        ('{"alpha": 1e-6, "bandwidth": 0}', "'bandwidth' is 0; it is above 0"),
        ('{"alpha": NaN, "bandwidth": 1e9}', "'alpha' is nan; it is a number"),
        ('{"alpha": [1], "bandwidth": 1e9}', "'alpha' is .1.; it is a number"),
        ('{"alpha": 0, "bandwidth": 1e9, "ports": 0}', "'ports' is 0; it is above 0"),
        ('{"alpha": 0, "bandwidth": 1e9, "ports": 1.5}', "'ports' is 1.5; it is a whole number"),
        ('{"kind": "torus", "alpha": 0, "bandwidth": 1e9, "shape": []}', "list of whole numbers above 0"),
        ('{"kind": "mesh", "alpha": 0, "bandwidth": 1, "pairs": {}, "other_alpha": 0, "other_bandwidth": 1}', "pairs"),
        (
            '{"kind": "mesh", "alpha": 0, "bandwidth": 1, "pairs": {"1-0": 1}, "other_alpha": 0, "other_bandwidth": 1}',
            "the lower rank first",
        ),
        ('{"alpha": -1, "bandwidth": 1e9}', "not below 0"),
        ("{", "Expecting"),
    ],
)
def test_a_file_that_describes_no_machine_is_refused(tmp_path, text, complaint):
    file = tmp_path / "mine.json"
    file.write_text(text)
    with pytest.raises(ValueError, match=complaint):
        machine(str(file))


def test_a_machine_of_ones_own_is_read_from_a_file(tmp_path):
    file = tmp_path / "mine.json"
    file.write_text(json.dumps({"alpha": 1e-6, "bandwidth": 1e9, "launch": 2e-6, "source": "measured"}))
    found = machine(str(file))
    assert (found.name, found.kind, found.launch, found.model.beta) == ("mine", "switch", 2e-6, 1e-9)
    with pytest.raises(ValueError, match="no machine 'yours'; known: host"):
        machine("yours")


def test_a_timeline_shows_who_sends_when():
    one = simulate_call(registry.get("bcast", "linear"), BYTES, 3, N)
    assert gantt(one, range(3), 8) == ["   0  >>>>>>>>", "   1  <<<<....", "   2  ....<<<<"]


@pytest.mark.slow
def test_simulated_times_are_near_the_measured_ones():
    """Kernels on 4 H200, at a switch that is no bottleneck; up to 1 MiB here, `bench/simulated.py` has all sizes."""
    spec = importlib.util.spec_from_file_location("simulated", ROOT / "bench" / "simulated.py")
    simulated = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(simulated)
    run = ROOT / "bench" / "results" / "2026-11-28-algorithms-4xH200.json"
    errors = simulated.errors_of(simulated.compared(run, 4, "mapped", machines()["h200_kernels"], most=1 << 20))
    assert len(errors) > 100
    assert simulated.quantile(errors, 0.5) <= 0.2
    assert simulated.quantile(errors, 0.95) <= 0.5
