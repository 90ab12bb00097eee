"""Two versions of mpicoll in one job, each on the same two GPUs (or on the host), in blocks that take turns.

    git worktree add ../before b95d9bd
    mpirun -n 2 env PYTHONPATH=$PWD SIDE=after python bench/before_after.py \\
         : -n 2 env PYTHONPATH=$PWD/../before SIDE=before python bench/before_after.py

prints for each case the medians in µs of a synchronised call, the median of the paired ratios after / before,
and its 95 % interval (bootstrap over the blocks).  "WORSE" is a ratio above 1.03 whose interval lies above 1.
With CuPy each rank takes the GPU of its number on its side; without it, arrays are NumPy's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

import mpicoll  # before MPI starts: it puts a UCX that knows CUDA under the MPI

# isort: split
import numpy as np
from mpi4py import MPI

try:
    import cupy as xp
except ImportError:
    xp = np

SIDE = os.environ["SIDE"]
SIDES = ("before", "after")
#: seconds for each case
SECONDS = float(os.environ.get("SECONDS_EACH", "4.5"))
#: arrays that are used in turn
MANY = 500

world = MPI.COMM_WORLD
side = world.Split(SIDES.index(SIDE), world.rank)
if xp is not np:
    xp.cuda.Device(side.rank % xp.cuda.runtime.getDeviceCount()).use()
comm = mpicoll.Communicator(side)


def synchronize() -> None:
    if xp is not np:
        xp.cuda.get_current_stream().synchronize()


def zeros(nbytes: int) -> np.ndarray:
    return xp.zeros(max(nbytes // 4, 1), "f4")


def same(nbytes: int) -> Callable[[], object]:
    x, y = zeros(nbytes), zeros(nbytes)
    return lambda: comm.Allreduce(x, y)


def views(nbytes: int) -> Callable[[], object]:
    x, y = zeros(nbytes), zeros(nbytes)
    return lambda: comm.Allreduce(x[:], y[:])


def in_turn(nbytes: int) -> Callable[[], object]:
    arrays = [zeros(nbytes) for _ in range(MANY)]
    turns = iter(range(1 << 62))
    return lambda: comm.Allreduce(MPI.IN_PLACE, arrays[next(turns) % MANY])


def nonblocking(nbytes: int) -> Callable[[], object]:
    x, y = zeros(nbytes), zeros(nbytes)
    return lambda: comm.Iallreduce(x, y).Wait()


def persistent(nbytes: int) -> Callable[[], object]:
    x, y = zeros(nbytes), zeros(nbytes)
    request = comm.Allreduce_init(x, y)

    def call() -> None:
        request.Start()
        request.Wait()

    return call


def bcast(nbytes: int) -> Callable[[], object]:
    x = zeros(nbytes)
    return lambda: comm.Bcast(x)


def alltoall(nbytes: int) -> Callable[[], object]:
    x, y = zeros(nbytes), zeros(nbytes)
    return lambda: comm.Alltoall(x, y)


def on_direct(make: Callable[[int], Callable[[], object]], nbytes: int) -> Callable[[], object]:
    """The path is set anew at each call, so that each is planned anew."""
    call = make(nbytes)

    def planned() -> None:
        with mpicoll.override(path="direct"):
            call()

    return planned


def cases() -> Iterator[tuple[str, Callable[[], object]]]:
    for nbytes, text in ((8, "8 B"), (16 << 10, "16 KiB"), (1 << 20, "1 MiB"), (64 << 20, "64 MiB")):
        yield f"allreduce {text}, same arrays", same(nbytes)
        yield f"iallreduce + Wait {text}", nonblocking(nbytes)
        if nbytes <= 1 << 20:
            yield f"allreduce {text}, fresh views", views(nbytes)
            yield f"persistent allreduce {text}", persistent(nbytes)
        if nbytes <= 16 << 10:
            yield f"allreduce {text}, {MANY} arrays in turn", in_turn(nbytes)
    yield "bcast 8 B", bcast(8)
    yield "alltoall 1 MiB", alltoall(1 << 20)
    yield "allreduce 16 KiB, direct, planned anew", on_direct(same, 16 << 10)


def block(call: Callable[[], object], times: int) -> float:
    """Return the seconds of a call, of the slowest rank of this side."""
    for _ in range(5):
        call()
    synchronize()
    side.Barrier()
    begin = time.perf_counter()
    for _ in range(times):
        call()
        synchronize()
    return side.allreduce((time.perf_counter() - begin) / times, MPI.MAX)


def measured(call: Callable[[], object]) -> dict[str, np.ndarray]:
    """Return each side's blocks, in pairs; which side comes first takes turns."""
    for _ in range(3 * MANY):
        call()
    times = int(world.bcast(min(max(0.03 / world.allreduce(block(call, 5), MPI.MAX), 5), 500)))
    mine: list[float] = []
    begin = time.monotonic()
    while world.bcast(time.monotonic() - begin < SECONDS):
        for turn in SIDES if len(mine) % 2 else SIDES[::-1]:
            if turn == SIDE:
                mine.append(block(call, times))
            world.Barrier()
    told = world.allgather((SIDE, mine))
    return {name: np.array(next(blocks for who, blocks in told if who == name)) for name in SIDES}


def main() -> None:
    draw = np.random.default_rng(1)
    for name, call in cases():
        found = measured(call)
        pairs = min(map(len, found.values()))
        ratios = found["after"][:pairs] / found["before"][:pairs]
        low, high = np.percentile(np.median(draw.choice(ratios, (2000, pairs)), axis=1), [2.5, 97.5])
        ratio = float(np.median(ratios))
        verdict = "WORSE" if ratio > 1.03 and low > 1 else "better" if ratio < 0.97 and high < 1 else ""
        if world.rank == 0:
            before, after = (float(np.median(found[side])) * 1e6 for side in SIDES)
            print(f"{name:42s} {before:9.2f} {after:9.2f}  {ratio:.3f} [{low:.3f}, {high:.3f}] {verdict}", flush=True)


if __name__ == "__main__":
    main()
