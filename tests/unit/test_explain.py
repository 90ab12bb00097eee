"""Explanations: every candidate as it would run, why it does or does not, other sizes, and what limits changed."""

import pytest

import mpicoll
from mpicoll.algorithms import get
from mpicoll.analysis.cost import pipelined
from mpicoll.dispatch.explain import REFUSED
from mpicoll.dispatch.paths import PATHS
from mpicoll.dispatch.select import candidates
from mpicoll.schedule import COLLECTIVES

K, MIB = 1 << 10, 1 << 20


@pytest.fixture
def table(tmp_path):
    """Puts a tuning table in force while a test runs."""
    file = tmp_path / "mine"

    def use(text):
        file.write_text(text, encoding="utf-8")
        return mpicoll.override(tuning=file)

    return use


def explained(collective="allreduce", size=8, nbytes=MIB, **others):
    return mpicoll.plan(collective, size=size, nbytes=nbytes, **others).explanation()


def why(found, choice):
    (one,) = [one for one in found.verdicts if str(one.choice) == choice]
    return one.why


@pytest.mark.parametrize("nbytes", [0, 1000, 1_000_001, 1 << 33])
@pytest.mark.parametrize("limit", ["1M", "256M"])
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_what_runs_is_among_the_candidates_with_its_own_segments_and_time(collective, nbytes, limit):
    with mpicoll.override(scratch_limit=limit):
        plan = mpicoll.plan(collective, size=8, nbytes=nbytes)
    found = plan.explanation()
    (chosen,) = [one for one in found.verdicts if one.chosen]
    assert chosen.choice == plan.choice
    card = get(collective, plan.algorithm)
    assert chosen.predicted == PATHS[plan.path].model.seconds(card.cost, 8, nbytes, plan.segments)
    assert len({one.choice for one in found.verdicts}) == len(found.verdicts)


def test_a_rule_s_segments_are_shown_beside_the_best_ones():
    found = explained("bcast", algorithm="ring/3")
    assert str(found.chosen.choice) == "ring/3@host"
    best = next(c.choice for c in candidates(mpicoll.plan("bcast", size=8, nbytes=MIB).key.asked))
    assert best.segments != 3
    ring = next(one for one in found.verdicts if one.choice.algorithm == "ring" and not one.chosen)
    assert ring.predicted < found.chosen.predicted
    assert ring.why.endswith("% faster; ruled out by algorithm= in the call")


def test_all_candidates_keep_to_the_limits():
    """Each is shown with the segments with which it would run."""
    nbytes, limit = 64 * MIB, MIB
    with mpicoll.override(scratch_limit=limit):
        found = explained("reduce", nbytes=nbytes)
    raised = 0
    for one in found.verdicts:
        card = get("reduce", one.choice.algorithm)
        scratch = nbytes / card.vector_blocks(8) * card.scratch_blocks(8, one.choice.segments > 1)
        assert scratch / one.choice.segments <= limit
        raised += one.choice.segments > 32
    assert raised


def test_a_candidate_that_would_need_too_many_segments_says_so():
    with mpicoll.override(scratch_limit=4096):
        found = explained("reduce", nbytes=40 * MIB, algorithm="ring")
    assert "'linear' needs 71680 segments to keep to scratch_limit=4096" in why(found, "linear@host")


def test_slower_candidates_say_by_how_much():
    found = explained()
    for one in found.verdicts:
        ratio = one.predicted / found.chosen.predicted
        if one.chosen:
            assert one.why == "chosen"
        elif ratio >= 2:
            assert one.why == f"{ratio:.1f} times as slow"
        elif ratio > 1.0005:
            assert one.why == f"{100 * (ratio - 1):.1f} % slower"
    assert {one.why.split()[-1] for one in found.verdicts} >= {"chosen", "slow", "slower"}


@pytest.mark.parametrize(
    ("settings", "arguments", "who"),
    [
        ({}, {"algorithm": "linear"}, "algorithm= in the call"),
        ({"algorithms": "allreduce:linear"}, {}, "the setting `algorithms`"),
        ({"reproducible": "ranks"}, {"nbytes": 8}, "the setting reproducible='ranks'"),
    ],
)
def test_faster_candidates_say_who_ruled_them_out(settings, arguments, who):
    with mpicoll.override(**settings):
        found = explained(**arguments)
    faster = [one for one in found.verdicts if one.predicted and one.predicted < 0.99 * found.chosen.predicted]
    assert faster
    assert all(one.why.endswith(f"; ruled out by {who}") for one in faster)


def test_a_table_rules_out_what_is_predicted_faster(table):
    with table("allreduce:linear"):
        found = explained()
    assert why(found, "ring/4@host") == "8.4 times as fast; ruled out by the tuning table"
    assert why(found, "one_shot/1@host") == "60.1 % faster; ruled out by the tuning table"


def test_measured_times_stand_beside_predicted_ones_and_decide(table):
    text = "measured:allreduce:1M:p=8:mem=host:linear/1=500:two_shot/1=510:ring/2=1500\nallreduce:linear"
    with table(text):
        found, near = explained(), explained(nbytes=MIB + 1)
    times = {str(one.choice): one.measured for one in found.verdicts}
    assert times["linear/1@host"] == pytest.approx(500e-6)
    assert times["ring/2@host"] == pytest.approx(1500e-6)
    assert times["binomial/1@host"] is None
    assert why(found, "two_shot/1@host") == "2.0 % slower, measured"
    assert why(found, "ring/2@host") == "3.0 times as slow, measured"
    assert all(one.measured is None for one in near.verdicts)


def test_sizes_between_two_of_five_digits_have_the_choice_of_the_lower_one():
    """The cost model looks at 992 for 1000 bytes; what would be faster at 1000 says so."""
    assert why(explained(nbytes=13823), "two_shot/1@host") == "0.6 % faster; the choice is that of 13K"
    assert explained(nbytes=13824).chosen.choice.algorithm == "two_shot"


# Changes over message sizes.


def test_changes_are_the_exact_bounds_of_rules():
    with mpicoll.override(
        algorithms="allreduce:0-1000:linear; allreduce:1000-70001:ring; allreduce:70001-inf:two_shot"
    ):
        found = explained(size=4)
    assert found.changes == ((0, "linear@host"), (1000, "ring@host"), (70001, "two_shot@host"))


def test_a_narrow_rule_between_powers_of_two_is_found(table):
    wanted = ((0, "linear@host"), (1000, "ring@host"), (1010, "linear@host"))
    with mpicoll.override(algorithms="allreduce:1000-1010:ring; allreduce:linear"):
        assert explained(size=4).changes == wanted
    with table("allreduce:1000-1010:ring\nallreduce:linear"):
        assert explained(size=4).changes == wanted


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_the_choice_changes_where_it_is_said(collective, device):
    found = explained(collective, device=device)
    for (low, before), (high, after) in zip(found.changes, found.changes[1:], strict=False):
        assert low < high
        assert before != after
        for nbytes, label in [(low, before), (high - 1, before), (high, after)]:
            plan = mpicoll.plan(collective, size=8, nbytes=nbytes, device=device)
            assert f"{plan.algorithm}@{plan.path}" == label
    sizes = [8 << k for k in range(28)]
    labels = [[label for first, label in found.changes if first <= nbytes][-1] for nbytes in sizes]
    plans = [mpicoll.plan(collective, size=8, nbytes=nbytes, device=device) for nbytes in sizes]
    assert labels == [f"{plan.algorithm}@{plan.path}" for plan in plans]


def test_a_forced_choice_changes_nowhere_and_an_impossible_one_is_an_error_there():
    assert explained(algorithm="ring").changes == ((0, "ring@host"),)
    with mpicoll.override(algorithms="allgather:0-1K:ring; allgather:1K-2K:recursive_doubling; allgather:linear"):
        found = explained("allgather", size=6)
    assert found.changes == ((0, "ring@host"), (K, REFUSED), (2 * K, "linear@host"))


def test_a_size_that_not_all_ranks_know_has_no_changes():
    assert explained("gatherv", nbytes=None).changes == ()


# What limits and settings changed.


@pytest.mark.parametrize(
    ("settings", "arguments", "note"),
    [
        (
            {"scratch_limit": "10M"},
            {"nbytes": 64 * MIB, "algorithm": "ring/2"},
            "scratch_limit=10M: 2 segments raised to 6",
        ),
        ({"scratch_limit": "64G"}, {"nbytes": 5 << 30, "algorithm": "linear"}, "longer than 1G: 1 segment raised to 5"),
        ({"segment_bytes": "64K"}, {}, "segment_bytes=64K: "),
        ({"reproducible": "runs"}, {}, "reproducible='runs': one choice for all message sizes"),
        ({"path": "direct"}, {"device": "cuda"}, "path mapped, bridged, staged: left out by the setting `path`"),
        ({}, {"device": "cuda", "algorithm": "ring/7@mapped"}, "path mapped takes whole blocks: 7 segments are not"),
    ],
)
def test_what_limits_and_settings_changed_is_said(settings, arguments, note):
    with mpicoll.override(**settings):
        assert any(note in one for one in explained(**arguments).notes), explained(**arguments).notes


def test_fewer_segments_in_flight_are_said():
    with mpicoll.override(scratch_limit="2M"):
        plan = mpicoll.plan("reduce", size=8, nbytes=2 * MIB, algorithm="linear/16")
    assert plan.lanes < 4
    assert f"in flight instead of {min(plan.segments, 4)}" in " ".join(plan.explanation().notes)


def test_rules_of_a_table_that_cannot_serve_are_said(table):
    rules = (
        "allgather:recursive_doubling\nallgather:0-1K:linear\nallgather:ring@staged\nallgather:bruck\nallgather:ring"
    )
    with table(rules):
        found = explained("allgather", size=6)
    assert found.chosen.choice.algorithm == "bruck"
    first, second = found.notes
    assert first.startswith("rule allgather:recursive_doubling of ")
    assert first.endswith(" is passed over: needs a power-of-two number of ranks, got 6")
    assert second.endswith("is passed over: path staged is not offered")


def test_segments_raised_at_their_limit_are_those_of_the_plan():
    assert pipelined(get("allreduce", "ring").cost)
    with mpicoll.override(scratch_limit="1M"):
        plan = mpicoll.plan("allreduce", size=8, nbytes=256 * MIB)
    assert f"raised to {plan.segments}" in str(plan)


# Tables.


def test_tables_in_force_are_named_and_those_of_other_machines_noted(table):
    with table("machine:gpu=*H[12]00*\nallreduce:linear"):
        (one,) = explained().tables
        text = str(mpicoll.plan("allreduce", size=8, nbytes=MIB))
    assert one.startswith("in force: ")
    assert one.endswith(", of another machine (gpu *H[12]00*, here none)")
    assert f"tuning tables {one}" in text
    with mpicoll.override(tuning="model"):
        assert explained().tables == ("in force: none, the cost model alone",)


def test_a_user_s_table_of_another_machine_is_said_not_to_be_in_force(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    file = tmp_path / "mpicoll" / "tuning" / "old.rules"
    file.parent.mkdir(parents=True)
    file.write_text("machine:cpu=Z80\nallreduce:linear\n", encoding="utf-8")
    with mpicoll.override(tuning=""):
        found = explained()
        assert any(one.startswith(f"not in force: {file} (cpu Z80, here ") for one in found.tables)
        file.write_text("allreduce:linear\n", encoding="utf-8")
        assert explained().chosen.choice.algorithm == "linear"


def test_equal_times_change_nothing_where_only_their_rounding_differs():
    """An allreduce of few bytes on 2 ranks takes as long by one_shot as by recursive_doubling."""
    with mpicoll.override(tuning="model"):
        labels = [label for _, label in explained(size=2).changes]
    assert len(labels) == len(set(labels))
    assert {"one_shot@host", "recursive_doubling@host"} - set(labels)
