"""`python -m mpicoll warm`: compiles all calls' kernels, for later jobs."""

from __future__ import annotations

import argparse

NAME, HELP = "warm", "compile all calls' kernels, under mpirun, for later jobs"


def add(parser: argparse.ArgumentParser) -> None:
    """Add its arguments."""
    parser.add_argument("--dtype", default="float32", help="of reductions, such as float32,bfloat16 (float32)")
    parser.add_argument("--redop", default="sum", help="operators, such as sum,max (sum)")
    parser.add_argument("--max", default="256M", help="bytes of the longest message (256M)")


def run(chosen: argparse.Namespace) -> int:
    """Make the calls."""
    from mpicoll.bench.request import reading
    from mpicoll.bench.warm import run as warm

    return warm(reading.dtypes(chosen.dtype), reading.redops(chosen.redop), reading.size(chosen.max))
