"""`python -m mpicoll compare`: which cells became faster or slower from one benchmark run to another.

    python -m mpicoll compare old.json new.json
    python -m mpicoll compare old1.json,old2.json,old3.json new1.json,new2.json,new3.json --gate

A side is one or more launches of the same command, in files of `mpicoll.bench --json`; two launches of one program
differ, so three a side, made in turn, tell much more than one. With --gate the exit status is 1 if a cell is slower,
and 3 if there is too much noise to tell.

What a cell must show to be called slower or faster: a rank-sum test on its samples, a change above the threshold, and
one beyond what the other cells, or its own launches, differ in.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mpicoll.compare.cells import Pair
    from mpicoll.compare.verdicts import Verdict

NAME, HELP = "compare", "which cells became faster or slower from one benchmark run to another"
#: exit status of a gate that cannot tell
UNKNOWN = 3
STYLES = {"slower": "red", "faster": "green", "same": ""}
#: a factor of all cells that is said to be one
COMMON = 0.02


def add(parser: argparse.ArgumentParser) -> None:
    """Add its arguments."""
    parser.add_argument("old", help="files of mpicoll.bench --json, with commas between launches")
    parser.add_argument("new", help="the same of the other side")
    parser.add_argument("--gate", action="store_true", help="exit status 1 if a cell is slower, 3 if noise hides it")
    parser.add_argument("--threshold", default="5%", help="least difference that counts, as 5%% or 0.05 (5%%)")
    parser.add_argument(
        "--normalize", action="store_true", help="take out of each launch what all its cells have in common"
    )
    parser.add_argument("--all", action="store_true", help="print the cells that are the same, too")


def run(chosen: argparse.Namespace) -> int:
    """Print what became of the cells, and return the exit status."""
    from mpicoll.bench.output.results import read
    from mpicoll.compare.cells import pairs
    from mpicoll.compare.verdicts import common_factor, normalized, too_noisy, verdicts

    threshold = part(chosen.threshold)
    old, new = ([read(Path(name)) for name in side.split(",")] for side in (chosen.old, chosen.new))
    both, alone = pairs(old, new)
    if not both:
        raise ValueError("no cell has samples in all files")
    factor = common_factor(both)
    found = verdicts(normalized(both) if chosen.normalize else both, threshold)
    print("\n".join(above(old, new, (len(both), alone), (factor, chosen.normalize))))
    _print_table([one for one in found if chosen.all or one.word != "same"])
    print(conclusion(found))
    slower = any(one.word == "slower" for one in found)
    return (1 if slower else UNKNOWN if too_noisy(found) else 0) if chosen.gate else 0


def part(text: str) -> float:
    """Return a part of a whole, from a text such as "5%" or "0.05"."""
    try:
        found = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        found = math.nan
    if not 0 <= found < 10:
        raise ValueError(f"--threshold {text}: a part such as 5% or 0.05")
    return found


def above(
    old: Sequence[dict[str, Any]], new: Sequence[dict[str, Any]], cells: tuple[int, int], factor: tuple[float, bool]
) -> list[str]:
    """Return the lines above the table: what differs in all cells.

    Args:
        old: files of one side.
        new: files of the other one.
        cells: in all files, and in some only.
        factor: new over old of all cells, and whether it is taken out.
    """
    from mpicoll.bench.output.earlier import MACHINE
    from mpicoll.compare.cells import differing

    lines = [f"# {name}: {before or 'none'}, now {now or 'none'}" for name, before, now in differing(old, new, MACHINE)]
    others = f" in all files, {cells[1]} others" if cells[1] else ""
    lines.append(f"# {cells[0]} cells{others}; launches: {len(old)}, now {len(new)}")
    if min(len(old), len(new)) == 1:
        lines.append("# one launch tells little about noise: name more of them, with commas")
    if abs(factor[0] - 1) > COMMON:
        out = "it is taken out" if factor[1] else "--normalize takes it out"
        lines.append(f"# in all cells together the new side takes {factor[0]:.2f} times as long ({out})")
    return lines


def _print_table(found: Sequence[Verdict]) -> None:
    from rich.console import Console
    from rich.table import Table

    if not found:
        return
    names = told([one.pair for one in found])
    table = Table(*names, box=None, pad_edge=False)
    for text in ("old (us)", "new (us)", "change", "seen from", ""):
        table.add_column(text, justify="right")
    for one in sorted(found, key=lambda one: -one.change):
        table.add_row(*names_of(one.pair, names), *figures(one), style=STYLES[one.word])
    Console().print(table)


def told(found: Sequence[Pair]) -> list[str]:
    """Return the names of the fields that are printed: the call, its size, and others in which cells differ."""
    from mpicoll.compare.cells import NAMES

    values = dict(zip(NAMES, zip(*(one.key for one in found), strict=True), strict=True))
    return [name for name in NAMES if name in ("op", "bytes") or (len(set(values[name])) > 1 and name != "count")]


def names_of(one: Pair, names: Sequence[str]) -> list[str]:
    """Return a cell's fields as texts."""
    from mpicoll.compare.cells import NAMES

    values = dict(zip(NAMES, one.key, strict=True))
    return ["-" if values[name] is None else str(values[name]) for name in names]


def figures(one: Verdict) -> tuple[str, ...]:
    """Return the figures of a cell as texts: both medians, its change, the change that can be seen, the verdict."""
    from mpicoll.compare.cells import middle

    times = (f"{middle(side):.2f}" for side in (one.pair.old, one.pair.new))
    return (*times, f"{percent(one.change):+.1f} %", f"{percent(one.limit):.0f} %", one.word)


def percent(change: float) -> float:
    """Return by how many percent a time is longer, from the logarithm of new over old."""
    return 100 * math.expm1(min(change, 50.0))


def conclusion(found: Sequence[Verdict]) -> str:
    """Return the last line: how many cells changed, and what could have been seen."""
    from mpicoll.compare.verdicts import too_noisy

    counts = {word: sum(one.word == word for one in found) for word in ("slower", "faster", "same")}
    middle = sorted(one.limit for one in found)[len(found) // 2]
    said = f"# {counts['slower']} slower, {counts['faster']} faster, {counts['same']} the same"
    seen = f"half of the cells would show a change of {percent(middle):.0f} %"
    if too_noisy(found):
        return f"# too noisy to tell anything: {seen}; take more launches a side, in turn, on a machine with less to do"
    return f"{said}; {seen}"
