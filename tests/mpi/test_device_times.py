"""Times on devices grow with the size, and the chosen path is near the best."""

import statistics
import tempfile
import time
from pathlib import Path

import pytest
from mpi4py import MPI

from mpi.device_arrays import usable

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("on_path")]

RANK = MPI.COMM_WORLD.Get_rank()
WORLD = MPI.COMM_WORLD


def medians(arguments):
    """Run the benchmark and return its medians in microseconds and paths, by size."""
    from mpicoll.bench.output import results
    from mpicoll.bench.run import run

    with tempfile.TemporaryDirectory() as mine:
        folder = WORLD.bcast(mine, root=0)
        file = Path(folder) / "results.json"
        assert run([*arguments.split(), "--buffers", "cupy", "--json", str(file)]) == 0
        rows = WORLD.bcast(results.read(file)["rows"] if RANK == 0 else None, root=0)
        WORLD.Barrier()
    return {row["bytes"]: (statistics.median(row["times"]["mpicoll"]["samples"]), row["path"]) for row in rows}


@pytest.mark.case("BENCH-NOSYNC", "IPC-VISIBLE")
@pytest.mark.mpi(min_size=2)
def test_times_grow_with_the_size():
    """The clock stops after the device's work, and the path is told."""
    found = medians("--op allreduce --min 1K --max 256M --iters 5 --warmup 2 --outofplace")
    (small, _), (large, _) = found[min(found)], found[max(found)]
    assert large > 5 * small
    assert large > 256e6 / 10e12 * 1e6  # no machine moves 10 TB/s
    assert {path for _, path in found.values()} <= {"direct", "staged", "mapped"}


@pytest.mark.case("STAGED-SLOW")
@pytest.mark.mpi(min_size=2)
def test_no_path_is_much_better_than_the_chosen_one(world):
    """Of small, middle and large messages, the choice is near the better way."""
    import cupy

    def seconds(count, **named):
        x, y = cupy.ones(count, "f4"), cupy.zeros(count, "f4")
        times = []
        for _ in range(12):
            world.Barrier()
            start = time.monotonic()
            world.Allreduce(x, y, **named)
            cupy.cuda.get_current_stream().synchronize()
            times.append(WORLD.allreduce(time.monotonic() - start, MPI.MAX))
        return statistics.median(times[2:])

    paths = usable(world)
    for count in (2, 1 << 10, 1 << 16, 1 << 22):
        best = min(seconds(count, algorithm=f"ring@{path}") for path in paths)
        best = min(best, *(seconds(count, algorithm=f"one_shot@{path}") for path in paths))
        assert seconds(count) < 3 * best + 50e-6, count
