"""The path bridged among the choices: for algorithms for several hosts, and for nothing else."""

import pytest

import mpicoll
from mpicoll.algorithms.registry import get
from mpicoll.dispatch.facts import Facts
from mpicoll.dispatch.machine_facts import MachineFacts
from mpicoll.dispatch.plan import make_plan, plan
from mpicoll.dispatch.plan_key import PlanKey
from mpicoll.dispatch.rules import Choice
from mpicoll.dispatch.select import candidates, refusal, usable
from mpicoll.dispatch.tuning import asked_for, in_force
from mpicoll.schedule.topology import Topology

BLOCK = Topology.of("aabb")


def facts(name="allreduce", **changed):
    given = {"paths": ("bridged", "direct", "staged"), "topology": BLOCK, "gpus": 4} | changed
    return Facts(name, 4, 1 << 20, "device", **given)


def test_only_algorithms_for_several_hosts_take_it():
    paths = {(one.choice.algorithm, one.choice.path) for one in candidates(facts()) if one.seconds is not None}
    assert {algorithm for algorithm, path in paths if path == "bridged"} == {"striped", "leader"}
    assert usable(get("allreduce", "ring"), facts()) == ("direct", "staged")


@pytest.mark.parametrize(
    "changed", [{"counts_known": False, "name": "gather"}, {"reproducible": "ranks"}, {"topology": Topology.of("aaaa")}]
)
def test_a_call_that_it_alone_cannot_serve_is_refused_in_words(changed):
    """Such as one without an algorithm for its hosts."""
    with pytest.raises(mpicoll.UnsupportedError, match="no algorithm can serve the call on path bridged"):
        make_plan(PlanKey(facts(**{"paths": ("bridged",)} | changed), 0))


def test_a_rule_for_a_flat_algorithm_is_passed_over_where_it_is_alone():
    assert refusal(Choice("ring"), facts(paths=("bridged",))) == "path bridged is not offered"
    assert refusal(Choice("ring"), facts()) is None


@pytest.mark.parametrize(("hosts", "there"), [("hosts=2", "bridged"), ("flat", "mapped")])
def test_a_plan_without_mpi_has_the_paths_of_its_hosts(hosts, there):
    other = {"bridged", "mapped"} - {there}
    with mpicoll.override(topology=hosts, tuning="model"):
        found = plan("allreduce", size=8, nbytes=1 << 20, device="cuda")
    paths = {one.choice.path for one in found.candidates()}
    assert there in paths
    assert not paths & other


@pytest.mark.parametrize("name", ["h200", "h200_shared"])
def test_packaged_tables_of_gpus_are_of_one_host(name):
    """Their choices send far more than is needed from host to host."""
    for hosts, used in (("1", True), ("2", False)):
        machine = MachineFacts("Open MPI", "EPYC", "64", hosts, "NVIDIA H200")
        tables = in_force(asked_for(""), (), machine).tables
        assert any(table.name == f"packaged {name}" for table in tables) is used
