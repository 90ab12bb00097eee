"""Tests that take a `card` run for every registered algorithm: a new algorithm brings its own tests."""

import pytest

from mpicoll.algorithms import catalogue, known, unregister
from mpicoll.analysis import proof, registration


def pytest_generate_tests(metafunc):
    if "card" in metafunc.fixturenames:
        cards = [card for name in catalogue() for card in known(name)]
        metafunc.parametrize("card", cards, ids=[f"{card.collective}.{card.name}" for card in cards])


@pytest.fixture
def as_before(monkeypatch):
    """Whatever a test registers goes again; until then it is proven for a few ranks, to be quick."""
    for module in (proof, registration):
        monkeypatch.setattr(module, "SIZES_AT_REGISTRATION", range(1, 6))
    before = catalogue()
    yield
    for collective, names in catalogue().items():
        for name in set(names) - set(before[collective]):
            unregister(collective, name)
