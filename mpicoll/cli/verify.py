"""`python -m mpicoll verify`: proves algorithms for many sizes and roots."""

from __future__ import annotations

import argparse
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from mpicoll.algorithms import registry
from mpicoll.analysis.registration import verify_algorithm
from mpicoll.dispatch.rules import parse_choice
from mpicoll.errors import ScheduleError
from mpicoll.pictures.notation import numbers_text
from mpicoll.ranges import whole_numbers
from mpicoll.schedule.collectives import COLLECTIVES, collective

NAME, HELP = "verify", "prove algorithms for many sizes and roots"

#: sizes of the complete verification, and from which size on roots are sampled
VERIFIED_SIZES = (*range(1, 18), 32, 64)
ALL_ROOTS_UP_TO = 17


def add(parser: argparse.ArgumentParser) -> None:
    """Add its arguments."""
    parser.add_argument("collective", nargs="?")
    parser.add_argument("algorithm", nargs="?")
    parser.add_argument("--ranks", "--sizes", default="", help="numbers of ranks, such as 1-17,32,64")


def run(chosen: argparse.Namespace) -> int:
    """Print a line for each algorithm; return 1 if any fails."""
    from rich.progress import Progress

    sizes = whole_numbers(chosen.ranks) if chosen.ranks else VERIFIED_SIZES
    names = [collective(chosen.collective).name] if chosen.collective else list(COLLECTIVES)
    cards = [c for name in names for c in registry.known(name)]
    if chosen.algorithm:
        cards = [registry.get(chosen.collective, parse_choice(chosen.algorithm).algorithm)]
    failed = 0
    workers = min(len(os.sched_getaffinity(0)), len(cards))
    with ProcessPoolExecutor(workers, get_context("fork")) as pool:  # forked, to know what is registered here
        proofs = [pool.submit(_proof, card.collective, card.name, sizes) for card in cards]
        with Progress(disable=not sys.stderr.isatty()) as progress:
            bar = progress.add_task("verifying", total=len(cards))
            for proof in proofs:
                proven, words = proof.result()
                failed += not proven
                print(words, flush=True)
                progress.advance(bar)
    print(f"{len(cards) - failed} algorithms proven, {failed} failed, sizes {numbers_text(sizes)}")
    return 1 if failed else 0


def _proof(collective_name: str, name: str, sizes: tuple[int, ...]) -> tuple[bool, str]:
    """Return (whether an algorithm is proven for these sizes, what is said of it)."""
    card = registry.get(collective_name, name)
    try:
        cases = verify_algorithm(card, sizes, _roots)
    except ScheduleError as error:
        return False, f"FAILED {error}"
    return True, f"{card.collective}.{card.name}: {cases} cases proven"


def _roots(size: int) -> list[int]:
    """Return all roots of small sizes, some of large ones."""
    return list(range(size)) if size <= ALL_ROOTS_UP_TO else sorted({0, 1, size // 2, size - 1})
