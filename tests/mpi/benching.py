"""Runs of the benchmark on all ranks."""

from mpi4py import MPI

from mpicoll.bench.output.results import read
from mpicoll.bench.run import run

WORLD = MPI.COMM_WORLD
QUICK = ["--iters", "1", "--warmup", "0"]


def bench(arguments):
    """Run it; all ranks must come to the same status."""
    status = run([*arguments.split(), *QUICK])
    assert WORLD.allgather(status) == [status] * WORLD.size
    return status


def results(folder, arguments):
    """Run it, and return its file on all ranks."""
    file = folder / "results.json"
    status = bench(f"{arguments} --json {file}")
    found = None
    if WORLD.rank == 0:
        found = read(file)
    return status, WORLD.bcast(found, root=0)
