"""Campaign: which settings of UCX are good for this machine?  Medians of each, side by side.

    python bench/ucx_settings.py -n 4 --json ucx.json            # every setting below
    python bench/ucx_settings.py -n 4 --only default,put_zcopy --setting "both:UCX_RNDV_SCHEME=put_zcopy,UCX_TLS=all"

Starts `mpirun -n N` once for each setting, all of them in turn for some rounds (a machine's spread from
one start to the next is larger than that within one), and prints for each cell the median of the rounds, in
microseconds, and the ratio to `default` where it is more than 5 % off.  A variable is set within the ranks
before MPI starts, so that no launcher has to hand it on.

In `--setting`, a value may have commas; the next variable begins with `,UCX_`.

Cells: `ring N`, persistent sends and receives of N bytes around a ring, as mpicoll makes them; `host N`, the same
in host memory (no setting must make it slower); `one_shot N` and `ring_sum N`, an allreduce on the direct path.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, TextIO

#: name -> variables; what is only an estimate changes which protocol UCX takes, for device memory alone
SETTINGS: dict[str, dict[str, str]] = {
    "default": {},
    "rndv_0": {"UCX_RNDV_THRESH": "0"},
    "rndv_1k": {"UCX_RNDV_THRESH": "1k"},
    "ipc_cheap": {"UCX_CUDA_IPC_LAT": "0.1us", "UCX_CUDA_IPC_OVERHEAD": "0.1us"},
    "copy_dear": {"UCX_CUDA_COPY_BW": "100MBs"},
    "put_zcopy": {"UCX_RNDV_SCHEME": "put_zcopy"},
    "get_zcopy": {"UCX_RNDV_SCHEME": "get_zcopy", "UCX_CUDA_IPC_ENABLE_GET_ZCOPY": "on"},
    "cheap_put": {"UCX_CUDA_IPC_LAT": "0.1us", "UCX_CUDA_IPC_OVERHEAD": "0.1us", "UCX_RNDV_SCHEME": "put_zcopy"},
    "poll_64": {"UCX_CUDA_IPC_MAX_POLL": "64"},
    "rails_1": {"UCX_MAX_RNDV_RAILS": "1"},
    "memtype_n": {"UCX_MEMTYPE_CACHE": "n"},
    "memtype_y": {"UCX_MEMTYPE_CACHE": "y"},
    "tls": {"UCX_TLS": "self,sm,cuda_ipc,cuda_copy"},
}
#: (cell, bytes)
CELLS = [
    *(("ring", n) for n in (8, 1 << 10, 1 << 13, 1 << 16, 1 << 20, 1 << 24, 1 << 28)),
    *(("host", n) for n in (8, 1 << 10, 1 << 16)),
    *(("one_shot", n) for n in (1 << 10, 1 << 16, 1 << 20)),
    *(("ring_sum", n) for n in (1 << 26, 1 << 28)),
]


class Rank:
    """One rank of a job: prepares and times the cells."""

    def __init__(self, device: bool) -> None:
        import mpicoll  # before MPI: it reads the variables

        self.xp: Any = __import__("cupy" if device else "numpy")
        from mpi4py import MPI

        from mpicoll.runtime.mpi.environment import local_rank

        self.mpi, self.world, self.device = MPI, MPI.COMM_WORLD, device
        if device:
            self.xp.cuda.Device(local_rank() % self.xp.cuda.runtime.getDeviceCount()).use()
            mpicoll.override(path="direct").__enter__()
        self.comm = mpicoll.Communicator(self.world)

    def synchronize(self) -> None:
        if self.device:
            self.xp.cuda.get_current_stream().synchronize()

    def exchange(self, xp: Any, nbytes: int) -> Any:
        """Return a call that sends to the right and receives from the left."""
        import numpy as np

        rank, size = self.world.rank, self.world.size
        x, y = xp.zeros(nbytes, "u1"), xp.zeros(nbytes, "u1")
        requests = []
        for array, make, peer in (
            (y, self.world.Recv_init, (rank - 1) % size),
            (x, self.world.Send_init, (rank + 1) % size),
        ):
            address = array.ctypes.data if xp is np else array.data.ptr
            requests.append(make([self.mpi.buffer.fromaddress(address, nbytes), nbytes, self.mpi.BYTE], peer))
        start, wait, keep = self.mpi.Prequest.Startall, self.mpi.Request.Waitall, (x, y)

        def call() -> None:
            start(requests)
            wait(requests)
            keep  # noqa: B018  (the requests are for this memory)

        return call

    def call(self, cell: str, nbytes: int) -> Any:
        """Return what is timed."""
        if cell in ("ring", "host"):
            import numpy as np

            return self.exchange(self.xp if cell == "ring" else np, nbytes)
        x, y = self.xp.ones(nbytes // 4, "f4"), self.xp.zeros(nbytes // 4, "f4")
        path = "@direct" if self.device else ""
        algorithm = f"one_shot/1{path}" if cell == "one_shot" else f"ring/4{path}"
        return lambda: self.comm.Allreduce(x, y, algorithm=algorithm)

    def median(self, call: Any, nbytes: int) -> float:
        """Return the median over calls of the slowest rank's microseconds."""
        times = []
        for turn in range(205 if nbytes <= 1 << 20 else 25):
            self.synchronize()
            self.world.Barrier()
            start = time.perf_counter()
            call()
            self.synchronize()
            if turn >= 5:
                times.append(time.perf_counter() - start)
        return statistics.median(map(max, zip(*self.world.allgather(times), strict=True))) * 1e6

    def measure(self, largest: int) -> dict[str, float]:
        """Return the microseconds of all cells."""
        return {f"{c} {n}": self.median(self.call(c, n), n) for c, n in CELLS if n <= largest}


def job(options: argparse.Namespace, variables: dict[str, str]) -> dict[str, float] | str:
    """Run one job; returns its cells, or what went wrong."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        ours = [sys.executable, __file__, "--rank", file.name, "--set", json.dumps(variables)]
        command = [*options.mpirun.split(), "-n", str(options.n), *ours, "--buffers", options.buffers]
        environ = {name: value for name, value in os.environ.items() if name not in variables}
        try:
            done = subprocess.run(
                [*command, "--max", str(options.max)],
                env=environ,
                timeout=options.limit,
                capture_output=True,
                text=True,
            )
        except subprocess.TimeoutExpired:
            return f"no end within {options.limit} s"
        text = Path(file.name).read_text(encoding="utf-8")
        return json.loads(text) if done.returncode == 0 and text else f"exit {done.returncode}: {done.stderr[-800:]}"


def table(found: dict[str, list[dict[str, float]]]) -> list[str]:
    """Return the medians of all rounds, cells down, settings across."""
    names = [name for name, rounds in found.items() if rounds]
    cells = list(found[names[0]][0]) if names else []
    lines = [f"{'us':>18}" + "".join(f"{name:>17}" for name in names)]
    for cell in cells:
        row = {name: statistics.median(one[cell] for one in found[name]) for name in names}
        base = row.get("default")
        texts = [
            f"{value:9.1f}" + (f" ({value / base:5.2f})" if base and abs(value / base - 1) > 0.05 else " " * 8)
            for value in row.values()
        ]
        lines.append(f"{cell:>18}" + "".join(texts))
    return lines


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("-n", type=int, default=2, help="ranks")
    add("--only", default="", help="names of settings, comma-separated; all if empty")
    add("--setting", action="append", default=[], help="another one, as name:VARIABLE=value,VARIABLE=value")
    add("--rounds", type=int, default=3)
    add("--max", type=int, default=1 << 28, help="largest cell in bytes")
    add("--buffers", choices=("cupy", "numpy"), default="cupy")
    add("--mpirun", default=str(Path(sys.executable).parent / "mpirun"), help="launcher, with options")
    add("--limit", type=float, default=120, help="seconds for one job")
    add("--json", type=Path, help="file for all rounds: JSON lines as mpicoll.bench writes them")
    add("--rank", help=argparse.SUPPRESS)
    add("--set", type=json.loads, default={}, help=argparse.SUPPRESS)
    return parser.parse_args()


def chosen(options: argparse.Namespace) -> dict[str, dict[str, str]]:
    """Return the settings to be measured."""
    all_of_them = dict(SETTINGS)
    for text in options.setting:
        name, _, pairs = text.partition(":")
        all_of_them[name] = dict(pair.split("=", 1) for pair in pairs.replace(",UCX_", "\nUCX_").split("\n"))
    wanted = options.only.split(",") if options.only else list(all_of_them)
    return {name: all_of_them[name] for name in wanted}


def write(out: TextIO | None, kind: str, **line: Any) -> None:
    """Write a line as mpicoll.bench.output.results does, whose import would set variables for the jobs."""
    if out:
        print(json.dumps({"kind": kind, **line}), file=out, flush=True)


def main() -> None:
    options = parse()
    if options.rank:
        os.environ.update(options.set)
        rank = Rank(options.buffers == "cupy")
        cells = rank.measure(options.max)
        if rank.world.rank == 0:
            Path(options.rank).write_text(json.dumps(cells), encoding="utf-8")
        return
    settings = chosen(options)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in settings}
    out = options.json.open("w", encoding="utf-8") if options.json else None
    write(
        out, "header", schema=1, tool=Path(__file__).name, ranks=options.n, buffers=options.buffers, settings=settings
    )
    for number in range(options.rounds):
        for name, variables in settings.items():
            cells = job(options, variables)
            print(f"round {number + 1}, {name}: {'measured' if isinstance(cells, dict) else cells}", flush=True)
            if isinstance(cells, dict):
                found[name].append(cells)
                write(out, "row", round=number, setting=name, us=cells)
    write(out, "end", verdict="measured")
    print("\n".join(table(found)))


if __name__ == "__main__":
    main()
