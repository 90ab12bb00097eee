"""Campaign: every algorithm, segment count and path against NCCL, interleaved in one run, on CuPy arrays.

    NCCL_NVLS_ENABLE=0 MPICOLL_SCRATCH_LIMIT=4G mpirun -n 4 python bench/sweep_algorithms.py --json sweep.json

float32, sizes from 8 B to 1 GiB; two numbers of microseconds each: the median over iterations of the
maximum over ranks, with the stream synchronised before start and stop; and many calls that nobody waits
for in between, divided by their number.  One GPU a rank, as NCCL demands.  With --once every algorithm is timed
once a path, cut into segments as the cost model says; `make tables` compares what is chosen today with such a run.
"""

import argparse
import importlib
import shlex
import sys
import time
from functools import partial
from pathlib import Path

import mpicoll  # before MPI starts: it puts a UCX that knows CUDA under the MPI

# isort: split
import cupy as cp
import numpy as np
from cupy.cuda import nccl
from mpi4py import MPI

from mpicoll.algorithms import registry
from mpicoll.bench.output.results import Results
from mpicoll.dispatch.paths import PATHS
from mpicoll.runtime.mpi.environment import local_rank

plans = importlib.import_module("mpicoll.dispatch.plan")
WORLD = MPI.COMM_WORLD
F, SUM = nccl.NCCL_FLOAT32, nccl.NCCL_SUM
ROUNDS = 5
SIZES = [8, 1 << 10, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 28, 1 << 30]
NAMES = ["allreduce", "bcast", "reduce", "allgather", "reduce_scatter", "alltoall", "gather", "scatter"]


class Sweep:
    def __init__(self, paths=(), once=False):
        self.paths, self.once = paths, once
        cp.cuda.Device(local_rank() % cp.cuda.runtime.getDeviceCount()).use()
        self.stream = cp.cuda.Stream(non_blocking=True)
        self.stream.use()
        self.comm = mpicoll.Communicator(WORLD)
        self.comm.Allreduce(cp.ones(1), cp.ones(1))  # maps the peers' memory
        if isinstance(self.comm._get_context().attached["mapped"], str):
            self.paths = [path for path in paths if path != "mapped"]
        self.rank, self.size = WORLD.rank, WORLD.size
        uid = WORLD.bcast(nccl.get_unique_id() if self.rank == 0 else None)
        self.nccl = nccl.NcclCommunicator(self.size, uid, self.rank)

    def median(self, call, iterations, warmup=3):
        for _ in range(warmup):
            call()
        times = np.empty(iterations)
        for k in range(iterations):
            self.stream.synchronize()
            WORLD.Barrier()
            start = time.perf_counter()
            call()
            self.stream.synchronize()
            times[k] = time.perf_counter() - start
        slowest = np.empty_like(times)
        WORLD.Allreduce(times, slowest, MPI.MAX)
        return float(np.median(slowest)) * 1e6

    def streamed(self, call, calls):
        """Microseconds of a call among many that nobody waits for in between."""
        rounds = []
        for _ in range(ROUNDS):
            self.stream.synchronize()
            WORLD.Barrier()
            start = time.perf_counter()
            for _ in range(calls):
                call()
            self.stream.synchronize()
            rounds.append(max(WORLD.allgather((time.perf_counter() - start) / calls)) * 1e6)
        return sorted(rounds)[ROUNDS // 2]

    def calls(self, name, nbytes):
        """Ours (of an algorithm) and NCCL's."""
        n, p, root = max(nbytes // 4, 1), self.size, self.rank == 0
        b = max(n // p, 1)
        whole, parts = cp.ones(n, "f4"), cp.ones(b * p, "f4")
        out, one, many = cp.ones(n, "f4"), cp.ones(b, "f4"), cp.ones(b * p, "f4")
        c, peer, s = self.comm, self.nccl, self.stream.ptr
        at = {"whole": whole, "parts": parts, "out": out, "one": one, "many": many}
        ptr = {k: v.data.ptr for k, v in at.items()}

        def send(what, q):
            return lambda: peer.send(ptr[what] + (4 * b * q if what != "one" else 0), b, F, q, s)

        def recv(what, q):
            return lambda: peer.recv(ptr[what] + (4 * b * q if what != "one" else 0), b, F, q, s)

        def grouped(*calls):
            nccl.groupStart()
            for call in calls:
                call()
            nccl.groupEnd()

        ranks = range(p)
        return {
            "allreduce": (
                lambda a: c.Allreduce(whole, out, algorithm=a),
                lambda: peer.allReduce(ptr["whole"], ptr["out"], n, F, SUM, s),
            ),
            "bcast": (lambda a: c.Bcast(whole, algorithm=a), lambda: peer.bcast(ptr["whole"], n, F, 0, s)),
            "reduce": (
                lambda a: c.Reduce(whole, out if root else None, algorithm=a),
                lambda: peer.reduce(ptr["whole"], ptr["out"], n, F, SUM, 0, s),
            ),
            "allgather": (
                lambda a: c.Allgather(one, many, algorithm=a),
                lambda: peer.allGather(ptr["one"], ptr["many"], b, F, s),
            ),
            "reduce_scatter": (
                lambda a: c.Reduce_scatter_block(parts, one, algorithm=a),
                lambda: peer.reduceScatter(ptr["parts"], ptr["one"], b, F, SUM, s),
            ),
            "alltoall": (
                lambda a: c.Alltoall(parts, many, algorithm=a),
                lambda: grouped(*(f for q in ranks for f in (send("parts", q), recv("many", q)))),
            ),
            "gather": (
                lambda a: c.Gather(one, many if root else None, algorithm=a),
                lambda: grouped(send("one", 0), *(recv("many", q) for q in ranks if root)),
            ),
            "scatter": (
                lambda a: c.Scatter(parts if root else None, one, algorithm=a),
                lambda: grouped(*(send("parts", q) for q in ranks if root), recv("one", 0)),
            ),
        }[name]

    def choices(self, name, nbytes):
        """Algorithm, segments and lanes that are worth a try."""
        cards = registry.usable(name, self.size)
        for path in self.paths:
            if self.once or path == "mapped":
                yield from ((f"{card.name}@{path}", 4) for card in cards)
            elif path == "direct":
                yield from self.cut(cards, nbytes)
            elif nbytes <= 1 << 18:
                yield from ((f"{card.name}/1@{path}", 4) for card in cards)

    def cut(self, cards, nbytes):
        """Algorithms by messages, cut into segments, without those that the cost model rules out."""
        predicted = {a.name: PATHS["direct"].model.seconds(a.cost, self.size, nbytes, 8) for a in cards}
        best = min(predicted.values())
        for card in cards:
            if nbytes >= 1 << 20 and predicted[card.name] > 2.5 * best:
                continue
            for segments in _segments(nbytes):
                for lanes in (4,) if nbytes < 1 << 24 else (2, 4, 8):
                    if lanes == 4 or lanes <= segments:
                        yield f"{card.name}/{segments}@direct", lanes

    def cell(self, name, nbytes):
        ours, theirs = self.calls(name, nbytes)
        iterations = 30 if nbytes <= 1 << 20 else 12 if nbytes <= 1 << 24 else 6
        many = 40 if nbytes <= 1 << 22 else 6
        row = {"collective": name, "nbytes": nbytes, "ours": {}}
        row["nccl"] = [self.median(theirs, iterations), self.streamed(theirs, many)]
        for choice, lanes in self.choices(name, nbytes):
            plans.LANES = lanes
            plans._planned.cache_clear()
            self.comm._get_context().cache.clear()
            call, key = partial(ours, choice), choice if self.once else f"{choice}+{lanes}"
            row["ours"][key] = [self.median(call, iterations, 2), self.streamed(call, many)]
        return row


def _segments(nbytes):
    if nbytes < 1 << 20:
        return (1,)
    return (1, 2, 4) if nbytes < 1 << 24 else (1, 2, 4, 8) if nbytes < 1 << 26 else (1, 4, 8, 16, 32)


def begun(path):
    """Return the file of rank 0's results with its header; one that cannot be written ends the job here."""
    results = Results(path if WORLD.rank == 0 else None, Path(sys.argv[0]).name)
    results.begin(command=shlex.join(sys.argv), ranks=WORLD.size)
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--max", type=int, default=1 << 30)
    parser.add_argument("--only", default=",".join(NAMES))
    parser.add_argument("--paths", default="mapped,direct,staged")
    parser.add_argument("--once", action="store_true")
    options = parser.parse_args()
    results, sweep = begun(options.json), Sweep(options.paths.split(","), options.once)
    for nbytes in (n for n in SIZES if n <= options.max):
        for name in options.only.split(","):
            row = sweep.cell(name, nbytes)
            results.add("row", **row)
            if sweep.rank == 0:
                best = min(row["ours"], key=lambda choice: row["ours"][choice][0])
                took, nccl = row["ours"][best][0], row["nccl"][0]
                print(f"{name:15}{nbytes:>11}  NCCL {nccl:9.1f}  x{nccl / took:.2f}  {best} {took:.1f}", flush=True)
    results.end(verdict="measured")


if __name__ == "__main__":
    main()
