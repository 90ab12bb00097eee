"""A puzzle from its command line to its exit status."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from os.path import lexists

from mpi4py import MPI

from mpicoll.bench.errors import RequestError, ShortageError, anywhere
from mpicoll.bench.output import environment
from mpicoll.bench.output.report import Report
from mpicoll.bench.puzzles import bandwidth, topology, ways
from mpicoll.bench.puzzles.options import PuzzleOptions, parse
from mpicoll.bench.run import begin_file, conduct, ended, prepared
from mpicoll.bench.tables.bench import Bench

#: by name: what measures each
MEASURES: dict[str, Callable[[Bench, PuzzleOptions], None]] = {
    "topology": topology.measure,
    "allreduce-ways": ways.measure,
    "bandwidth": bandwidth.measure,
}


def run(arguments: list[str]) -> int:
    """Do what the command line asks for, and return the exit status; collective over all ranks.

    Args:
        arguments: the command line without the program's name, the puzzle's name first; rank 0's counts.

    Returns:
        0 if every element is right, 1 if any is wrong, 2 if the request cannot be served.
    """
    arguments = MPI.COMM_WORLD.bcast(arguments, root=0)
    asked = parse(arguments, loud=MPI.COMM_WORLD.rank == 0)
    return conduct(asked.how, partial(_run, arguments, asked))


def _run(arguments: list[str], asked: PuzzleOptions, world: MPI.Intracomm, report: Report) -> int:
    refused = anywhere(world, refusal(asked, world.size) or ("" if world.rank else unwritable(asked)))
    if refused:
        raise RequestError(refused)
    bench = prepared(arguments, asked.how, world, report)
    begin_file(report, asked.how, world)
    report.begin(environment.lines(report.header))
    try:
        MEASURES[asked.name](bench, asked)
    except ShortageError as error:
        raise RequestError(f"{asked.name}: {error}; ask for less with --bytes") from None
    return ended(report, world)


def refusal(asked: PuzzleOptions, size: int) -> str:
    """Return why so many ranks cannot serve a command line on this machine; "" if they can."""
    if size == 1:
        return f"{asked.name}: one rank has no other; start it with mpirun -n 2 or more"
    if asked.ranks and asked.ranks[-1] > size:
        return f"--ranks {asked.ranks[-1]}: there are {size} ranks"
    if asked.plot and not find_spec("matplotlib"):
        return "--plot needs matplotlib: pip install 'mpicoll[plots]'"
    return ""


def unwritable(asked: PuzzleOptions) -> str:
    """Return why a file of the puzzle cannot be written; "" if each can, of which nothing is left by the trial."""
    for option, file in (("--trace", asked.trace), ("--plot", asked.plot)):
        try:
            if file and lexists(file):
                file.open("ab").close()
            elif file:
                file.touch()
                file.unlink()
        except OSError as error:
            return f"{option} {file}: {error.strerror}"
    return ""
