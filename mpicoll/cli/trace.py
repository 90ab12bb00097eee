"""`python -m mpicoll trace`: one trace of all ranks' files."""

from __future__ import annotations

import argparse

from mpicoll.recorder.merge import merge

NAME, HELP = "trace", "one trace of all ranks' files, which MPICOLL_TRACE=FILE makes"


def add(parser: argparse.ArgumentParser) -> None:
    """Add its arguments."""
    parser.add_argument("files", nargs="+", help="such as run.0.json run.1.json")
    parser.add_argument("-o", "--output", default="trace.json", help="the file that is written (trace.json)")


def run(chosen: argparse.Namespace) -> None:
    """Write the file."""
    calls, ranks = merge(chosen.files, chosen.output)
    print(f"{chosen.output}: {calls} calls of {ranks} ranks; open it at https://ui.perfetto.dev")
