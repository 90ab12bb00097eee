"""Makes a Markdown table of what the packaged choices come to in a run in which all algorithms were timed.

    python bench/choices_table.py bench/results/2026-11-28-algorithms-4xH200.json --ranks 4

A row of the run is {"collective", "nbytes", "nccl": [us, ...], "ours": {"algorithm@path": [us, ...]}}, the first
number synchronised after each call.  A cell is t(NCCL) / t(the choice of today's table), and the algorithm.
"""

import argparse
from pathlib import Path

from table import marked, table, target

from mpicoll.bench.output.results import read
from mpicoll.dispatch.facts import Facts
from mpicoll.dispatch.machine_facts import MachineFacts
from mpicoll.dispatch.select import select
from mpicoll.dispatch.tuning import asked_for, in_force

PACKAGED = in_force(asked_for("h200"), (), MachineFacts())


def chosen(row, ranks):
    """The packaged choice for a row's call, as the run names it if it is cut as there."""
    facts = Facts(row["collective"], ranks, row["nbytes"], "device", paths=("mapped", "direct", "staged"))
    choice, _ = select(facts, "", "", "", PACKAGED)
    cut = "" if choice.segments == 1 else f"/{choice.segments}"
    return f"{choice.algorithm}{cut}@{choice.path}"


def cell(row, ranks):
    name = chosen(row, ranks)
    if name not in row["ours"]:
        return f"({name})"
    least = target(row["collective"], row["nbytes"], ranks)
    return f"{marked(row['nccl'][0] / row['ours'][name][0], least)} {name.removesuffix('@mapped')}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--ranks", type=int, required=True)
    options = parser.parse_args()
    rows = read(options.run)["rows"]
    cells = {(row["collective"], row["nbytes"]): cell(row, options.ranks) for row in rows}
    names = list(dict.fromkeys(name for name, _ in cells))
    sizes = sorted({nbytes for _, nbytes in cells})
    print(table(sizes, [(name, [cells.get((name, n), "-") for n in sizes]) for name in names]))


if __name__ == "__main__":
    main()
