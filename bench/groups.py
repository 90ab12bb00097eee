"""Messages and many small calls in groups, beside messages of the MPI's own, one call each, and NCCL's groups.

    mpirun -n 2 python bench/groups.py                      CuPy arrays where there is a GPU, else NumPy
    mpirun -n 2 python bench/groups.py --json file.json     all times in microseconds

Rows take turns within one run; a time is the median over turns of the slowest rank's time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mpicoll  # before MPI starts: it puts a UCX that knows CUDA under the MPI

# isort: split
from mpi4py import MPI

Row = tuple[str, Callable[[], Any]]


def array_module() -> Any:
    """Return CuPy where there is a GPU, else NumPy."""
    try:
        import cupy

        cupy.cuda.Device(MPI.COMM_WORLD.rank % cupy.cuda.runtime.getDeviceCount()).use()
        return cupy
    except Exception:
        import numpy

        return numpy


def halo_rows(comm: Any, xp: Any, nbytes: int) -> list[Row]:
    """Return ways to exchange a halo of so many bytes with both neighbours."""
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    count = nbytes // 4
    a, b, c, d = (xp.zeros(count, "f4") for _ in range(4))
    plain = MPI.Intracomm(comm)

    def group() -> None:
        with mpicoll.group(comm):
            comm.Send(a, left, 1)
            comm.Send(b, right, 2)
            comm.Recv(c, right, 1)
            comm.Recv(d, left, 2)

    def requests(on: Any) -> None:
        MPI.Request.Waitall(
            [on.Irecv(c, right, 1), on.Irecv(d, left, 2), on.Isend(a, left, 1), on.Isend(b, right, 2)]
        )

    def by_hand() -> None:
        xp.cuda.get_current_stream().synchronize()
        requests(plain)

    rows = [("group", group), ("mpicoll's requests", lambda: requests(comm))]
    if xp.__name__ == "numpy":
        return [*rows, ("MPI's messages", lambda: requests(plain))]
    if comm._get_context().cuda_aware.aware:
        rows.append(("MPI's messages", by_hand))
    return rows + captured_rows(comm, xp, group) + nccl_halo(comm, xp, (a, b, c, d))


def captured_rows(comm: Any, xp: Any, act: Callable[[], None]) -> list[Row]:
    """Return a row of a captured group, replayed; none where it cannot be captured."""
    act()
    stream = xp.cuda.Stream(non_blocking=True)
    try:
        with stream:
            stream.begin_capture()
            try:
                act()
            finally:
                graph = stream.end_capture()
    except (mpicoll.UnsupportedError, xp.cuda.runtime.CUDARuntimeError) as error:
        if comm.rank == 0:
            print("not captured:", str(error)[:110])
        return []
    return [("group, replayed", lambda: graph.launch(xp.cuda.get_current_stream()))]


def nccl(comm: Any, xp: Any) -> Any:
    """Return CuPy's communicator of NCCL, None where there can be none."""
    if len(set(comm.allgather(xp.cuda.Device().pci_bus_id))) < comm.size:
        return None
    if not hasattr(nccl, "made"):
        from cupy.cuda import nccl as library

        unique = comm.bcast(library.get_unique_id() if comm.rank == 0 else None)
        nccl.made = library.NcclCommunicator(comm.size, unique, comm.rank)
    return nccl.made


def nccl_halo(comm: Any, xp: Any, arrays: tuple[Any, ...]) -> list[Row]:
    """Return NCCL's halo exchange, if it can serve."""
    made = nccl(comm, xp)
    if made is None:
        return []
    a, b, c, d = (array.data.ptr for array in arrays)
    from cupy.cuda import nccl as library

    count = arrays[0].size
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size

    def act() -> None:
        stream = xp.cuda.get_current_stream().ptr
        library.groupStart()
        made.send(a, count, library.NCCL_FLOAT, left, stream)
        made.send(b, count, library.NCCL_FLOAT, right, stream)
        made.recv(c, count, library.NCCL_FLOAT, right, stream)
        made.recv(d, count, library.NCCL_FLOAT, left, stream)
        library.groupEnd()

    return [("NCCL's group", act)]


def small_rows(comm: Any, xp: Any, number: int, nbytes: int) -> list[Row]:
    """Return ways to sum many small arrays over all ranks."""
    arrays = [xp.zeros(nbytes // 4, "f4") for _ in range(number)]

    def each() -> None:
        for array in arrays:
            comm.Allreduce(MPI.IN_PLACE, array)

    def group() -> None:
        with mpicoll.group(comm):
            each()

    rows = [("one call each", each), ("group", group), ("list", lambda: comm.Allreduce(MPI.IN_PLACE, arrays))]
    if xp.__name__ == "numpy":
        return rows
    rows += captured_rows(comm, xp, group)
    made = nccl(comm, xp)
    if made is None:
        return rows
    from cupy.cuda import nccl as library

    def grouped() -> None:
        stream = xp.cuda.get_current_stream().ptr
        library.groupStart()
        for array in arrays:
            made.allReduce(array.data.ptr, array.data.ptr, array.size, library.NCCL_FLOAT, library.NCCL_SUM, stream)
        library.groupEnd()

    return [*rows, ("NCCL's group", grouped)]


def measured(comm: Any, xp: Any, rows: list[Row], turns: int, calls: int) -> dict[str, list[float]]:
    """Return the times of each row in microseconds a call, one for each turn: those of the slowest rank."""
    times: dict[str, list[float]] = {name: [] for name, _ in rows}
    for _, act in rows:
        for _ in range(4):
            act()
    for turn in range(turns):
        for name, act in rows[turn % len(rows) :] + rows[: turn % len(rows)]:
            finish(xp)
            MPI.Intracomm(comm).Barrier()
            start = time.perf_counter()
            for _ in range(calls):
                act()
            finish(xp)
            took = MPI.Intracomm(comm).allreduce(time.perf_counter() - start, MPI.MAX)
            times[name].append(took / calls * 1e6)
    return times


def finish(xp: Any) -> None:
    """Wait for the current stream."""
    if xp.__name__ == "cupy":
        xp.cuda.get_current_stream().synchronize()


def main() -> None:
    """Measure, print a table, and write all times where a file is named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", default="")
    parser.add_argument("--turns", type=int, default=20)
    options = parser.parse_args()
    xp, comm = array_module(), mpicoll.Communicator(MPI.COMM_WORLD)
    with mpicoll.group(comm):
        comm.Allreduce(MPI.IN_PLACE, xp.ones(1, "f4"))
    why = comm._get_context().attached["channels"]
    if comm.rank == 0:
        print(f"{comm.size} ranks, {xp.__name__}; channels: {why if isinstance(why, str) else 'yes'}")
    found: dict[str, dict[str, list[float]]] = {}
    tables = [(f"halo of {n >> 10} KiB, both ways", halo_rows(comm, xp, n), 100) for n in (1 << 10, 64 << 10, 1 << 20)]
    tables += [(f"{n} x 4 KiB allreduce", small_rows(comm, xp, n, 4096), 2) for n in (20, 500)]
    for title, rows, calls in tables:
        found[title] = measured(comm, xp, rows, options.turns, calls)
        if comm.rank == 0:
            first = statistics.median(found[title][rows[0][0]])
            for name, times in found[title].items():
                middle, spread = statistics.median(times), statistics.quantiles(times, n=4)
                around = f"{spread[0]:.1f} to {spread[2]:.1f}"
                print(f"{title:24} {name:20} {middle:9.1f} us  {around:18} {middle / first:.2f}")
    if comm.rank == 0 and options.json:
        Path(options.json).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
