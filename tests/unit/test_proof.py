"""A user's algorithm is proven where it is used, and what it declares is checked when it is registered."""

import pytest

import mpicoll
from mpicoll import ScheduleError, UnsupportedError
from mpicoll.algorithms import get, registry, unregister
from mpicoll.analysis.proof import MOST_CELLS
from mpicoll.cli.show import describe
from unit.users_algorithms import alone, planned, register, ring, wrong_from

pytestmark = pytest.mark.usefixtures("as_before")


def test_one_that_is_wrong_from_some_size_on_is_refused_there():
    register(wrong_from(18))
    assert planned(17).algorithm == "mine"
    with pytest.raises(ScheduleError, match=r"^allreduce\.mine, size 18, rank 0, end: output\[0\]"):
        planned(18)


def test_a_choice_leaves_out_the_wrong_one_and_says_why():
    register(wrong_from(18), cost="0*n")
    assert planned(17, None).algorithm == "mine"
    plan = planned(18, None)
    assert plan.algorithm != "mine"
    assert "allreduce.mine, size 18, rank 0, end: output[0]" in str(plan)


def test_a_rule_of_a_tuning_table_leaves_it_out_too(tmp_path):
    register(wrong_from(18))
    table = tmp_path / "table"
    table.write_text("allreduce:mine\nallreduce:binomial", encoding="utf-8")
    with mpicoll.override(tuning=str(table)):
        assert [planned(size, None).algorithm for size in (17, 18)] == ["mine", "binomial"]


def test_a_proof_is_made_once():
    calls = []

    def counted(rank, size):
        calls.append(size)
        return ring(rank, size)

    register(counted)
    planned(20)
    proven = calls.count(20)
    assert proven >= 20
    planned(20)
    assert calls.count(20) - proven < proven


def test_only_the_root_in_use_is_proven():
    def half(rank, size, root):
        return get("bcast", "linear").function(rank, size, root if size < 18 else 0)

    register(half, "bcast")
    assert planned(18, collective="bcast", root=0).algorithm == "mine"
    with pytest.raises(ScheduleError, match=r"^bcast\.mine, size 18, root 3, rank 0, step 0: "):
        planned(18, collective="bcast", root=3)


def test_claims_are_proven_at_first_use_too():
    def descending(rank, size):
        return get("allreduce", "linear" if size < 18 else "ring").function(rank, size)

    register(descending, ordered=True)
    with pytest.raises(ScheduleError, match=r"^allreduce\.mine, size 18: claims to be ordered"):
        planned(18)


def test_above_64_ranks_only_a_uniform_one_serves():
    register(ring)
    assert planned(33).algorithm == "mine"
    with pytest.raises(UnsupportedError, match="is proven for at most 64 ranks, got 65; declare in uniform="):
        planned(65)
    unregister("allreduce", "mine")
    register(ring, uniform="Round k is one rule in rank, size and k.")
    assert planned(65).algorithm == "mine"


def test_a_proof_that_would_take_too_long_is_not_begun():
    register(lambda rank, size: get("reduce_scatter", "linear").function(rank, size), "reduce_scatter")
    assert planned(32, collective="reduce_scatter").algorithm == "mine"
    register_all_pairs_of_blocks()
    with pytest.raises(
        UnsupportedError, match=rf"'mine' names \d+ cells on 64 ranks.*{MOST_CELLS}.*declare in uniform"
    ):
        planned(64, collective="alltoall")


def register_all_pairs_of_blocks():
    register(lambda rank, size: get("alltoall", "bruck").function(rank, size), "alltoall")


def test_what_fails_at_one_size_only_is_an_error_with_the_size():
    register(lambda rank, size: ring(rank, size) if size < 18 else 1 // 0)
    with pytest.raises(ScheduleError, match=r"^allreduce\.mine, size 18: its function raises ZeroDivisionError: "):
        planned(18)


def test_the_projects_own_are_not_proven_when_they_are_used(monkeypatch):
    monkeypatch.setattr("mpicoll.analysis.proof.verify", None)
    assert planned(4096, "ring", "barrier").algorithm == "ring"


def test_one_that_is_not_to_be_verified_serves_and_its_card_says_so():
    register(alone, verified=False)
    plan = planned(100)
    assert "mine, 1 segment, path host, 1 step, which is not verified" in str(plan)
    assert "proven: not verified" in describe(get("allreduce", "mine"))
    assert "not verified" not in str(planned(100, "ring"))


def test_a_function_that_changed_is_another_algorithm_when_it_is_registered_again():
    chosen = [ring]

    def changing(rank, size):
        return chosen[0](rank, size)

    register(changing, cost="0*n")
    old = mpicoll.plan("allreduce", size=20, nbytes=999)
    unregister("allreduce", "mine")
    chosen[0] = get("allreduce", "one_shot").function
    register(changing, cost="0*n")
    new = mpicoll.plan("allreduce", size=20, nbytes=999)
    assert (old.algorithm, new.algorithm) == ("mine", "mine")
    assert new.schedule == chosen[0](0, 20) != old.schedule
    unregister("allreduce", "mine")
    chosen[0] = wrong_from(18)
    register(changing, cost="0*n")
    with pytest.raises(ScheduleError, match="size 20"):
        planned(20)


def test_the_revision_changes_with_every_change():
    before = registry.revision()
    register(ring, verified=False)
    assert registry.revision() > before
    after = registry.revision()
    unregister("allreduce", "mine")
    assert registry.revision() > after
