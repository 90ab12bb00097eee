"""The link between hosts: in tables, in predictions, in what plans say, and in simulations of this machine."""

import json
import math

import pytest

import mpicoll
from mpicoll.__main__ import main
from mpicoll.algorithms.registry import get
from mpicoll.analysis.host_traffic import HostLink, host_traffic
from mpicoll.cli.machines import tuned_machine
from mpicoll.dispatch.paths import HOST_LINK, PATHS
from mpicoll.dispatch.rules import Rule
from mpicoll.dispatch.table import merged, parse_table
from mpicoll.dispatch.tuning import Tuning, here
from mpicoll.schedule.topology import forced
from mpicoll.simulate.calls import simulate_call
from mpicoll.simulate.machine import machine
from mpicoll.tuning.choose import rules
from mpicoll.tuning.pings import _next

SLOW = "model:between_hosts:alpha=0.02:beta=4e-07"


@pytest.fixture
def table(tmp_path):
    """Puts a tuning table in force while a test runs, on two hosts."""
    file = tmp_path / "mine"

    def use(text, topology="hosts=2"):
        file.write_text(text, encoding="utf-8")
        return mpicoll.override(tuning=file, topology=topology)

    return use


def test_a_table_says_the_link_and_is_written_again():
    text = "model:host:alpha=5e-06\nmodel:between_hosts:alpha=0.02:beta=4e-07:rank_beta=8e-07\n"
    found = parse_table(text, "mine")
    assert found.link == HostLink(0.02, 4e-7, 8e-7, "measured, mine")
    assert list(found.models) == ["host"]
    assert found.text() == text
    assert parse_table("model:host:alpha=5e-06", "mine").link is None


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("model:between_hosts", "all parameters are 0"),
        ("model:between_hosts:gamma=1", "'gamma=1' is none of alpha=, beta=, rank_beta="),
        ("model:between_hosts:alpha=-1", "'-1' is not a time, 0 or more"),
        ("model:between:alpha=1", "unknown path 'between'; known: host, .*, and between_hosts"),
        (f"{SLOW}\n{SLOW}", "stands there for the second time"),
    ],
)
def test_mistakes(statement, why):
    with pytest.raises(ValueError, match=why):
        parse_table(statement, "mine")


def test_a_new_table_keeps_an_old_ones_link_unless_it_has_measured_it():
    old, new = parse_table(SLOW, "old"), parse_table("bcast:ring", "new")
    assert merged(old, new).link == old.link
    assert merged(old, parse_table("model:between_hosts:alpha=1", "newer")).link.alpha == 1


def test_the_first_table_that_has_a_link_says_it():
    one, two = parse_table("bcast:ring", "one"), parse_table(SLOW, "two")
    assert Tuning((one, two)).link is two.link
    assert Tuning((one,)).link is HOST_LINK


def test_the_choice_follows_the_link(table):
    """Where bytes are dear, it is by what sends least; where rounds are, in one."""
    with table("model:between_hosts:alpha=1e-06:beta=1e-06", "hosts=4"):
        narrow = traffic_of(mpicoll.plan("allreduce", size=8, nbytes=1 << 16))
    with table("model:between_hosts:alpha=1:beta=1e-12", "hosts=4"):
        far = traffic_of(mpicoll.plan("allreduce", size=8, nbytes=1 << 16))
    assert narrow.vectors == 1.5 < far.vectors
    assert far.rounds == 1 < narrow.rounds


def times(plan):
    """Predicted seconds by algorithm."""
    return {one.choice.algorithm: one.predicted for one in plan.explanation().verdicts}


def traffic_of(plan):
    facts = plan.key.facts
    return host_traffic(get(facts.collective, plan.algorithm), facts.topology)


def test_a_leader_is_not_chosen_where_one_rank_does_not_fill_the_link(table):
    with table(SLOW):
        one_fills = times(mpicoll.plan("bcast", size=8, nbytes=1 << 20))
    with table(SLOW + ":rank_beta=1.6e-06"):
        plan = mpicoll.plan("bcast", size=8, nbytes=1 << 20)
    four_fill = times(plan)
    assert four_fill["leader"] == pytest.approx(one_fills["leader"] + 1.2e-6 * 2**20, rel=0.01)
    assert four_fill["striped"] == one_fills["striped"]
    assert plan.algorithm == "striped"


def test_times_are_those_of_a_host_and_of_the_link(table):
    with table(SLOW):
        found = times(mpicoll.plan("allreduce", size=8, nbytes=1 << 20))
    assert found["striped"] == pytest.approx(0.02 + 4e-7 * 2**20, rel=0.02)
    assert found["two_shot"] == pytest.approx(2 * 0.02 + 4 * 4e-7 * 2**20, rel=0.02)


def test_a_plan_says_which_link_it_counts_with(table):
    with table(SLOW):
        text = str(mpicoll.plan("allreduce", size=8, nbytes=8))
    assert "  link between hosts: 20 ms a round, 2.5 MB/s out of a host (measured, " in text
    with mpicoll.override(topology="hosts=2", tuning="model"):
        assert "link between hosts: 15 us a round, 1.2 GB/s out of a host (not measured: " in str(
            mpicoll.plan("allreduce", size=8, nbytes=8)
        )
    assert "link between hosts" not in str(mpicoll.plan("allreduce", size=8, nbytes=8))


def test_so_does_the_command_for_one_size_and_for_several(table, capsys):
    with table(SLOW):
        for nbytes in ("8", "8,1M"):
            main(["plan", "allreduce", "--ranks", "8", "--bytes", nbytes])
            assert "link between hosts: 20 ms a round, 2.5 MB/s" in capsys.readouterr().out


# Rules for several hosts.


@pytest.mark.parametrize(
    ("text", "conditions"),
    [("0-3,4-7", "hosts=2:perhost=4"), ("0-4,5-7", "hosts=2:perhost=3-5"), ("hosts=1", "")],
)
def test_the_tuner_s_rules_say_on_which_hosts_they_were_measured(text, conditions):
    timings = parse_table("measured:bcast:8:p=8:mem=host:ring=5:native=9", "mine").timings
    found = [str(rule) for rule in rules(timings, forced(text, 8))]
    assert found == [":".join(filter(None, ("bcast:p=8:mem=host", conditions, "ring")))]
    assert all(isinstance(rule, Rule) for rule in rules(timings, forced(text, 8)))


def test_each_rank_has_a_partner_on_the_next_host():
    assert _next(forced("0-3,4-7", 8)) == [4, 5, 6, 7, 0, 1, 2, 3]
    assert _next(forced("0-4,5-7", 8)) == [5, 6, 7, 5, 6, 0, 1, 2]
    assert _next(forced("0+3,1,2", 4)) == [1, 2, 0, 1]


# Simulations of this machine.


def test_this_machine_has_the_hosts_of_the_setting_and_the_link_of_the_tables():
    tuning = Tuning((parse_table(f"{SLOW}:rank_beta=8e-07\nmodel:host:alpha=1e-06:beta=1e-09", "mine"),))
    found = tuned_machine(tuning, "0+2,1+3")
    assert found.network == {
        "layout": "0+2,1+3",
        "alpha": 1e-6,
        "bandwidth": pytest.approx(1e9),
        "net_alpha": 0.02,
        "net_bandwidth": pytest.approx(2.5e6),
        "rank_bandwidth": pytest.approx(1.25e6),
    }
    network = found.of_ranks(4)
    assert network.host == (0, 1, 0, 1)
    (near, inside), (far, between) = network.route(0, 2), network.route(2, 1)
    assert (near, [network.links[link].name for link in inside]) == (1e-6, ["0 out", "2 in"])
    names = ["2 out", "2 far out", "host 0 out", "host 1 in", "1 far in", "1 in"]
    assert (far, [network.links[link].name for link in between]) == (0.02, names)
    assert "between hosts 20 ms a round" in found.source
    assert tuned_machine(tuning).kind == "switch"
    assert tuned_machine(Tuning(), "2").network["rank_bandwidth"] == math.inf


def test_a_simulated_message_takes_the_time_of_the_link():
    tuning = Tuning((parse_table(SLOW + "\nmodel:host:alpha=1e-09", "mine"),))
    two = tuned_machine(tuning, "2")
    assert simulate_call(get("bcast", "linear"), two, 2, 1 << 20).seconds == pytest.approx(0.02 + 4e-7 * 2**20)
    striped = simulate_call(get("allreduce", "striped"), two, 8, 1 << 20).seconds
    flat = simulate_call(get("allreduce", "two_shot"), two, 8, 1 << 20).seconds
    assert striped == pytest.approx(0.02 + 4e-7 * 2**20, rel=0.01)
    assert flat > 3 * striped


def test_the_command_simulates_this_machine(table, capsys):
    with table(SLOW, "0+2,1+3"):
        main(["simulate", "allreduce", "striped", "--ranks", "4", "--bytes", "1M", "--machine", "here"])
    out = capsys.readouterr().out
    assert "between hosts 20 ms a round, 2.5 MB/s out of a host" in out
    assert "busiest link   'host 0 out': 1 MiB" in out


def test_a_machine_of_a_file_can_have_any_hosts(tmp_path):
    file = tmp_path / "mine.json"
    given = {"kind": "placed", "layout": "0-2,3", "alpha": 0, "bandwidth": 1e9, "net_alpha": 0, "net_bandwidth": 1e6}
    file.write_text(json.dumps(given))
    assert machine(str(file)).of_ranks(4).host == (0, 0, 0, 1)
    file.write_text(json.dumps(given | {"layout": 2}))
    with pytest.raises(ValueError, match="'layout' is 2; it is a text such as"):
        machine(str(file))


def test_what_is_in_force_here_without_tables_is_the_default():
    with mpicoll.override(tuning="model"):
        assert here(2).link is HOST_LINK
        assert tuned_machine(here(2), "2").model.alpha == PATHS["host"].model.alpha
