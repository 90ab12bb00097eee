"""`python -m mpicoll list`: all algorithms, by family and with what they need and cost."""

from __future__ import annotations

import argparse
import sys

from mpicoll.algorithms import registry
from mpicoll.algorithms.families import FAMILIES, cells
from mpicoll.schedule.collectives import COLLECTIVES, collective

NAME, HELP = "list", "all algorithms, by family and with what they need and cost"


def add(parser: argparse.ArgumentParser) -> None:
    """Add its arguments."""
    parser.add_argument("collective", nargs="?")


def run(chosen: argparse.Namespace) -> None:
    """Print two tables."""
    from rich.console import Console
    from rich.table import Table

    families = Table("collective", *FAMILIES, "others", box=None, pad_edge=False)
    table = Table("collective", "algorithm", "needs", "cost", "proven", box=None, pad_edge=False)
    for name in [collective(chosen.collective).name] if chosen.collective else COLLECTIVES:
        families.add_row(name, *cells(name))
        for card in registry.known(name):
            table.add_row(name, card.name, "; ".join(card.restrictions()) or "-", card.cost, card.proof)
    Console(width=None if sys.stdout.isatty() else 200).print(families, "", table)
