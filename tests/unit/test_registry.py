"""Restrictions, and algorithms that users register."""

import itertools
from dataclasses import replace

import pytest

import mpicoll
from mpicoll import ScheduleError, UnsupportedError
from mpicoll.algorithms import catalogue, get, registry, require, unregister, usable
from mpicoll.analysis import registration
from mpicoll.schedule import Copy, Recv, Reduce, Schedule, Scratch, Send, inp, out, step

pytestmark = pytest.mark.usefixtures("as_before")


# Algorithms as a user might write them.


def backwards(rank, size):
    """An allgather around the ring, from right to left."""
    steps = [step(Copy(out(rank), inp(rank)))]
    for k in range(size - 1):
        send = Send(out((rank + k) % size), (rank - 1) % size)
        steps.append(step(send, Recv(out((rank + k + 1) % size), (rank + 1) % size)))
    return Schedule.of(steps, size)


def lagging(rank, size):
    """The same, but each sends on what it has yet to receive."""
    steps = [step(Copy(out(rank), inp(rank)))]
    for k in range(size - 1):
        send = Send(out((rank + k + 1) % size), (rank - 1) % size)
        steps.append(step(send, Recv(out((rank + k + 2) % size), (rank + 1) % size)))
    return Schedule.of(steps, size)


def exchange(rank, size):
    """An allreduce of vectors that travel in pairs, combined own first."""
    tmp = Scratch()
    if size == 1:
        return Schedule.of([step(Copy(out(0), inp(0)))], 1)
    got, peer = tmp.take(0), 1 - rank
    return Schedule.of([step(Send(inp(0), peer), Recv(got, peer), Reduce(out(0), (inp(0), got)))], 1, tmp)


def descending(rank, size):
    """An allreduce by all to all, combined from the last rank to the first."""
    tmp = Scratch()
    held = {q: inp(0) if q == rank else tmp.take(0) for q in range(size)}
    others = [q for q in range(size) if q != rank]
    messages = [Recv(held[q], q) for q in others], [Send(inp(0), q) for q in others]
    operands = tuple(held[q] for q in reversed(range(size)))
    return Schedule.of([step(*messages, Reduce(out(0), operands))], 1, tmp)


def small_only(rank, size):
    """Right up to 16 ranks; with more, rank 3 forgets itself."""
    schedule = descending(rank, size)
    if size < 17 or rank != 3:
        return schedule
    (one,) = schedule.steps
    forgets = Reduce(out(0), tuple(ref for ref in one.local[0].sources if ref != inp(0)))
    return replace(schedule, steps=(step(one.messages, forgets),))


def test_a_users_algorithm_is_reachable_and_forced_by_name():
    assert mpicoll.algorithm("allgather")(backwards) is backwards
    assert "backwards" in mpicoll.algorithms("allgather")["allgather"]
    plan = mpicoll.plan("allgather", size=5, nbytes=5000, rank=2, algorithm="backwards")
    assert plan.algorithm == "backwards"
    assert plan.schedule == backwards(2, 5)


def test_a_wrong_one_is_refused_and_the_error_says_where():
    where = r"allgather\.lagging, size 2, rank \d, step 1: .*output\[\d\]"
    with pytest.raises(ScheduleError, match=where):
        mpicoll.algorithm("allgather")(lagging)
    assert "lagging" not in mpicoll.algorithms("allgather")["allgather"]
    with pytest.raises(ValueError, match="no algorithm 'lagging'"):
        mpicoll.plan("allgather", size=4, nbytes=100, algorithm="lagging")


@pytest.mark.slow
def test_one_that_is_wrong_for_many_ranks_only_is_refused(monkeypatch):
    monkeypatch.undo()
    with pytest.raises(ScheduleError, match=r"allreduce\.small_only, size 17, rank 3, .*output\[0\]"):
        mpicoll.algorithm("allreduce")(small_only)


def test_the_root_is_named_where_it_matters():
    def stubborn(rank, size, root):
        """A broadcast that always starts at rank 0."""
        return get("bcast", "linear").schedule(rank, size, 0)

    where = r"bcast\.stubborn, size 2, root 1, rank 0, step 0: .*output\[0\]"
    with pytest.raises(ScheduleError, match=where):
        mpicoll.algorithm("bcast")(stubborn)


def test_a_false_claim_of_order_is_refused():
    with pytest.raises(ScheduleError, match=r"allreduce\.descending, size 2: claims to be ordered"):
        mpicoll.algorithm("allreduce", ordered=True)(descending)


def test_a_false_claim_of_a_left_fold_is_refused():
    doubling = get("allreduce", "recursive_doubling").function
    with pytest.raises(ScheduleError, match=r"allreduce\.mine, size 4: claims to combine from left to right"):
        mpicoll.algorithm("allreduce", name="mine", left_fold=True)(doubling)
    mpicoll.algorithm("allreduce", name="mine", ordered=True)(doubling)


def test_an_allreduce_whose_ranks_would_differ_in_bits_is_refused():
    with pytest.raises(ScheduleError, match=r"allreduce\.exchange, size 2: .*different bits"):
        registration.verify_algorithm(registry.Algorithm("exchange", "allreduce", exchange, "", ""), [1, 2])


def test_without_a_claim_it_serves_commutative_operators_only():
    card = registry.Algorithm("descending", "allreduce", descending, "", "")
    assert registration.verify_algorithm(card, range(1, 6)) == 5
    assert card.refuses(4) is None
    assert card.refuses(4, commutative=False) == "needs a commutative operator"


@pytest.mark.parametrize("name", ["Ring2", "2ring", "my-ring", "my ring", "ring:x", "<lambda>", "är"])
def test_a_name_of_the_wrong_form_is_refused(name):
    with pytest.raises(ValueError, match=r"not of the form \[a-z\]\[a-z0-9_\]\*"):
        mpicoll.algorithm("allgather", name=name)(backwards)


def test_a_name_is_given_once():
    with pytest.raises(ValueError, match="allgather: algorithm 'ring' is already registered"):
        mpicoll.algorithm("allgather", name="ring")(backwards)
    assert get("allgather", "ring").function is not backwards


def test_a_capital_does_not_take_anothers_name():
    with pytest.raises(ValueError, match="not of the form"):
        mpicoll.algorithm("allgather", name="Ring")(backwards)
    assert get("allgather", "ring").function is not backwards


def test_an_unknown_collective_is_refused():
    with pytest.raises(ValueError, match="no collective 'allgatther'; known: "):
        mpicoll.algorithm("allgatther")(backwards)


@pytest.mark.parametrize("cost", ["p*latency", "p*(α", "__import__('os')", "α.real", ""])
def test_a_cost_that_cannot_be_evaluated_is_refused_at_once(cost):
    """Later it would make every choice for the collective fail; none at all is fine."""
    if not cost:
        mpicoll.algorithm("allgather", cost=cost)(backwards)
        return
    with pytest.raises(ValueError, match="cost"):
        mpicoll.algorithm("allgather", cost=cost)(backwards)
    mpicoll.plan("allgather", size=4, nbytes=4003)


def test_without_a_cost_it_is_never_chosen_but_shown():
    mpicoll.algorithm("allgather")(backwards)
    plan = mpicoll.plan("allgather", size=4, nbytes=4001)
    assert plan.algorithm != "backwards"
    assert "declares no cost" in next(line for line in str(plan).splitlines() if "backwards" in line)


def test_with_the_smallest_cost_it_is_chosen():
    """Also where the same call was planned before it was registered."""
    before = mpicoll.plan("allgather", size=4, nbytes=4002)
    mpicoll.algorithm("allgather", cost="α/1000")(backwards)
    assert before.algorithm != "backwards"
    assert mpicoll.plan("allgather", size=4, nbytes=4002).algorithm == "backwards"
    unregister("allgather", "backwards")
    assert mpicoll.plan("allgather", size=4, nbytes=4002).algorithm == before.algorithm


def test_a_corrected_algorithm_takes_the_place_of_the_old_one():
    mpicoll.algorithm("allgather", name="mine")(backwards)
    old = mpicoll.plan("allgather", size=5, nbytes=5001, algorithm="mine").schedule
    unregister("allgather", "mine")
    with pytest.raises(ValueError, match="no algorithm 'mine'"):
        mpicoll.plan("allgather", size=5, nbytes=5001, algorithm="mine")
    mpicoll.algorithm("allgather", name="mine")(get("allgather", "linear").function)
    new = mpicoll.plan("allgather", size=5, nbytes=5001, algorithm="mine").schedule
    assert new != old
    assert new == get("allgather", "linear").schedule(0, 5)


# Restrictions: a forced algorithm that cannot serve is an error that says why and what would do.


def test_all_that_is_usable_is_named_and_nothing_else():
    with pytest.raises(UnsupportedError) as caught:
        require("allgather", "recursive_doubling", 6)
    assert str(caught.value) == (
        "allgather: 'recursive_doubling' needs a power-of-two number of ranks, got 6; "
        "usable: binomial, bruck, bruck_4, circulant, linear, neighbor_exchange, pat, ring, striped"
    )


def test_restrictions_of_a_call_count_as_well():
    with pytest.raises(UnsupportedError, match=r"'ring' needs a commutative operator; usable: .*one_shot"):
        require("allreduce", "ring", 4, commutative=False)
    with pytest.raises(UnsupportedError, match=r"'binomial' .*counts not all ranks know.*; usable: linear$"):
        require("gather", "binomial", 4, counts_known=False)
    with pytest.raises(UnsupportedError, match="needs an even number of ranks, got 7; usable: "):
        require("allgather", "neighbor_exchange", 7)


def test_a_smallest_number_of_ranks():
    mpicoll.algorithm("allgather", min_size=3)(backwards)
    assert require("allgather", "backwards", 3).restrictions() == ["at least 3 ranks", "at most 64 ranks"]
    with pytest.raises(UnsupportedError, match="'backwards' needs at least 3 ranks, got 2; usable: "):
        require("allgather", "backwards", 2)


def calls(card):
    """Every kind of call that can be made of a collective: ranks, and facts about operator and counts."""
    commutative = (True, False) if card.row.reducing else (True,)
    fold = (False, True) if card.row.reducing else (False,)
    known = (True, False) if card.collective in ("gather", "scatter", "alltoall") else (True,)
    for size, c, f, k in itertools.product(range(1, 10), commutative, fold, known):
        yield size, {"commutative": c, "left_fold": f, "counts_known": k}


def test_forced_it_serves_or_says_why_not_and_what_would(card):
    for size, facts in calls(card):
        can = usable(card.collective, size, **facts)
        assert can, "every call can be served"
        if card in can:
            assert require(card.collective, card.name, size, **facts) is card
            continue
        with pytest.raises(UnsupportedError) as caught:
            require(card.collective, card.name, size, **facts)
        text = str(caught.value)
        assert text.startswith(f"{card.collective}: {card.name!r} {card.refuses(size, **facts)}; usable: ")
        assert text.rpartition("usable: ")[2].split(", ") == sorted(one.name for one in can)


def test_what_it_refuses_is_declared_in_words(card):
    asked = [(size, facts) for size, facts in calls(card) if not facts["left_fold"]]  # only where a setting asks
    refuses = any(card.refuses(size, **facts) for size, facts in asked)
    assert refuses == bool(card.restrictions())


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"allreduce: no algorithm 'rings'; known: binomial, .*two_shot"):
        get("allreduce", "rings")


def test_names_are_listed_by_any_spelling_of_the_collective():
    assert mpicoll.algorithms("Gatherv") == {"gather": catalogue()["gather"]}
    assert mpicoll.algorithms() == catalogue()
