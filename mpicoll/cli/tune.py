"""`python -m mpicoll tune`: measures the machine, and writes which algorithm is chosen on it.

    mpirun -n 8 python -m mpicoll tune                       # all collectives on 8 ranks, in 5 minutes
    mpirun -n 8 python -m mpicoll tune --ranks 2,4,8 --budget 15m
    mpirun -n 8 python -m mpicoll tune --native              # MPI's own collectives race, too, and may be chosen

The table goes to the user's folder of configuration, where every later job on the same machine finds it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

NAME, HELP = "tune", "measure the machine, under mpirun, and write its tuning table"


def add(parser: argparse.ArgumentParser) -> None:
    """Add its arguments."""
    parser.add_argument("--op", default="default", help="calls, such as allreduce,bcast (one for each collective)")
    parser.add_argument("--ranks", default="", help="numbers of ranks, such as 2,4,8 or 2-8 (all)")
    parser.add_argument("--budget", default="5m", help="time for all of it, such as 90, 90s or 5m (5m)")
    parser.add_argument("--max", default="0", help="bytes of the longest message (4M; CuPy 256M)")
    parser.add_argument("--buffers", choices=("numpy", "cupy", "auto"), default="auto", help="arrays (auto)")
    parser.add_argument("--native", action="store_true", help="let MPI's own collectives race, too, and be chosen")
    parser.add_argument("--json", type=Path, help="file for all times, with their intervals")
    parser.add_argument("--write", type=Path, help="file for the table, instead of the user's folder")


def run(chosen: argparse.Namespace) -> int:
    """Tune."""
    from mpicoll.bench.request import reading
    from mpicoll.tuning.run import TunerOptions
    from mpicoll.tuning.run import run as tune

    ranks = reading.ranks(chosen.ranks) if chosen.ranks else ()
    calls, seconds, longest = reading.calls(chosen.op), reading.seconds(chosen.budget), reading.size(chosen.max)
    rest = chosen.write, chosen.buffers, chosen.json, chosen.native
    return tune(TunerOptions(calls, ranks, seconds, longest, *rest))
