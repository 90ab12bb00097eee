"""The terms of a cost: each parameter's share, and the cost with numbers put in."""

import math

import pytest

from mpicoll.algorithms import registry
from mpicoll.analysis.cost import CostModel
from mpicoll.analysis.terms import CALL, WORDS, expanded, formula, ruling, terms
from mpicoll.dispatch.paths import PATHS

HOST = PATHS["host"].model
RING = registry.get("allreduce", "ring").cost
MIB = 1 << 20


def test_the_terms_of_every_cost_add_up_to_the_predicted_time(card):
    for row in PATHS.values():
        for size in (2, 3, 8, 12, 64):
            for nbytes, segments in ((0, 1), (1000, 1), (MIB, 4), (1 << 30, 32)):
                shares = terms(card.cost, row.model, size, nbytes, segments)
                seconds = row.model.seconds(card.cost, size, nbytes, segments)
                assert math.isclose(sum(shares.values()), seconds, rel_tol=1e-12), f"{row.name}, {size} ranks"
                assert min(shares.values()) >= 0


def test_every_cost_is_linear_in_its_parameters(card):
    """A machine of which all is twice as slow, and one that is two machines' sum."""
    one, other = CostModel(3e-6, 2e-6, 1e-9, 5e-10, 4e-6), CostModel(1e-6, 9e-6, 7e-9, 2e-10, 8e-6)
    both = CostModel(2 * 3e-6 + 1e-6, 2 * 2e-6 + 9e-6, 2 * 1e-9 + 7e-9, 2 * 5e-10 + 2e-10, 2 * 4e-6 + 8e-6)
    for size in (2, 3, 8, 12):
        seconds = [model.seconds(card.cost, size, 1000, 4) for model in (one, other, both)]
        assert math.isclose(2 * seconds[0] + seconds[1], seconds[2], rel_tol=1e-12)


def test_every_cost_is_written_with_numbers_that_give_its_time(card):
    """The bytes appear as n: no cost has another dependence on them, and none needs rounding."""
    names = {"n": 12345, "α": 1, "o": 1, "β": 1, "γ": 1, "λ": 1}
    for size in (2, 6, 8, 64):
        for term in expanded(card.cost, CostModel(1, 1, 1, 1, 1), size, 12345, 4):
            value = eval(str(term).replace(" + ", "+").replace(" ", "*"), {}, names)
            assert math.isclose(value, term.seconds, rel_tol=1e-12), str(term)


def test_a_ring_with_numbers_put_in():
    assert formula(RING, HOST, 8, MIB).splitlines() == [
        f"  {RING}",
        "= 14 α + 1.75 n β + 0.875 n γ + 7 λ",
        "= 70.0 us + 458.8 us + 152.9 us + 14.0 us",
        "= 695.7 us",
    ]


def test_what_every_call_costs_is_a_term_of_its_own():
    model = CostModel(1e-6, 0, 0, 0, 0, call=10e-6, call_byte=1e-9)
    assert formula("2*α", model, 4, 1000) == "  2*α + call\n= 2 α + call\n= 2.0 us + 11.0 us\n= 13.0 us"
    assert terms("2*α", model, 4, 1000)[CALL] == pytest.approx(11e-6)


@pytest.mark.parametrize(
    ("cost", "written"),
    [
        ("α", ["α"]),
        ("n*β", ["n β"]),
        ("(p-1)/p*n*β", ["5/6 n β"]),
        ("α + 3*α + n/4*α", ["(4 + 0.25 n) α"]),
        ("n//2*β", ["500 β"]),
        ("0*α + p*o", ["6 o"]),
    ],
)
def test_coefficients_are_written_as_a_person_would(cost, written):
    assert list(map(str, expanded(cost, CostModel(1, 1, 1, 1, 1), 6, 1000))) == written


@pytest.mark.parametrize("cost", ["α*β", "α**2", "α + 1"])
def test_a_cost_that_is_not_linear_has_no_terms(cost):
    with pytest.raises(ValueError, match="is not linear in α, o, β, γ, λ"):
        terms(cost, HOST, 4, 1000)


def test_a_cost_without_a_value_has_no_terms():
    with pytest.raises(ValueError, match="with p=4, n=0, s=1 has no value"):
        terms("α/n", HOST, 4, 0)


def test_the_largest_term_rules():
    assert ruling({"α": 1.0, "β": 3.0}) == ("β", 0.75)
    assert ruling({"α": 0.0}) == ("", 0.0)
    assert ruling(terms(RING, HOST, 8, 8))[0] == "α"
    assert ruling(terms(RING, HOST, 8, MIB))[0] == "β"


def test_every_symbol_has_words():
    assert WORDS.keys() == terms(RING, HOST, 8, MIB).keys()
