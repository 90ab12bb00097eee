"""What a user's algorithm declares is checked when it is registered."""

from dataclasses import replace

import pytest

import mpicoll
from mpicoll import ScheduleError, UnsupportedError
from mpicoll.algorithms import catalogue, get
from mpicoll.analysis import registration
from mpicoll.dispatch.rules import MOST_SEGMENTS
from mpicoll.schedule import Copy, Recv, Reduce, Ref, Schedule, Send, Step, inp, out, step
from unit.users_algorithms import alone, planned, register, ring, wrong_from

pytestmark = pytest.mark.usefixtures("as_before")


def test_one_for_many_ranks_only_is_proven_for_some_of_them():
    with pytest.raises(ScheduleError, match=r"^allreduce\.mine, size 18, rank 0, end: "):
        register(alone, min_size=18)
    with pytest.raises(ScheduleError, match=r"^allreduce\.mine, size 20, rank 0, end: "):
        register(wrong_from(20), min_size=18)
    register(ring, min_size=18)
    assert planned(21).algorithm == "mine"


@pytest.mark.parametrize("size", [65, 0, -1, "3", True, 2.0])
def test_a_smallest_size_that_makes_no_sense(size):
    with pytest.raises(ValueError, match=rf"^allreduce\.mine: min_size {size!r} is not a number from 1 to 64"):
        register(ring, min_size=size)


@pytest.mark.parametrize("uniform", [True, None])
def test_uniform_is_an_argument_not_a_switch(uniform):
    with pytest.raises(ValueError, match=rf"uniform {uniform} is not a sentence"):
        register(ring, uniform=uniform)


def changed(**parts):
    return lambda rank, size: replace(ring(rank, size), **parts)


def one(*operations):
    return lambda rank, size: Schedule((Step(*operations),), 1)


MALFORMED = {
    "no schedule": (lambda rank, size: None, "None is no Schedule"),
    "no blocks": (changed(blocks=0), "blocks=0 is no whole number from 1 on"),
    "fewer than none": (changed(blocks=-1), "blocks=-1 is no whole number from 1 on"),
    "half a block": (changed(blocks=1.5), "blocks=1.5 is no whole number from 1 on"),
    "a negative window": (changed(window=-3), "window=-3 is no whole number from 0 on"),
    "a list of steps": (changed(steps=[]), "steps is no tuple"),
    "scratch for no block": (changed(scratch=(99,)), "scratch is sized for block 99, which does not exist"),
    "no step": (changed(steps=("go",)), "step 0: 'go' is no Step"),
    "no message": (one((Copy(out(0), inp(0)),), ()), r"step 0: Copy\(.* is no Send or Recv"),
    "no local work": (one((), (Send(out(0), 1),)), r"step 0: Send\(.* is no Reduce or Copy"),
    "a list of messages": (one([], ()), r"step 0: \[\] is no tuple of operations"),
    "no operands": (one((), (Reduce(out(0), ()),)), r"step 0: \(\) is no tuple of operands"),
    "operands that are one": (one((), (Reduce(out(0), inp(0)),)), r"step 0: Ref\(.* is no tuple of operands"),
    "no cells": (one((), (Copy(out(0), 0),)), "step 0: 0 is no Ref"),
    "half a cell": (one((), (Copy(out(0), Ref("input", (0.5,))),)), r"step 0: Ref\(.*0\.5.* is no Ref"),
    "itself": (lambda rank, size: Schedule.of([step(Send(inp(0), rank))], 1), "step 0: peer 0 is not another rank"),
    "a name": (lambda rank, size: Schedule.of([step(Send(inp(0), "1"))], 1), "step 0: peer '1' is not another rank"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_schedule_is_refused_by_name(case):
    function, match = MALFORMED[case]
    with pytest.raises(ScheduleError, match=rf"^allreduce\.mine, size 1, rank 0(: |, ){match}"):
        register(function)


def test_a_peer_is_a_whole_number():
    def by_half(rank, size, root):
        if rank != root:
            return Schedule.of([step(Recv(out(0), float(root)))], 1)
        return Schedule.of([step(Send(out(0), float(q)) for q in range(size) if q != root)], 1)

    with pytest.raises(ScheduleError, match=r"^bcast\.mine, size 2, root 0, rank 0, step 0: peer 1\.0 is not another"):
        register(by_half, "bcast")


FORWARDING = [
    (collective, name)
    for collective in ("gather", "scatter", "alltoall")
    for name in catalogue()[collective]
    if get(collective, name).forwards and not get(collective, name).by_hosts
]


@pytest.mark.parametrize(("collective", "name"), FORWARDING)
def test_one_that_passes_on_blocks_cannot_say_that_it_does_not(monkeypatch, collective, name):
    """A v-variant would be served with wrong counts.  On 8 ranks each has a rank that passes some on."""
    monkeypatch.setattr(registration, "SIZES_AT_REGISTRATION", [8])
    card = get(collective, name)
    with pytest.raises(ScheduleError, match=r"passes on block \d+, whose count this rank does not know"):
        register(card.function, collective, forwards=False, power_of_two=card.power_of_two)


@pytest.mark.parametrize("collective", ["gather", "scatter", "alltoall"])
def test_one_that_does_not_pass_on_blocks_may_say_so(collective):
    register(get(collective, "linear").function, collective, forwards=False)


COSTS = {
    "().__class__": "is not arithmetic",
    "(lambda: p)()": "is not arithmetic",
    "abs(p)": "is not arithmetic",
    "[p][0]": "is not arithmetic",
    "1j*n": "is not arithmetic",
    "'7'": "is not arithmetic",
    "True*n": "is not arithmetic",
    "p if p > 2 else n": "is not arithmetic",
    "n*latency": "unknown name latency",
    "(": "cost",
    "p\0": "cost",
    "9**9**9": "with p=2, n=0, s=1: ",
    "n*1e999-n*1e999": "with p=2, n=0, s=1 is nan",
    "1e999": "with p=2, n=0, s=1 is inf",
    "0-1e9*n": "with p=2, n=8, s=1 is -",
    "1/(p-5)**2": "with p=5, n=0, s=1: .*zero",
    "n/(s-4)**2": "with p=2, n=0, s=4: .*zero",
    "(1-p)**0.5": r"with p=2, n=0, s=1 is \(.*j\)",
}


@pytest.mark.parametrize("cost", COSTS)
def test_a_cost_that_is_no_time_somewhere_is_refused(cost):
    with pytest.raises(ValueError, match=COSTS[cost]) as caught:
        register(ring, cost=cost, verified=False)
    assert str(caught.value).startswith("allreduce.mine: cost ")


def test_a_cost_needs_a_value_only_where_the_algorithm_serves():
    register(get("allgather", "recursive_doubling").function, "allgather", cost="1/(p-5)**2", power_of_two=True)


def test_a_cost_without_value_above_64_ranks_is_the_last_choice():
    register(ring, cost="n/(p-100)**2 + (70-p)**0.5", uniform="For this test.", verified=False, min_size=64)
    assert planned(100, None).algorithm != "mine"


def test_every_cost_of_the_project_is_a_time(card):
    registration.verify_algorithm(card, [])


def test_a_scratch_limit_that_takes_too_many_segments_is_refused_with_the_remedy():
    with (
        mpicoll.override(scratch_limit=1),
        pytest.raises(
            UnsupportedError, match=f"segments .* more than {MOST_SEGMENTS}; raise the setting scratch_limit"
        ),
    ):
        mpicoll.plan("allreduce", size=4, nbytes=1 << 30, algorithm="ring")


def test_small_segments_of_long_vectors_are_as_many_as_there_may_be():
    with mpicoll.override(segment_bytes=1):
        assert mpicoll.plan("allreduce", size=2, nbytes=1 << 20, algorithm="ring").segments == MOST_SEGMENTS
