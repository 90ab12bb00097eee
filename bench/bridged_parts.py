"""Campaign: an allreduce of device arrays on two hosts by the path bridged, beside its parts alone.

    MPICOLL_TOPOLOGY=hosts=2 mpirun -n 4 python bench/bridged_parts.py

Each rank has a GPU.  The parts are a reduce-scatter and an allgather inside each host, and an allreduce between hosts
by messages.  Medians of synchronised calls of the slowest rank, in blocks that take turns.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import mpicoll  # before MPI starts: it puts a UCX that knows CUDA under the MPI

# isort: split
import cupy
from mpi4py import MPI

SIZES = (1 << 16, 1 << 20, 1 << 24, 1 << 27)
#: blocks of each call, and calls in one
BLOCKS, CALLS = 3, 15

WORLD = MPI.COMM_WORLD
cupy.cuda.Device(WORLD.rank % cupy.cuda.runtime.getDeviceCount()).use()
COMM = mpicoll.Communicator(WORLD)


def block(call: Callable[[], None]) -> list[float]:
    """Return the microseconds of calls on the slowest rank."""
    found = []
    for number in range(CALLS + 5):
        WORLD.Barrier()
        begin = time.perf_counter()
        call()
        cupy.cuda.get_current_stream().synchronize()
        seconds = WORLD.allreduce(time.perf_counter() - begin, MPI.MAX)
        found += [seconds * 1e6] if number >= 5 else []
    return found


def main() -> None:
    """Print a line for each size."""
    host_of = COMM._get_context().topology.host_of
    host = host_of[WORLD.rank]
    inside = mpicoll.Communicator(WORLD.Split(host, WORLD.rank))
    between = mpicoll.Communicator(WORLD.Split(inside.rank, WORLD.rank))
    for nbytes in SIZES:
        x, y = (cupy.ones(nbytes // 4, "f4") for _ in range(2))
        part, total = (cupy.ones(x.size // inside.size, "f4") for _ in range(2))
        calls = {
            "striped@bridged": lambda x=x, y=y: COMM.Allreduce(x, y, algorithm="striped@bridged"),
            "reduce-scatter": lambda x=x, part=part: inside.Reduce_scatter_block(x, part),
            "between hosts": lambda part=part, total=total: between.Allreduce(
                part, total, algorithm="recursive_doubling@direct"
            ),
            "allgather": lambda y=y, total=total: inside.Allgather(total, y),
            "ring@direct": lambda x=x, y=y: COMM.Allreduce(x, y, algorithm="ring@direct"),
        }
        times: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(BLOCKS):
            for name, call in calls.items():
                times[name] += block(call)
        calls["striped@bridged"]()
        assert (y == WORLD.size).all()
        us = {name: statistics.median(found) for name, found in times.items()}
        parts = us["reduce-scatter"] + us["between hosts"] + us["allgather"]
        if WORLD.rank == 0:
            said = ", ".join(f"{name} {one:.1f}" for name, one in us.items())
            print(f"{nbytes >> 10:7} KiB, us: {said}; whole / parts {us['striped@bridged'] / parts:.3f}", flush=True)


if __name__ == "__main__":
    main()
