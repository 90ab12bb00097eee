"""From measured times to rules: where algorithms overtake each other, and what is worth a measurement."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpicoll.algorithms import catalogue, get
from mpicoll.analysis.cost import pipelined
from mpicoll.dispatch.facts import Facts
from mpicoll.dispatch.machine_facts import MachineFacts
from mpicoll.dispatch.measured import Timing
from mpicoll.dispatch.rules import Choice, parse_choice, parse_rules
from mpicoll.dispatch.select import select
from mpicoll.dispatch.table import Table, parse_table
from mpicoll.dispatch.tuning import Tuning
from mpicoll.tuning.choose import INF, SWITCH, crossing, ranges, rules
from mpicoll.tuning.contenders import FACTOR, HOPELESS, LONGEST, PROBES, contenders, sizes

K, M = 1 << 10, 1 << 20


def timing(nbytes, memory="host", gpus=0, **micro):
    """Times of an allreduce on 4 ranks: linear=3.5, ring_2=4 for ring/2."""
    times = {parse_choice(name.replace("_2", "/2").replace("_8", "/8")): 1e-6 * t for name, t in micro.items()}
    return Timing("allreduce", nbytes, 4, memory, gpus, times)


def written(*timings):
    return [str(rule) for rule in rules(timings)]


def test_each_range_has_the_faster_one_and_the_lines_cross_between_two_sizes():
    """80 of 100 at 8 B and 1,500 of 900 us at 1 MiB: equal after 0.3 of the way, in logarithms."""
    found = written(timing(8, ring=100, linear=80), timing(M, ring=900, linear=1500))
    assert found == ["allreduce:0-320:p=4:mem=host:linear", "allreduce:320-inf:p=4:mem=host:ring"]
    before, after = Choice("linear", 0, "host"), Choice("ring", 0, "host")
    even = [timing(1 * K, ring=200, linear=100), timing(16 * K, ring=100, linear=200)]
    assert crossing(even, before, after) == 4 * K
    late = [timing(1 * K, ring=200, linear=100), timing(16 * K, ring=100, linear=101)]
    assert crossing(late, before, after) == 16 * K


def test_one_that_was_not_measured_at_both_sizes_crosses_in_the_middle():
    found = written(timing(1 * K, linear=10), timing(4 * K, ring=10), timing(16 * K, ring=10, linear=1000))
    assert found == ["allreduce:0-2K:p=4:mem=host:linear", "allreduce:2K-inf:p=4:mem=host:ring"]


@pytest.mark.parametrize(("part", "switches"), [(0.3, False), (0.95, False), (1.05, True), (10, True)])
def test_a_switch_must_save_more_than_it_costs(part, switches):
    """One switch at the end of the sizes; and one there and one back, for one size."""
    slower = 100 * (1 + part * SWITCH)
    end = [timing(8, ring=100, linear=200), timing(K, ring=slower, linear=100)]
    assert len(ranges(end)) == 1 + switches
    twice = 100 * (1 + 2 * part * SWITCH)
    middle = [timing(8, ring=100, linear=200), timing(K, ring=twice, linear=100), timing(M, ring=100, linear=200)]
    assert len(ranges(middle)) == 1 + 2 * switches


def test_small_losses_at_many_sizes_are_worth_a_switch_together():
    sizes_of = [8, 64, 512, 4 * K]
    together = [timing(8, ring=100, linear=200), *(timing(n, ring=102, linear=100) for n in sizes_of[1:])]
    assert SWITCH < 3 * 0.02
    assert [r.algorithm.algorithm for r in ranges(together)] == ["ring", "linear"]
    assert [r.algorithm.algorithm for r in ranges(together[:2])] == ["ring"]


def test_one_that_was_not_measured_somewhere_is_not_chosen_there():
    found = ranges([timing(8, ring=100, linear=10), timing(K, ring=100), timing(M, ring=100, linear=10)])
    assert [one.algorithm.algorithm for one in found] == ["linear", "ring", "linear"]


def test_segments_are_fixed_where_they_are_the_same_at_all_sizes_of_a_range():
    same = written(timing(8, ring_2=10, ring=11), timing(M, ring_2=10, ring_8=12))
    assert same == ["allreduce:p=4:mem=host:ring/2"]
    different = written(timing(8, ring_2=10, ring=11), timing(M, ring_2=13, ring_8=12))
    assert different == ["allreduce:p=4:mem=host:ring"]


def test_rules_say_the_path_where_it_is_not_the_only_one_and_the_number_of_gpus():
    times = {parse_choice("ring/1@mapped"): 1e-6, parse_choice("ring/1@direct"): 2e-6}
    (rule,) = rules([Timing("allreduce", 8, 2, "device", 2, times)])
    assert str(rule) == "allreduce:p=2:mem=device:gpus=2:ring/1@mapped"


NAMES = st.sampled_from(["ring", "linear", "one_shot", "ring_2", "ring_8"])


@st.composite
def measured(draw):
    nbytes = sorted(draw(st.sets(st.integers(0, 1 << 30), min_size=1, max_size=7)))
    times = st.dictionaries(NAMES, st.floats(1, 1000), min_size=1)
    return [timing(n, **draw(times)) for n in nbytes]


@pytest.mark.slow
@settings(max_examples=60)
@given(measured())
def test_ranges_cover_all_sizes_without_gap_and_each_choice_was_measured_near_it(timings):
    found = ranges(timings)
    assert (found[0].low, found[-1].high) == (0, INF)
    assert all(one.low < one.high for one in found)
    assert [one.high for one in found[:-1]] == [one.low for one in found[1:]]
    assert all(one.algorithm != two.algorithm for one, two in pairwise(found))
    again = parse_rules("\n".join(map(str, rules(timings))))
    assert again == tuple(rules(timings))
    for one in timings:
        (rule,) = [rule for rule in again if rule.reaches(one.nbytes)]
        assert rule.choice.algorithm in {choice.algorithm for choice in one.times}


@pytest.mark.slow
@settings(max_examples=60)
@given(measured())
def test_what_is_chosen_loses_no_more_than_the_switches_to_the_fastest_and_back(timings):
    for one in timings:
        (rule,) = [rule for rule in rules(timings) if rule.reaches(one.nbytes)]
        mine = min(t for choice, t in one.times.items() if choice.algorithm == rule.choice.algorithm)
        assert mine <= min(one.times.values()) * (1 + 2 * SWITCH + 1e-9)


def test_rules_that_were_chosen_decide_as_the_tuner_means():
    timings = [timing(8, ring=100, linear=80), timing(M, ring=900, linear=1500)]
    table = Table("measured", MachineFacts(), tuple(rules(timings)), {}, tuple(timings))
    tuning = Tuning((parse_table(table.text(), "again"),), MachineFacts())
    found = [select(Facts("allreduce", 4, n), "", "", "", tuning)[0].algorithm for n in (0, 8, 319, 320, 1 << 30)]
    assert found == ["linear"] * 3 + ["ring"] * 2


# What is measured.


@pytest.mark.parametrize(("longest", "wanted"), [(8, [8]), (100, [8, 100]), (4 * K, [8, 256, K, 4 * K])])
def test_sizes_ascend_to_the_longest_message(longest, wanted):
    assert sizes(longest) == wanted


def test_neighbouring_sizes_are_at_most_a_factor_apart():
    found = sizes(LONGEST["host"])
    assert found == sorted(set(found))
    assert found[-1] == LONGEST["host"]
    assert all(two <= FACTOR * one for one, two in pairwise(found[2:]))


def test_contenders_can_all_serve_the_fastest_first_and_none_is_hopeless():
    facts = Facts("allreduce", 6, M)
    found = contenders(facts, Tuning())
    assert len(found) == len(set(found)) > 3
    assert all(get("allreduce", choice.algorithm).refuses(6) is None for choice in found)
    table = Tuning((parse_table("measured:allreduce:1M:p=6:mem=host:ring/1=1:two_shot/1=3:linear/1=11", "mine"),))
    named = [choice.algorithm for choice in contenders(facts, table)]
    assert named == ["ring", "two_shot"]
    assert [choice.algorithm for choice in contenders(facts, table, hopeless=2)] == ["ring"]
    assert HOPELESS == 10


def test_a_pipelined_contender_is_measured_uncut_as_well():
    found = contenders(Facts("bcast", 8, 16 * M), Tuning(), hopeless=1e9)
    cut = {choice.algorithm for choice in found if choice.segments > 1}
    assert cut
    assert cut <= {choice.algorithm for choice in found if choice.segments == 1}
    assert all(pipelined(get("bcast", name).cost) for name in cut)


def test_probes_are_algorithms_that_serve_any_number_of_ranks():
    for name, algorithm, nbytes in PROBES:
        assert algorithm in catalogue()[{"reduce_scatter_block": "reduce_scatter"}.get(name, name)]
        assert all(get(name, algorithm).refuses(size) is None for size in (2, 3, 5, 8))
        assert nbytes
