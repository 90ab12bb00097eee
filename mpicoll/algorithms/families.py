"""The four families of algorithms, of which every collective has one: who sends to whom."""

from __future__ import annotations

from mpicoll.algorithms import registry
from mpicoll.algorithms.card import Algorithm

#: family -> its names; recursive halving is recursive doubling backwards
FAMILIES = {
    "linear": ("linear",),
    "binomial tree": ("binomial",),
    "ring": ("ring",),
    "recursive doubling": ("recursive_doubling", "recursive_halving"),
}


def members(collective: str, family: str) -> list[Algorithm]:
    """Return a collective's algorithms of a family."""
    return [card for card in registry.known(collective) if card.name in FAMILIES[family]]


def others(collective: str) -> list[Algorithm]:
    """Return a collective's algorithms that are of no family."""
    named = {name for names in FAMILIES.values() for name in names}
    return [card for card in registry.known(collective) if card.name not in named]


def cells(collective: str) -> list[str]:
    """Return a row of the table of families: the algorithms of each family, then all others."""
    rows = [*(members(collective, family) for family in FAMILIES), others(collective)]
    return [_names(row) or "-" for row in rows]


def _names(cards: list[Algorithm]) -> str:
    return ", ".join(f"{card.name} (p = 2^k)" if card.power_of_two else card.name for card in cards)
