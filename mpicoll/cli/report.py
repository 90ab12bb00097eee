"""`python -m mpicoll report`: one page of HTML with the plots of a benchmark's files of results.

    mpirun -n 8 python -m mpicoll.bench --algorithm auto,all --json run.json
    python -m mpicoll report run.json -o report.html

Several files are one page: other numbers of ranks, the pairs of ranks (`mpicoll.bench topology --json`), or more
launches of the same command, whose medians are shown. It needs matplotlib (extra `plots`); the page needs nothing.
"""

from __future__ import annotations

import argparse
from pathlib import Path

NAME, HELP = "report", "one page of HTML with the plots of a benchmark's files of results"


def add(parser: argparse.ArgumentParser) -> None:
    """Add its arguments."""
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="written by mpicoll.bench --json")
    parser.add_argument("-o", "--output", type=Path, default=Path("report.html"), help="the page (report.html)")


def run(chosen: argparse.Namespace) -> None:
    """Write the page."""
    from mpicoll.bench.output.results import read
    from mpicoll.report.page import page

    text = page({file.name: read(file) for file in chosen.files})
    chosen.output.write_text(text, encoding="utf-8")
    print(f"written: {chosen.output} ({len(text.encode()) / 1e6:.1f} MB)")
