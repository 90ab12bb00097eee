"""Campaign: every algorithm, segment count and path against NCCL, interleaved in one run, on CuPy arrays.

    NCCL_NVLS_ENABLE=0 MPICOLL_SCRATCH_LIMIT=4G mpirun -n 4 python bench/sweep_algorithms.py --json sweep.json

float32, sizes from 8 B to 1 GiB; the median over iterations of the maximum over ranks, with the
stream synchronised before start and stop.  One GPU a rank, as NCCL demands.
"""

import argparse
import importlib
import json
import time

import cupy as cp
import numpy as np
from cupy.cuda import nccl
from mpi4py import MPI

import mpicoll
from mpicoll.algorithms import registry
from mpicoll.analysis.cost import MODELS
from mpicoll.runtime.environment import local_rank

plans = importlib.import_module("mpicoll.dispatch.plan")
WORLD = MPI.COMM_WORLD
F, SUM = nccl.NCCL_FLOAT32, nccl.NCCL_SUM
SIZES = [8, 1 << 10, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 28, 1 << 30]
NAMES = ["allreduce", "bcast", "reduce", "allgather", "reduce_scatter", "alltoall", "gather", "scatter"]


class Sweep:
    def __init__(self):
        cp.cuda.Device(local_rank() % cp.cuda.runtime.getDeviceCount()).use()
        self.stream = cp.cuda.Stream(non_blocking=True)
        self.stream.use()
        self.comm = mpicoll.Communicator(WORLD)
        self.comm.Barrier()
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
        predicted = {a.name: MODELS["direct"].seconds(a.cost, self.size, nbytes, 8) for a in cards}
        best = min(predicted.values())
        for card in cards:
            if nbytes >= 1 << 20 and predicted[card.name] > 2.5 * best:
                continue
            for segments in _segments(nbytes):
                for lanes in (4,) if nbytes < 1 << 24 else (2, 4, 8):
                    if lanes == 4 or lanes <= segments:
                        yield f"{card.name}/{segments}@direct", lanes
            if nbytes <= 1 << 18:
                yield f"{card.name}/1@staged", 4

    def cell(self, name, nbytes):
        ours, theirs = self.calls(name, nbytes)
        iterations = 30 if nbytes <= 1 << 20 else 12 if nbytes <= 1 << 24 else 6
        row = {"collective": name, "nbytes": nbytes, "nccl": self.median(theirs, iterations), "ours": {}}
        for choice, lanes in self.choices(name, nbytes):
            plans.LANES = lanes
            plans._planned.cache_clear()
            self.comm._get_channel().recent.calls.clear()
            row["ours"][f"{choice}+{lanes}"] = self.median(lambda choice=choice: ours(choice), iterations, 2)
        return row


def _segments(nbytes):
    if nbytes < 1 << 20:
        return (1,)
    return (1, 2, 4) if nbytes < 1 << 24 else (1, 2, 4, 8) if nbytes < 1 << 26 else (1, 4, 8, 16, 32)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", required=True)
    parser.add_argument("--max", type=int, default=1 << 30)
    options = parser.parse_args()
    sweep, rows = Sweep(), []
    for nbytes in (n for n in SIZES if n <= options.max):
        for name in NAMES:
            rows.append(sweep.cell(name, nbytes))
            if sweep.rank == 0:
                row = rows[-1]
                best = min(row["ours"], key=row["ours"].get)
                took = row["ours"][best]
                ratio = row["nccl"] / took
                print(f"{name:15}{nbytes:>11}  NCCL {row['nccl']:9.1f}  x{ratio:.2f}  {best} {took:.1f}", flush=True)
    if sweep.rank == 0:
        with open(options.json, "w") as file:  # noqa: PTH123
            json.dump(rows, file)


if __name__ == "__main__":
    main()
