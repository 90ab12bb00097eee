"""Who decides, and what happens to a choice that cannot serve."""

import re

import pytest

import mpicoll
from mpicoll import UnsupportedError
from mpicoll.algorithms import catalogue, get, registry
from mpicoll.dispatch.facts import Facts
from mpicoll.dispatch.machine_facts import MachineFacts
from mpicoll.dispatch.paths import PATHS
from mpicoll.dispatch.plan import make_plan
from mpicoll.dispatch.plan_key import PlanKey
from mpicoll.dispatch.select import candidates, select
from mpicoll.dispatch.tuning import asked_for, in_force, packaged
from mpicoll.schedule import COLLECTIVES

FACTS = Facts("allgather", 6, 60_000)
#: one algorithm for each that may speak, in the order in which they do
VOICES = {"call": "ring", "communicator": "allgather:bruck", "setting": "allgather:binomial"}
#: needs a power of two
IMPOSSIBLE = {
    "call": "recursive_doubling",
    "communicator": "allgather:recursive_doubling",
    "setting": "allgather:recursive_doubling",
}


@pytest.fixture
def table(tmp_path):
    """Writes a tuning table and returns its name."""

    def write(text):
        file = tmp_path / f"table{len(list(tmp_path.iterdir()))}"
        file.write_text(text, encoding="utf-8")
        return str(file)

    return write


def choose(facts=FACTS, **voices):
    tuning = in_force(asked_for(voices.get("tuning", "model")), (), MachineFacts())
    return select(facts, *(voices.get(who, "") for who in ("call", "communicator", "setting")), tuning)


def test_the_call_comes_first_then_communicator_setting_table_and_model(table):
    voices = VOICES | {"tuning": table("allgather:neighbor_exchange")}
    expected = ["ring", "bruck", "binomial", "neighbor_exchange"]
    reasons = ["algorithm= in the call", "communicator", "setting", "tuning table"]
    for algorithm, reason, silent in zip(expected, reasons, list(voices), strict=True):
        choice, why = choose(**voices)
        assert choice.algorithm == algorithm
        assert reason in why
        del voices[silent]
    choice, why = choose()
    assert "cost model for host" in why
    best = min((c for c in candidates(FACTS) if c.seconds is not None), key=lambda c: c.seconds)
    assert choice == best.choice


def test_rules_that_do_not_match_are_silent():
    choice, why = choose(communicator="allgather:0-1K:bruck; bcast:ring", setting="allgather:1K-inf:binomial")
    assert choice.algorithm == "binomial"
    assert "allgather:1K-inf:binomial" in why


@pytest.mark.parametrize("who", IMPOSSIBLE)
def test_forced_and_impossible_is_an_error_that_names_restriction_and_usable_ones(who):
    with pytest.raises(UnsupportedError) as caught:
        choose(**{who: IMPOSSIBLE[who]})
    assert str(caught.value) == (
        "allgather: 'recursive_doubling' needs a power-of-two number of ranks, got 6; "
        "usable: binomial, bruck, bruck_4, circulant, linear, neighbor_exchange, pat, ring, striped"
    )


def test_impossible_further_down_does_not_matter():
    assert choose(call="ring", communicator=IMPOSSIBLE["communicator"])[0].algorithm == "ring"
    assert choose(communicator="allgather:bruck", setting=IMPOSSIBLE["setting"])[0].algorithm == "bruck"


def test_a_table_is_measured_on_other_calls_so_what_cannot_serve_is_skipped(table):
    both = table("allgather:recursive_doubling\nallgather:ring@staged\nallgather:bruck")
    assert choose(tuning=both)[0].algorithm == "bruck"
    choice, why = choose(tuning=table("allgather:recursive_doubling"))
    assert get("allgather", choice.algorithm).refuses(6) is None
    assert "cost model" in why


@pytest.mark.parametrize("who", ["call", "communicator", "setting"])
def test_a_path_that_cannot_serve_is_an_error(who):
    forced = "ring@staged" if who == "call" else "allgather:ring@staged"
    with pytest.raises(UnsupportedError, match="allgather: path 'staged' cannot serve host arrays here; usable: host"):
        choose(**{who: forced})
    device = Facts("allgather", 6, 60_000, "device", paths=("direct", "staged"))
    assert choose(device, **{who: forced})[0].path == "staged"


@pytest.mark.parametrize("who", ["call", "communicator", "setting"])
def test_an_operator_that_does_not_commute_is_a_restriction_like_others(who):
    facts = Facts("allreduce", 4, 1000, commutative=False)
    forced = "ring" if who == "call" else "allreduce:ring"
    with pytest.raises(UnsupportedError, match=r"'ring' needs a commutative operator; usable: .*one_shot"):
        choose(facts, **{who: forced})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("rings", "allgather: no algorithm 'rings'; known: "),
        ("Ring", "'Ring' is not of the form algorithm"),
        ("ring/0", "the number of segments is at least 1"),
        ("ring@nowhere", "unknown path 'nowhere'; known: "),
    ],
)
def test_a_mistake_in_the_call_is_an_error(call, message):
    with pytest.raises(ValueError, match=message):
        choose(call=call)


def test_a_mistake_in_a_table_names_the_file_and_the_line(table):
    file = table("allgather:ring\nallgather:rings")
    where = f"the setting `tuning`, {file}, line 2: 'allgather:rings': allgather: no algorithm 'rings'; known: "
    with pytest.raises(ValueError, match=f"^{re.escape(where)}"):
        choose(tuning=file)


@pytest.mark.parametrize("kind", ["missing", "a folder"])
def test_a_table_that_cannot_be_read_is_named_with_its_setting(tmp_path, kind):
    file = str(tmp_path / "none" if kind == "missing" else tmp_path)
    text = "No such file or directory" if kind == "missing" else "Is a directory"
    known = f"; beside files there are: {', '.join(('model', *packaged()))}"
    with pytest.raises(ValueError, match=f"^the setting `tuning`, {re.escape(file)}: {text}{known}$"):
        choose(tuning=file)


def test_rules_of_a_setting_that_cannot_be_read_name_it():
    with pytest.raises(ValueError, match=r"^the setting `algorithms`: rule 'ring': needs a collective, a colon"):
        choose(setting="ring")


def test_what_a_choice_says_is_kept_and_the_rest_is_filled_in():
    device = Facts("bcast", 4, 64 << 20, "device", paths=("direct", "staged"))
    assert str(choose(device, call="ring/5@staged")[0]) == "ring/5@staged"
    filled = choose(device, call="ring")[0]
    assert filled.path == "direct"
    assert filled.segments > 1  # a chain is worth cutting
    assert choose(device, call="linear")[0].segments == 1


def test_candidates_are_all_algorithms_on_all_paths_or_a_reason():
    facts = Facts("allgather", 6, 60_000, "device", paths=("direct", "staged"))
    found = candidates(facts)
    assert {c.choice.algorithm for c in found} == set(catalogue()["allgather"]) - {"striped"}  # for several hosts
    for one in found:
        refused = get("allgather", one.choice.algorithm).refuses(6)
        assert (one.seconds is None) == bool(refused)
        assert one.why_not == (refused or "")
    paths = [c.choice.path for c in found if c.seconds is not None]
    able = [c for c in registry.known("allgather") if c.refuses(6) is None and not c.by_hosts]
    assert sorted(paths) == ["direct"] * len(able) + ["staged"] * len(able)


def test_predictions_are_the_models(card):
    if card.by_hosts:  # see test_on_hosts.py
        return
    facts = Facts(card.collective, 4, 1 << 20)
    mine = next(c for c in candidates(facts) if c.choice.algorithm == card.name)
    segments = mine.choice.segments
    assert mine.seconds == PATHS["host"].model.seconds(card.cost, 4, 1 << 20, segments)
    assert mine.seconds <= PATHS["host"].model.seconds(card.cost, 4, 1 << 20, 1)


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 13])
def test_whatever_is_chosen_can_serve(collective, size):
    """For operators that do not commute and counts that not all know as well."""
    row = COLLECTIVES[collective]
    for commutative in (True, False) if row.reducing else (True,):
        for known in (True, False) if collective in ("gather", "scatter", "alltoall") else (True,):
            for nbytes in (0, 1, 1000, 1 << 20, 1 << 33) if known else (None,):
                facts = Facts(collective, size, nbytes, "host", commutative, known)
                card = get(collective, choose(facts)[0].algorithm)
                assert card.refuses(size, commutative=commutative, counts_known=known) is None


@pytest.mark.parametrize("name", ["Gatherv", "scatterv", "Alltoallv"])
def test_counts_that_not_all_ranks_know_need_algorithms_that_do_not_forward(name):
    plan = mpicoll.plan(name, size=8, nbytes=None)
    assert not get(plan.key.facts.collective, plan.algorithm).forwards
    forwarding = next(a for a in catalogue()[plan.key.facts.collective] if get(name, a).forwards)
    with pytest.raises(UnsupportedError, match="counts not all ranks know"):
        mpicoll.plan(name, size=8, nbytes=None, algorithm=forwarding)


@pytest.mark.parametrize("kind", ["runs", "ranks"])
@pytest.mark.parametrize("collective", [name for name, row in COLLECTIVES.items() if row.reducing])
def test_what_must_be_reproducible_is_pinned(collective, kind, table):
    """One algorithm, uncut, for vectors of every size, whatever a tuner measured."""
    first, *_, last = catalogue()[collective]
    measured = table(f"{collective}:0-1M:{first}; {collective}:{last}/4")
    for size in (1, 2, 5, 8):
        found = set()
        for nbytes in (8, 1000, 1 << 20, 1 << 28):
            facts = Facts(collective, size, nbytes, reproducible=kind)
            choice, why = choose(facts, tuning=measured)
            assert f"the setting reproducible='{kind}'" in why
            found.add((choice.algorithm, choice.segments, choice.path))
        ((algorithm, segments, _),) = found
        assert segments == 1
        assert get(collective, algorithm).left_fold or kind == "runs"


def test_forced_and_not_reproducible_is_an_error():
    facts = Facts("allreduce", 4, 1000, reproducible="ranks")
    message = r"'recursive_doubling' does not combine ranks from left to right.*; usable: linear, one_shot, two_shot"
    with pytest.raises(UnsupportedError, match=message):
        choose(facts, call="recursive_doubling")
    assert choose(facts, call="two_shot")[0].algorithm == "two_shot"
    assert choose(Facts("allreduce", 4, 1000, reproducible="runs"), call="ring/2")[0].segments == 2


def test_the_setting_counts_for_reductions_only():
    before = mpicoll.plan("allgather", size=4, nbytes=1000)
    with mpicoll.override(reproducible="ranks"):
        assert mpicoll.plan("allgather", size=4, nbytes=1000) is before
        plan = mpicoll.plan("allreduce", size=4, nbytes=1000)
    assert "the setting reproducible='ranks'" in plan.reason
    assert "does not combine ranks from left to right" in str(plan)


def test_long_vectors_are_not_sent_as_often_as_there_are_ranks():
    """Of what the model must know: bandwidth decides for long vectors, latency for short ones."""
    for collective, wasteful in [("allreduce", "one_shot"), ("bcast", "linear"), ("reduce", "linear")]:
        assert mpicoll.plan(collective, size=16, nbytes=1 << 28).algorithm != wasteful
    for size in (8, 16):
        card = get("allreduce", mpicoll.plan("allreduce", size=size, nbytes=1 << 28).algorithm)
        wanted = PATHS["host"].model.beta * (1 << 28) * 2 * (size - 1) / size
        assert PATHS["host"].model.seconds(card.cost, size, 1 << 28) < 3 * wanted
        assert mpicoll.plan("allreduce", size=size, nbytes=8).algorithm not in ("ring", "linear", "two_shot")


@pytest.mark.parametrize("memory", ["host", "device"])
def test_no_rank_chooses_otherwise(memory):
    paths = ("host",) if memory == "host" else ("direct", "staged")
    for collective, row in COLLECTIVES.items():
        for size, nbytes in [(3, 100), (6, 100_000), (8, 1 << 30)]:
            facts = Facts(collective, size, nbytes, memory, paths=paths)
            for root in range(size) if row.rooted else (0,):
                plans = [make_plan(PlanKey(facts, rank, root, scratch_limit=1 << 24)) for rank in range(size)]
                assert len({(p.algorithm, p.segments, p.lanes, p.path, p.reason) for p in plans}) == 1
                assert [p.schedule for p in plans] == get(collective, plans[0].algorithm).schedules(size, root)
