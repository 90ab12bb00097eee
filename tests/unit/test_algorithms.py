"""Every registered algorithm: proven right, and proven to be what its card claims.

`make verify` proves the same for more ranks.
"""

import functools
import importlib
import inspect
import re
import typing
from collections import Counter
from pathlib import Path

import pytest

from mpicoll.algorithms import catalogue, known, registry
from mpicoll.algorithms.families import FAMILIES, cells, members, others
from mpicoll.analysis.verify import verify
from mpicoll.schedule import Schedule
from serving import served
from unit.interpreter import interpret

SIZES = [*range(1, 10), 16]
CLAIMED = range(1, 10)

AT_LEAST = {
    "barrier": "linear binomial ring recursive_doubling dissemination",
    "bcast": "linear binomial ring recursive_doubling scatter_allgather double_binary_tree knomial_4 bine",
    "reduce": "linear binomial ring recursive_doubling reduce_scatter_gather double_binary_tree knomial_4 bine",
    "allreduce": "linear binomial ring recursive_doubling reduce_scatter_allgather one_shot two_shot circulant",
    "gather": "linear binomial ring recursive_doubling knomial_4",
    "scatter": "linear binomial ring recursive_doubling knomial_4",
    "allgather": "linear binomial ring recursive_doubling bruck bruck_4 neighbor_exchange circulant pat",
    "reduce_scatter": "linear binomial ring recursive_halving pairwise all_pairs circulant pat",
    "alltoall": "linear binomial ring recursive_doubling pairwise bruck bruck_4",
    "scan": "linear binomial ring recursive_doubling",
    "exscan": "linear binomial ring recursive_doubling",
}


def roots(card, size):
    """Return the roots that are proven here: of many ranks some, for `make verify` proves all."""
    if not card.row.rooted:
        return (0,)
    return range(size) if size in CLAIMED else (0, 1, size - 1)


@functools.cache
def proofs(card):
    """By size and root; verified once for all tests of an algorithm."""
    return {
        (size, root): verify(card.collective, card.schedules(size, root), root=root)
        for size in served(card, SIZES)
        for root in roots(card, size)
    }


@pytest.mark.slow
def test_is_proven_right(card):
    assert proofs(card)


@pytest.mark.slow
def test_a_second_reading_finds_the_same_results_and_order(card):
    for (size, root), proof in proofs(card).items():
        found = interpret(card.collective, card.schedules(size, root), root)
        if card.row.reducing:
            assert found == (proof.ordered, proof.left_fold), f"size {size}, root {root}"


@pytest.mark.slow
def test_ordered_is_claimed_exactly_where_it_is_proven(card):
    proven = all(proof.ordered for (size, _), proof in proofs(card).items() if size in CLAIMED)
    in_order = not card.by_hosts or card.collective in ("scan", "exscan")  # else the order depends on the hosts
    assert card.ordered == (card.row.reducing and proven and in_order)


@pytest.mark.slow
def test_a_left_fold_is_claimed_exactly_where_it_is_proven(card):
    proven = all(proof.left_fold for (size, _), proof in proofs(card).items() if size in CLAIMED)
    assert card.left_fold == (card.row.reducing and proven and not card.by_hosts)


@pytest.mark.slow
def test_all_ranks_get_the_same_bits_of_an_allreduce(card):
    if card.collective == "allreduce":
        assert all(proof.same_bits for proof in proofs(card).values())


def test_forwards_is_claimed_exactly_where_a_rank_sends_what_it_received(card):
    """Whoever receives blocks of third ranks would have to know their counts."""
    if card.collective not in ("gather", "scatter", "alltoall") or card.by_hosts:  # which do so on several hosts
        return
    sizes = served(card, [size for size in SIZES if size > 2])
    schedules = [s for size in sizes for root in roots(card, size) for s in card.schedules(size, root)]
    messages = [m for s in schedules for one in s.steps for m in one.messages]
    assert card.forwards == any(hasattr(m, "source") and m.source.buffer != "input" for m in messages)


def test_restrictions_are_needed(card):
    """With a number of ranks that is refused it would really be wrong."""
    for size in CLAIMED:
        if card.refuses(size):
            with pytest.raises((ValueError, IndexError)):
                verify(card.collective, card.schedules(size))


@pytest.mark.parametrize("collective", AT_LEAST)
def test_the_promised_algorithms_are_there(collective):
    assert set(AT_LEAST[collective].split()) <= set(catalogue()[collective])


@pytest.mark.parametrize("collective", AT_LEAST)
def test_every_collective_has_an_algorithm_of_each_family(collective):
    """And every algorithm stands once in the row."""
    row = [*(members(collective, family) for family in FAMILIES), others(collective)]
    assert all(row[:-1])
    assert Counter(card.name for cell in row for card in cell) == Counter(catalogue()[collective])
    for names, cards in zip(cells(collective), row, strict=True):
        assert all(card.name in names for card in cards)


def test_names_are_unique_and_of_the_right_form():
    assert set(catalogue()) == set(AT_LEAST)
    for collective, names in catalogue().items():
        assert len(set(names)) == len(names)
        assert all(re.fullmatch(r"[a-z][a-z0-9_]*", name) for name in names)
        assert [card.name for card in known(collective)] == names


def test_a_card_is_complete(card):
    assert card.cost
    assert card.reference
    assert re.fullmatch(r"[A-Z].{30,}\.", card.uniform), "one sentence says why all sizes follow from those proven"
    assert re.search(r"\.\n\n\S", card.idea), "the docstring says what it does, then when it wins"


def test_nothing_under_algorithms_is_unregistered():
    registered = {card.function for name in catalogue() for card in known(name)}
    for module in collective_modules():
        functions = [f for _, f in inspect.getmembers(module, inspect.isfunction)]
        written = [f for f in functions if f.__module__ == module.__name__]
        forgotten = {f for f in written if is_algorithm(f)} - registered
        assert not forgotten, f"in {module.__name__}"
        assert registered & set(written), f"{module.__name__} has no algorithm"


def is_algorithm(function):
    parameters = list(inspect.signature(function).parameters)
    makes_schedules = typing.get_type_hints(function).get("return") is Schedule
    return makes_schedules and parameters in (["rank", "size"], ["rank", "size", "root"])


def collective_modules():
    folder = Path(registry.__file__).parent
    names = {file.stem for file in folder.glob("*.py")} - {
        "__init__",
        "card",
        "families",
        "naming",
        "registry",
        "uniform",
        "expression",
        "space",
    }
    return [importlib.import_module(f"mpicoll.algorithms.{name}") for name in sorted(names)]


def test_an_algorithm_is_in_the_file_of_its_collective(card):
    *_, folder, file = card.function.__module__.split(".")
    if card.by_hosts:
        assert (folder, file) == ("on_hosts", card.name)
    else:
        assert file == {"exscan": "scan"}.get(card.collective, card.collective)
