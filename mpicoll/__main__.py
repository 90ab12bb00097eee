"""`python -m mpicoll list | show | verify | info | warm | trace`."""

from __future__ import annotations

import argparse
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from mpicoll import __version__
from mpicoll.algorithms import registry
from mpicoll.algorithms.card import Algorithm
from mpicoll.algorithms.families import FAMILIES, cells
from mpicoll.analysis.draw import draw
from mpicoll.analysis.registration import verify_algorithm
from mpicoll.errors import ScheduleError
from mpicoll.schedule.collectives import COLLECTIVES, collective

#: sizes of the complete verification, and from which size on roots are sampled
VERIFIED_SIZES = (*range(1, 18), 32, 64)
ALL_ROOTS_UP_TO = 17


def main(arguments: list[str] | None = None) -> int:
    """Run a sub-command and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m mpicoll", description=__doc__)
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True)
    listing = commands.add_parser("list", help="all algorithms, by family and with what they need and cost")
    listing.add_argument("collective", nargs="?")
    listing.set_defaults(run=_list)
    show = commands.add_parser("show", help="an algorithm's card, steps and picture")
    show.add_argument("collective")
    show.add_argument("algorithm")
    show.add_argument("--size", type=int, default=4)
    show.add_argument("--root", type=int, default=0)
    show.set_defaults(run=_show)
    check = commands.add_parser("verify", help="prove algorithms for many sizes and roots")
    check.add_argument("collective", nargs="?")
    check.add_argument("algorithm", nargs="?")
    check.add_argument("--sizes", default="", help="such as 1-17,32,64")
    check.set_defaults(run=_verify)
    commands.add_parser("info", help="what was found on this machine, and why").set_defaults(run=_info)
    warm = commands.add_parser("warm", help="compile all calls' kernels, under mpirun, for later jobs")
    warm.add_argument("--dtype", default="float32", help="of reductions, such as float32,bfloat16 (float32)")
    warm.add_argument("--redop", default="sum", help="operators, such as sum,max (sum)")
    warm.add_argument("--max", default="256M", help="bytes of the longest message (256M)")
    warm.set_defaults(run=_warm)
    _add_trace(commands.add_parser("trace", help="one trace of all ranks' files, which MPICOLL_TRACE=FILE makes"))
    chosen = parser.parse_args(arguments)
    try:
        return int(chosen.run(chosen) or 0)
    except (ValueError, NotImplementedError) as error:
        print(f"mpicoll: {error}", file=sys.stderr)
        return 2


def _add_trace(trace: argparse.ArgumentParser) -> None:
    trace.add_argument("files", nargs="+", help="such as run.0.json run.1.json")
    trace.add_argument("-o", "--output", default="trace.json", help="the file that is written (trace.json)")
    trace.set_defaults(run=_trace)


def _list(chosen: argparse.Namespace) -> None:
    from rich.console import Console
    from rich.table import Table

    families = Table("collective", *FAMILIES, "others", box=None, pad_edge=False)
    table = Table("collective", "algorithm", "needs", "cost", "proven", box=None, pad_edge=False)
    for name in [collective(chosen.collective).name] if chosen.collective else COLLECTIVES:
        families.add_row(name, *cells(name))
        for card in registry.known(name):
            table.add_row(name, card.name, "; ".join(card.restrictions()) or "-", card.cost, card.proof)
    Console(width=None if sys.stdout.isatty() else 200).print(families, "", table)


def _show(chosen: argparse.Namespace) -> None:
    card = registry.require(chosen.collective, chosen.algorithm, chosen.size)
    print(describe(card))
    schedules = card.schedules(chosen.size, chosen.root)
    root = f", root {chosen.root}" if card.row.rooted else ""
    print(f"\nOn {chosen.size} ranks{root}:\n")
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


def _verify(chosen: argparse.Namespace) -> int:
    from rich.progress import Progress

    sizes = _sizes(chosen.sizes) if chosen.sizes else VERIFIED_SIZES
    names = [collective(chosen.collective).name] if chosen.collective else list(COLLECTIVES)
    cards = [c for name in names for c in registry.known(name)]
    if chosen.algorithm:
        cards = [registry.get(chosen.collective, chosen.algorithm)]
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
    print(f"{len(cards) - failed} algorithms proven, {failed} failed, sizes {_span(sizes)}")
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


def _sizes(text: str) -> tuple[int, ...]:
    sizes: list[int] = []
    for part in text.split(","):
        low, _, high = part.partition("-")
        sizes += range(int(low), int(high or low) + 1)
    return tuple(sizes)


def _span(sizes: tuple[int, ...]) -> str:
    runs: list[str] = []
    first = last = None
    for size in (*sizes, None):
        if last is not None and size == last + 1:
            last = size
            continue
        if first is not None:
            runs.append(str(first) if first == last else f"{first}-{last}")
        first = last = size
    return ",".join(runs)


def _info(chosen: argparse.Namespace) -> None:
    from mpicoll.info import show

    show()


def _warm(chosen: argparse.Namespace) -> int:
    from mpicoll.bench.request import reading
    from mpicoll.bench.warm import run

    return run(reading.dtypes(chosen.dtype), reading.redops(chosen.redop), reading.size(chosen.max))


def _trace(chosen: argparse.Namespace) -> None:
    from mpicoll.recorder.merge import merge

    calls, ranks = merge(chosen.files, chosen.output)
    print(f"{chosen.output}: {calls} calls of {ranks} ranks; open it at https://ui.perfetto.dev")


if __name__ == "__main__":
    sys.exit(main())
