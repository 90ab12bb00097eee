"""`mpirun -n N python -m mpicoll warm`: each kind of call made once, so that later jobs find their kernels compiled.

On the path mapped a call is a kernel of its collective, algorithm, operator and dtype, which takes some 200 ms to
compile.  CuPy keeps what it has compiled in a folder (`CUPY_CACHE_DIR`, else `~/.cupy/kernel_cache`), by the kernel's
text and the kind of GPU.  So a job on as many ranks, with the same settings, loads it from there.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from functools import partial

from mpi4py import MPI
from rich.progress import Progress

from mpicoll.bench.contestants.contestant import Mpicoll
from mpicoll.bench.errors import RequestError, ShortageError
from mpicoll.bench.measure.arrays import Arrays
from mpicoll.bench.measure.backends import Backend, choose, in_memory
from mpicoll.bench.request.cases import CALLS, Case, make_case
from mpicoll.communicator import Communicator
from mpicoll.errors import UnsupportedError
from mpicoll.ranges import growing

#: bytes of the shortest message, and the factor from one to the next: choices change at powers of two
SMALLEST, FACTOR = 8, 2


def cases(dtypes: tuple[str, ...], redops: tuple[str, ...], largest: int, size: int) -> Iterator[tuple[Case, bool]]:
    """Yield each kind of call, on each size, and whether it is in place; one dtype is enough where nothing is combined.

    Args:
        dtypes: names of the reductions' dtypes.
        redops: names of operators.
        largest: message size in bytes at most.
        size: number of ranks.
    """
    for call in (call for call in CALLS.values() if call.method != "Barrier"):  # which is the host's
        kinds = [(dtype, op) for dtype in dtypes for op in redops] if call.row.reducing else [(dtypes[0], "")]
        for dtype, op in kinds:
            for nbytes in growing(SMALLEST, largest, FACTOR):
                for in_place in call.forms:
                    yield make_case(call, nbytes, dtype, size, op, 0), in_place


def warm(comm: Communicator, backend: Backend, todo: list[tuple[Case, bool]], quiet: bool) -> int:
    """Make calls, each once; return how many could be made. Collective.

    Args:
        comm: the communicator.
        backend: where the arrays live.
        todo: cases, and whether each is in place.
        quiet: show no progress.
    """
    world, made = MPI.Intracomm(comm), 0
    with Progress(disable=quiet) as progress:
        bar = progress.add_task("calls", total=len(todo))
        for case, in_place in todo:
            progress.advance(bar)
            try:
                arrays = in_memory(world, partial(Arrays, case, in_place, comm.rank, backend))
                Mpicoll(comm).bind(arrays, None)()
            except (ShortageError, UnsupportedError):
                continue
            backend.synchronize()
            made += 1
    return made


def run(dtypes: tuple[str, ...], redops: tuple[str, ...], largest: int) -> int:
    """Make all kinds of calls on all ranks, and say how long it took; return the exit status. Starts MPI."""
    world, begin = MPI.COMM_WORLD, time.perf_counter()
    try:
        backend = choose("cupy", world)
    except RequestError as error:
        if world.rank == 0:
            print(f"mpicoll warm: {error}: there is nothing to compile", file=sys.stderr)
        return 2
    todo = list(cases(dtypes, redops, largest, world.size))
    comm = Communicator(world)
    made = warm(comm, backend, todo, quiet=world.rank > 0 or not sys.stderr.isatty())
    if world.rank == 0:
        print(f"{made} of {len(todo)} kinds of calls made on {world.size} ranks in {time.perf_counter() - begin:.1f} s")
        print(f"kernels are kept in {os.environ.get('CUPY_CACHE_DIR', '~/.cupy/kernel_cache')}")
    return 0
