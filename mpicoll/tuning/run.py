"""A run of the tuner from its command line to its table on disk."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from itertools import product, repeat
from pathlib import Path

from mpi4py import MPI
from rich.console import Console
from rich.progress import Progress
from rich.table import Table as Grid

from mpicoll.bench.errors import anywhere
from mpicoll.bench.measure.backends import Backend, choose
from mpicoll.bench.measure.clock import Clock, rest
from mpicoll.bench.measure.visits import VISITS
from mpicoll.bench.output import environment
from mpicoll.bench.output.results import Results
from mpicoll.bench.tables.bench import crowded
from mpicoll.communicator import Communicator
from mpicoll.dispatch.machine_facts import common
from mpicoll.dispatch.table import Table
from mpicoll.errors import MismatchError
from mpicoll.runtime.context.contexts import context_of
from mpicoll.settings import format_bytes
from mpicoll.tuning.contenders import LONGEST
from mpicoll.tuning.file import place, refusal, write
from mpicoll.tuning.tuner import Tell, Tuner
from mpicoll.version import __version__
from mpicoll.versions import mpi_library


@dataclass(frozen=True)
class TunerOptions:
    """The command line, read.

    Attributes:
        calls: names of methods, in lower case.
        ranks: numbers of ranks; empty: all.
        seconds: that it may take.
        longest: bytes of the longest message; 0: what the memory suggests.
        file: for the table; None: the user's folder.
        buffers: "numpy", "cupy" or "auto".
        json: file for all times, with their intervals; None: none.
        native: MPI's own collectives race, too.
    """

    calls: tuple[str, ...]
    ranks: tuple[int, ...]
    seconds: float
    longest: int
    file: Path | None
    buffers: str
    json: Path | None = None
    native: bool = False


#: returns what is told of a number of ranks
Shown = Callable[[int], Tell]


def run(asked: TunerOptions) -> int:
    """Measure, write the table, and say where it is; return the exit status. Collective over all ranks."""
    world = MPI.COMM_WORLD
    try:
        _check(asked, world)
        backend = choose(asked.buffers, world)
        asked = replace(asked, longest=asked.longest or LONGEST[backend.memory])
        results = _begun(asked, world, backend)
    except (ValueError, MismatchError) as error:
        if world.rank == 0:
            print(f"mpicoll tune: {error}", file=sys.stderr)
        return 2
    status = _tuned(asked, world, backend, results)
    results.end(verdict="measured")
    return status


def _check(asked: TunerOptions, world: MPI.Intracomm) -> None:
    """Raise ValueError on all ranks for what cannot be done, before anything is measured; collective."""
    if world.size == 1:
        raise ValueError("one rank has nothing to choose; start it with mpirun -n 2 or more")
    wrong = [number for number in asked.ranks if not 2 <= number <= world.size]
    if wrong:
        raise ValueError(f"--ranks {wrong[0]}: there are {world.size} ranks, and 1 has nothing to choose")
    context_of(world)  # finds mistakes in the tables that are there
    why = world.bcast(refusal(asked.file) if world.rank == 0 else "", root=0)
    if why:
        raise ValueError(why)


def _begun(asked: TunerOptions, world: MPI.Intracomm, backend: Backend) -> Results:
    """Return rank 0's file of results with its header; raise ValueError on all ranks where it cannot be written."""
    header = environment.collect(sys.argv[1:], world, Communicator(world), backend, program="mpicoll")
    results, why = Results(asked.json if world.rank == 0 else None, "mpicoll tune"), ""
    try:
        results.begin(mode="tune", facts=header, options={"budget": asked.seconds, "ranks": asked.ranks})
    except OSError as error:
        why = f"--json {asked.json}: {error.strerror}"
    why = anywhere(world, why)
    if why:
        raise ValueError(why)
    return results


def _tuned(asked: TunerOptions, world: MPI.Intracomm, backend: Backend, results: Results) -> int:
    begin, asked = time.monotonic(), replace(asked, ranks=asked.ranks or (world.size,))
    with _shown(world.rank) as shown:
        made = [_tuner(asked, world, number, backend, shown) for number in asked.ranks]
        tuners = [tuner for tuner in made if tuner]
        _visit_all(asked, world, made)
    for tuner in tuners:
        for row in tuner.records():
            results.add("row", mode="tune", **row)
        tuner.comm.Free()
    if world.rank == 0:
        return _written(asked, [tuner.table for tuner in tuners], world.size, time.monotonic() - begin)
    return 0


def _visit_all(asked: TunerOptions, world: MPI.Intracomm, tuners: list[Tuner | None]) -> None:
    """Let each number of ranks have a visit, then each its next one, while the other ranks sleep; collective."""
    visits = [tuner.visits(asked.calls, asked.longest) if tuner else repeat(None) for tuner in tuners]
    for _, one in product(range(VISITS), visits):
        next(one)
        rest(world)


def _tuner(asked: TunerOptions, world: MPI.Intracomm, number: int, backend: Backend, shown: Shown) -> Tuner | None:
    """Return the tuner of the first so many ranks, None on the others; collective over all.

    Args:
        asked: the request.
        world: all ranks.
        number: of ranks that it tunes.
        backend: where arrays live.
        shown: shows progress.
    """
    part = MPI.Intracomm(world.Split(0 if world.rank < number else MPI.UNDEFINED))
    if part == MPI.COMM_NULL:
        return None
    clock = Clock(part, crowded(part), backend.synchronize)
    seconds = asked.seconds / len(asked.ranks)
    return Tuner(Communicator(part), backend, clock, seconds, shown(number), native=asked.native)


@contextmanager
def _shown(rank: int) -> Iterator[Shown]:
    """Return what shows the progress of a number of ranks on rank 0: a bar, or a line for each tenth."""
    if rank > 0:
        yield lambda number: lambda part, what: None
    elif sys.stderr.isatty():
        with Progress(console=Console(stderr=True)) as progress:
            yield partial(_bar, progress)
    else:  # mpirun passes on what ranks print, line by line
        yield lambda number: _Lines(f"{number} ranks")


def _bar(progress: Progress, number: int) -> Tell:
    bar = progress.add_task(f"{number} ranks", total=1.0)
    return lambda part, what: progress.update(bar, completed=part, description=f"{number} ranks {what}")


class _Lines:
    """Prints a line for each tenth of what there is to do."""

    def __init__(self, title: str) -> None:
        self.title, self.tenths = title, 0

    def __call__(self, part: float, what: str) -> None:
        if int(10 * part) > self.tenths:
            self.tenths = int(10 * part)
            print(f"mpicoll tune: {self.title}, {10 * self.tenths} % {what}".rstrip(), file=sys.stderr, flush=True)


def _written(asked: TunerOptions, found: list[Table], size: int, seconds: float) -> int:
    """Write what was found, and print it; return the exit status."""
    if asked.file:  # one file has one machine, even if some numbers of ranks are on fewer hosts
        found = [replace(table, machine=common([one.machine for one in found])) for table in found]
    head = [
        f"mpicoll {__version__} tune, {date.today().isoformat()}, {mpi_library()}",
        f"mpirun -n {size}, {sum(len(table.timings) for table in found)} sizes measured in {seconds:.0f} s",
    ]
    for table in found:
        _print(table)
    files = {asked.file or place(table.machine): None for table in found}
    try:
        for table in found:
            write(table, asked.file or place(table.machine), head)
    except (OSError, ValueError) as error:
        print(f"mpicoll tune: {error}", file=sys.stderr)
        return 2
    rules = sum(len(table.rules) for table in found)
    print(f"\n{rules} rules written to {', '.join(map(str, files))} after {seconds:.0f} s", end="")
    print(
        "; `python -m mpicoll info` says which table is in force"
        if not asked.file
        else f"; MPICOLL_TUNING={asked.file}"
    )
    return 0


def _print(table: Table) -> None:
    """Print what is chosen from which message size on."""
    sizes = {timing.size for timing in table.timings}
    grid = Grid(f"{max(sizes, default=0)} ranks", "from", box=None, pad_edge=False)
    grid.add_column("choice", no_wrap=True)
    before = ""
    for rule in table.rules:
        grid.add_row("" if rule.collective == before else rule.collective, format_bytes(rule.low), str(rule.choice))
        before = rule.collective
    Console(width=None if sys.stdout.isatty() else 100).print(grid)
