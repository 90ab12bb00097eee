"""`python -m mpicoll show`: an algorithm's card, steps and picture."""

from __future__ import annotations

import argparse

from mpicoll.algorithms import registry
from mpicoll.algorithms.card import Algorithm
from mpicoll.analysis.draw import draw

NAME, HELP = "show", "an algorithm's card, steps and picture"


def add(parser: argparse.ArgumentParser) -> None:
    """Add its arguments."""
    parser.add_argument("collective")
    parser.add_argument("algorithm")
    parser.add_argument("--ranks", "--size", type=int, default=4)
    parser.add_argument("--root", type=int, default=0)


def run(chosen: argparse.Namespace) -> None:
    """Print the card and the picture."""
    card = registry.require(chosen.collective, chosen.algorithm, chosen.ranks)
    print(describe(card))
    schedules = card.schedules(chosen.ranks, chosen.root)
    root = f", root {chosen.root}" if card.row.rooted else ""
    print(f"\nOn {chosen.ranks} ranks{root}:\n")
    print(draw(card.collective, schedules, root=chosen.root))
    for rank, schedule in enumerate(schedules):
        print(f"\nrank {rank}:\n{schedule}")


def describe(card: Algorithm) -> str:
    """Return an algorithm's card as text."""
    needs = "; ".join(card.restrictions()) or "nothing: any number of ranks, any root, any operator"
    return (
        f"{card.collective}.{card.name}\n\n{card.idea}\n\n"
        f"cost:   {card.cost or 'not declared'}\nblocks: {card.declared_space()}\n"
        f"needs:  {needs}\nsource: {card.reference or 'not given'}\n"
        f"proven: {card.proof}" + (f": {card.uniform}" if card.uniform else "")
    )
