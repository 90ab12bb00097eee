"""Tests that take a `card` run for every registered algorithm: a new algorithm brings its own tests."""

from mpicoll.algorithms import catalogue, known


def pytest_generate_tests(metafunc):
    if "card" in metafunc.fixturenames:
        cards = [card for name in catalogue() for card in known(name)]
        metafunc.parametrize("card", cards, ids=[f"{card.collective}.{card.name}" for card in cards])
