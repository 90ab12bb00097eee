"""`python -m mpicoll info`: what was found on this machine, and why."""

from __future__ import annotations

import argparse

NAME, HELP = "info", "what was found on this machine, and why"


def add(parser: argparse.ArgumentParser) -> None:
    """Add no arguments."""


def run(chosen: argparse.Namespace) -> None:
    """Print the report."""
    from mpicoll.info import show

    show()
