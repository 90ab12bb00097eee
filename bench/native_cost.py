"""The cost of a call by `native`, in pairs with the same call of mpi4py: `mpirun -n 2 python bench/native_cost.py`.

For each method and message size, blocks of calls on `mpicoll.Communicator` and on a duplicate of the world take turns,
in random order. A block's time is that of the slowest rank. Printed are the medians of both and of the pairs'
differences, in microseconds.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Callable

import mpicoll  # before MPI starts: it puts a UCX that knows CUDA under the MPI

import numpy as np  # isort: skip
from mpi4py import MPI  # isort: skip

WORLD = MPI.COMM_WORLD
SIZES = (8, 1 << 10, 1 << 16, 1 << 20, 1 << 24)
#: pairs of blocks, and seconds of a block
PAIRS, BLOCK = 40, 0.01
#: what exchanging the world may cost: microseconds, or a part of the time
MOST, PART = 5.0, 0.1


def calls(comm: MPI.Intracomm, nbytes: int) -> dict[str, Callable[[], object]]:
    """Return calls of a message size, by method."""
    p = WORLD.size
    x, y = (np.ones(max(nbytes // 4 // p, 1) * p, "f4") for _ in range(2))
    own = np.ones(x.size // p, "f4")
    return {
        "Allreduce": lambda: comm.Allreduce(x, y),
        "Bcast": lambda: comm.Bcast(x),
        "Allgather": lambda: comm.Allgather(own, y),
        "Reduce_scatter_block": lambda: comm.Reduce_scatter_block(x, own),
        "Alltoall": lambda: comm.Alltoall(x, y),
        "Reduce": lambda: comm.Reduce(x, y),
        "Gather": lambda: comm.Gather(own, y),
    }


def seconds(call: Callable[[], object], number: int) -> float:
    """Return the time of a call on the slowest rank, of so many."""
    WORLD.Barrier()
    start = time.perf_counter()
    for _ in range(number):
        call()
    return float(WORLD.allreduce((time.perf_counter() - start) / number, MPI.MAX))


def compare(ours: Callable[[], object], theirs: Callable[[], object]) -> tuple[float, float, float]:
    """Return (median of ours, of theirs, of the differences), in seconds."""
    for _ in range(10):
        ours()
        theirs()
    number = WORLD.bcast(max(int(BLOCK / seconds(theirs, 3)), 1))
    found, order = [], random.Random(number)
    for _ in range(PAIRS):
        pair = [(0, ours), (1, theirs)]
        order.shuffle(pair)
        times = {k: seconds(call, number) for k, call in pair}
        found.append((times[0], times[1], times[0] - times[1]))
    return tuple(map(statistics.median, zip(*found, strict=True)))  # type: ignore[return-value]


def main() -> None:
    """Measure, and print a row for each cell."""
    mpicoll.settings.native = True
    own, plain = mpicoll.Communicator(WORLD), MPI.Intracomm(WORLD).Dup()
    cells = [(nbytes, calls(own, nbytes), calls(plain, nbytes)) for nbytes in SIZES]
    rows = [(name, nbytes, ours[name], theirs[name]) for nbytes, ours, theirs in cells for name in ours]
    rows.append(("Barrier", 0, own.Barrier, plain.Barrier))
    if WORLD.rank == 0:
        print(f"# {MPI.Get_library_version().splitlines()[0]}, {WORLD.size} ranks")
        print(f"# {'call':<20}{'bytes':>10}{'native':>12}{'mpi4py':>12}{'more':>10} us; * beyond {MOST:g} us and 10 %")
    over = 0
    for name, nbytes, ours, theirs in rows:
        mine, other, more = (1e6 * value for value in compare(ours, theirs))
        beyond = more > max(MOST, PART * other)
        over += beyond
        if WORLD.rank == 0:
            print(f"{name:<22}{nbytes:>10}{mine:>12.2f}{other:>12.2f}{more:>10.2f} {'*' if beyond else ''}", flush=True)
    if WORLD.rank == 0:
        print(f"# {over} of {len(rows)} beyond")


if __name__ == "__main__":
    sys.exit(main())
