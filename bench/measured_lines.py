"""Prints the `measured:` lines of a tuning table for a run in which all algorithms were timed.

    python bench/measured_lines.py bench/results/2026-11-28-algorithms-4xH200.json --ranks 4 --gpus 4

The run is one of `bench/sweep_algorithms.py --once`; its synchronised times are taken.
"""

import argparse
from pathlib import Path

from mpicoll.bench.output.results import read
from mpicoll.dispatch.machine_facts import MachineFacts
from mpicoll.dispatch.measured import Timing
from mpicoll.dispatch.rules import parse_choice
from mpicoll.dispatch.table import Table


def timing(row, ranks, gpus):
    times = {parse_choice(name): found[0] * 1e-6 for name, found in row["ours"].items()}
    return Timing(row["collective"], row["nbytes"], ranks, "device", gpus, times)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--gpus", type=int, required=True)
    options = parser.parse_args()
    timings = tuple(timing(row, options.ranks, options.gpus) for row in read(options.run)["rows"])
    print(Table("", MachineFacts(), (), {}, timings).text(), end="")


if __name__ == "__main__":
    main()
