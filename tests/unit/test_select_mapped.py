"""The path mapped among the choices."""

from dataclasses import replace

import pytest

import mpicoll
from mpicoll.dispatch.facts import Facts
from mpicoll.dispatch.machine_facts import MachineFacts
from mpicoll.dispatch.plan import make_plan
from mpicoll.dispatch.plan_key import PlanKey
from mpicoll.dispatch.select import candidates
from mpicoll.dispatch.tuning import asked_for, in_force
from mpicoll.schedule.collectives import COLLECTIVES

OFFERED = ("mapped", "direct", "staged")
H200 = in_force(asked_for("h200"), (), MachineFacts())


def facts(name="allreduce", nbytes=1 << 16, size=4, **changed):
    return Facts(name, size, nbytes, "device", **{"paths": OFFERED} | changed)


@pytest.mark.parametrize("name", [name for name in COLLECTIVES if name != "barrier"])
@pytest.mark.parametrize("size", [2, 3, 4, 5, 8])
def test_short_vectors_take_it_where_it_is_offered(name, size):
    for nbytes in (8, 1 << 14, 1 << 20):
        assert make_plan(PlanKey(facts(name, nbytes, size), 0, tuning=H200)).path == "mapped"


def test_it_has_no_segments_and_needs_no_scratch():
    plan = make_plan(PlanKey(facts(nbytes=1 << 34), 0, call="one_shot/7@mapped", scratch_limit=1 << 20))
    assert (plan.segments, plan.lanes, plan.path) == (1, 1, "mapped")


def test_rules_can_ask_for_it():
    rules = "allreduce:0-2M:two_shot@mapped;allreduce:ring@direct"
    plans = [make_plan(PlanKey(facts(nbytes=n), 0, setting=rules)) for n in (8, (2 << 20) - 1, 2 << 20)]
    assert [(p.algorithm, p.path) for p in plans] == [("two_shot", "mapped")] * 2 + [("ring", "direct")]


def test_where_it_is_not_offered_the_plan_says_why():
    made = make_plan(PlanKey(facts(paths=("direct", "staged")), 0))
    plan = replace(made, unoffered=(("mapped", "ranks share a GPU"),))
    assert plan.path != "mapped"
    assert "path mapped is not offered: ranks share a GPU" in str(plan)
    assert "not offered" not in str(make_plan(PlanKey(facts(), 0)))


def test_asked_for_where_it_is_not_offered_is_an_error():
    with pytest.raises(mpicoll.UnsupportedError, match="path 'mapped' cannot serve device arrays here; usable: direct"):
        make_plan(PlanKey(facts(paths=("direct",)), 0, call="ring@mapped"))


def test_a_forced_algorithm_takes_the_path_that_suits_it():
    """The cost model decides, among the paths that are there."""
    plan = make_plan(PlanKey(facts(nbytes=8), 0, call="ring"))
    times = {c.choice.path: c.seconds for c in candidates(facts(nbytes=8)) if c.choice.algorithm == "ring"}
    assert plan.path == min(times, key=times.get)


@pytest.mark.parametrize("size", [5, 6, 7, 8])
@pytest.mark.parametrize("name", ["allreduce", "bcast", "reduce", "allgather", "reduce_scatter", "alltoall", "scatter"])
def test_choices_that_were_taken_over_from_four_ranks_are_near_the_model_s_best(name, size):
    """The model was fitted to the run on 4 ranks; what is good for 4 may need a power of two."""
    for nbytes in (8, *(1 << k for k in range(10, 31))):
        there = facts(name, nbytes, size)
        choice = make_plan(PlanKey(there, 0, tuning=H200))
        times = {c.choice.algorithm: c.seconds for c in candidates(there) if c.choice.path == "mapped"}
        assert choice.path == "mapped"
        assert times[choice.algorithm] <= 1.1 * min(times.values())


@pytest.mark.parametrize("size", [2, 3, 4, 8])
@pytest.mark.parametrize("name", [name for name in COLLECTIVES if name != "barrier"])
@pytest.mark.parametrize("paths", [OFFERED, OFFERED[1:], OFFERED[2:]])
def test_what_is_pinned_takes_the_best_path(name, size, paths):
    """It is chosen once for all sizes: long vectors must not go through the host where they need not."""
    pinned = facts(name, 1 << 30, size, paths=paths, reproducible="runs")
    assert make_plan(PlanKey(pinned, 0, tuning=H200)).path == paths[0]


@pytest.mark.parametrize("size", [2, 3, 8])
@pytest.mark.parametrize("name", ["allreduce", "bcast", "allgather", "alltoall"])
def test_messages_are_staged_only_while_short(name, size):
    """Measured with 4 ranks, direct is faster from 512 B (bcast) or some KiB on."""
    for nbytes in (1 << 16, 1 << 20, 1 << 30):
        assert make_plan(PlanKey(facts(name, nbytes, size, paths=OFFERED[1:]), 0, tuning=H200)).path == "direct"
