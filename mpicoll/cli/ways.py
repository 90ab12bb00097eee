"""`python -m mpicoll ways`: three ways to all-reduce side by side, and the sizes at which another one wins.

    ways --ranks 8 --machine dgx_h100 --bytes 8,4K,1M,64M

Times are those of the cost formulas, each way with its best algorithms; `mpicoll.bench allreduce-ways` measures them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from mpicoll.analysis.terms import WORDS
from mpicoll.analysis.ways import Comparison, Crossover, compare, fastest
from mpicoll.cli.machines import NAMES, machine_named
from mpicoll.pictures.units import size_text, time_text
from mpicoll.ranges import message_sizes
from mpicoll.simulate.machine import Machine

#: times as near as this count as equal
TIE = 1.01
NAME, HELP = "ways", "three ways to all-reduce side by side, and where each wins"


def add(parser: argparse.ArgumentParser) -> None:
    """Add its arguments."""
    parser.add_argument("--ranks", type=int, default=8, help="how many (8)")
    parser.add_argument("--bytes", default="8,1K,32K,256K,1M,16M,256M", help="sizes of the vector")
    parser.add_argument("--machine", default="dgx_h100", help=f"{NAMES} (dgx_h100)")
    parser.add_argument("--svg", help="a file for the plot of times over sizes (needs matplotlib)")


def run(chosen: argparse.Namespace) -> None:
    """Print the table and the crossovers."""
    if chosen.ranks < 2:
        raise ValueError("--ranks: an allreduce of one rank needs no way")
    where = machine_named(chosen.machine, chosen.ranks)
    where.of_ranks(chosen.ranks)  # it has so many
    sizes = list(message_sizes(chosen.bytes))
    found = compare(chosen.ranks, sizes, where.model)
    _print_table(found, where)
    if not where.uniform:
        print("The formulas know no topology: these are times inside a host; `simulate` has this machine's links.\n")
    for crossover in found.crossovers:
        print(_sentence(crossover))
    if not found.crossovers:
        print(f"{found.rows[0][fastest(found.rows[0])].name} is the fastest at all these sizes")
    if chosen.svg:
        _draw(found, where, Path(chosen.svg))


def _print_table(found: Comparison, where: Machine) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("bytes", "", "time", box=None, pad_edge=False)
    table.add_column("way", no_wrap=True)
    table.add_column("by")
    table.add_column("what rules", no_wrap=True)
    symbols: dict[str, None] = {}
    for ways in found.rows:
        least = min(way.seconds for way in ways)
        for place, way in enumerate(ways):
            symbol, part = way.ruling
            by = ", ".join(str(leg).partition(" ")[2] for leg in way.legs)
            size, mark = size_text(way.nbytes) if not place else "", "*" if way.seconds <= least * TIE else ""
            symbols[symbol] = None
            table.add_row(size, mark, time_text(way.seconds), way.name, by, f"{symbol} {part:.0%}")
        table.add_section()
    print(f"allreduce on {found.p} ranks of {where.name}: {where.source}; * the fastest\n")
    Console().print(table)
    print("\n" + ", ".join(f"{symbol}: {WORDS[symbol]}" for symbol in symbols if symbol in WORDS) + "\n")


def _sentence(crossover: Crossover) -> str:
    before, after = crossover.below, crossover.above
    saved = {symbol: before.terms[symbol] - after.terms[symbol] for symbol in after.terms}
    symbol = max(saved, key=lambda one: saved[one])
    costs = min(saved, key=lambda one: saved[one])
    why = f"it saves {WORDS.get(symbol, symbol)}"
    if saved[costs] < 0:
        why += f", and costs {WORDS.get(costs, costs)}"
    return f"from {size_text(crossover.nbytes)} on {after.name} is faster than {before.name}: {why}"


def _draw(found: Comparison, where: Machine, file: Path) -> None:
    from mpicoll.cli.curves import curves

    series = {
        found.rows[0][place].name: [(float(ways[0].nbytes), ways[place].seconds) for ways in found.rows]
        for place in range(len(found.rows[0]))
    }
    marks = {f"{one.above.name} from here": float(one.nbytes) for one in found.crossovers}
    curves(series, file, f"three ways to all-reduce, {found.p} ranks, {where.name}", "bytes", marks=marks)
