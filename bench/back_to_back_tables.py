"""Makes Markdown tables from a run of back_to_back.py, and puts them into a page, as table.py does.

    python bench/back_to_back_tables.py back_to_back.json --into docs/performance.md --name back-to-back

With --targets a ratio below its target, which is for 4 ranks, is in italics.
"""

import argparse
from pathlib import Path

from table import K, M, marked, of_size, put, table

from mpicoll.bench.output.results import read

#: up to which size each column of targets goes
LIMITS = (64 * K, 512 * K, 2 * M, 64 * M)
#: least t(NCCL) / t(mpicoll): all synchronised but allreduce, then allreduce synchronised, back to back, in graphs
OTHERS, ALLREDUCE = (1.3, 1.2, 1.1, 1.0), ((1.5, 1.35, 1.15, 1.05), (1.8, 1.4, 1.1, 1.0), (1.2, 1.1, 1.0, 1.0))
MANNERS = ("Synchronised after each call", "Back to back on the stream", "Both in CUDA graphs of many calls")


def target(collective, nbytes, manner):
    """The least ratio that the design asks for, 0 where it asks for nothing."""
    if collective != "allreduce" and manner:
        return 0.0
    targets = ALLREDUCE[manner] if collective == "allreduce" else OTHERS
    return of_size(targets, LIMITS, nbytes)


def cell(row, manner, targets):
    return marked(row["ratios"][manner], target(row["collective"], row["nbytes"], manner) if targets else 0.0)


def tables(rows, targets=False):
    """A table of ratios for each manner, and allreduce's microseconds."""
    sizes, names = sorted({row["nbytes"] for row in rows}), dict.fromkeys(row["collective"] for row in rows)
    found = {(row["collective"], row["nbytes"]): row for row in rows}
    parts = ["t(NCCL) / t(mpicoll)" + ("; italics: below the target." if targets else ".")]
    for manner, title in enumerate(MANNERS):
        lines = [(name, [cell(found[name, n], manner, targets) for n in sizes]) for name in names]
        parts += [f"{title}:", table(sizes, lines)]
    lines = [
        (f"{title.split()[0].lower()}, {label}", [f"{found['allreduce', n][who][manner]:.1f}" for n in sizes])
        for manner, title in enumerate(("synchronised", "back-to-back", "graph"))
        for who, label in (("ours", "ours"), ("nccl", "NCCL"))
    ]
    return "\n\n".join([*parts, "Allreduce in microseconds:", table(sizes, lines)])


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="written by back_to_back.py")
    parser.add_argument("--targets", action="store_true")
    parser.add_argument("--into", type=Path, metavar="PAGE")
    parser.add_argument("--name", default="back-to-back", help="of the markers")
    options = parser.parse_args(arguments)
    text = tables(read(options.run)["rows"], options.targets)
    put(text, options.into, options.name)


if __name__ == "__main__":
    main()
