"""Campaign: gradients in buckets against one call each, and the part of them that a backward pass hides.

    mpirun -n 4 python bench/gradient_buckets.py --json buckets.json
    NCCL_NVLS_ENABLE=0 mpirun -n 4 python bench/gradient_buckets.py --buffers cupy --json buckets.json

Float32, averages in place.  A time is the median over iterations of the slowest rank's, with the stream synchronised
before start and stop; what is compared is timed in turn.  The results of each are looked at first.

Many small gradients: one blocking call each, one nonblocking call each, buckets; on GPUs also NCCL's calls one by one,
in a group, and as PyTorch's DistributedDataParallel makes them (tensors flattened, one call, copied back).

Hidden: a backward pass is two matrix products a layer.  With t of the pass alone, of the buckets alone, and of both
together, hidden = (t_pass + t_buckets - t_together) / t_buckets.
"""

import argparse
import shlex
import statistics
import sys
import time
from pathlib import Path

import mpicoll  # before MPI starts: it puts a UCX that knows CUDA under the MPI

# isort: split
import numpy as np
from mpi4py import MPI

from mpicoll.bench.output.results import Results
from mpicoll.runtime.mpi.environment import local_rank
from mpicoll.settings import format_bytes

WORLD = MPI.COMM_WORLD
#: (gradients, bytes of each)
SMALL = [(500, 256), (500, 4 << 10), (200, 64 << 10), (50, 1 << 20)]
#: (layers, width, rows) of backward passes
PASSES = {"numpy": [(6, 256, 512), (6, 512, 1024)], "cupy": [(12, 1024, 4096), (12, 2048, 4096), (12, 4096, 4096)]}


class Campaign:
    def __init__(self, options):
        self.options, self.comm = options, mpicoll.Communicator(WORLD)
        self.xp, self.stream = np, None
        if options.buffers == "cupy":
            import cupy

            cupy.cuda.Device(local_rank() % cupy.cuda.runtime.getDeviceCount()).use()
            self.xp, self.stream = cupy, cupy.cuda.Stream(non_blocking=True)
            self.stream.__enter__()  # current until the end
        self.nccl = self.nccl_of_all() if options.buffers == "cupy" else None

    def nccl_of_all(self):
        """NCCL's communicator, None where there is none or ranks share a GPU."""
        places = WORLD.allgather((MPI.Get_processor_name(), self.xp.cuda.Device().pci_bus_id))
        try:
            from cupy.cuda import nccl

            missing = not nccl.available
        except ImportError:
            missing = True
        if WORLD.allreduce(missing, MPI.LOR) or len(set(places)) < WORLD.size:
            return None
        self.groups = nccl.groupStart, nccl.groupEnd
        return nccl.NcclCommunicator(WORLD.size, WORLD.bcast(WORLD.rank or nccl.get_unique_id()), WORLD.rank)

    def synchronize(self):
        if self.stream is not None:
            self.stream.synchronize()

    def medians(self, calls):
        """Milliseconds of each call, all in turn."""
        times = {name: [] for name in calls}
        for turn in range(self.options.iterations + 3):
            for name, call in calls.items():
                self.synchronize()
                WORLD.Barrier()
                start = time.perf_counter()
                call()
                self.synchronize()
                if turn >= 3:
                    times[name].append(time.perf_counter() - start)
        slowest = {name: np.max(WORLD.allgather(mine), axis=0) for name, mine in times.items()}
        return {name: 1e3 * statistics.median(one) for name, one in slowest.items()}

    def check(self, calls, arrays):
        """Each call must leave the averages of the ranks' numbers."""
        for name, call in calls.items():
            for turn in range(2):
                for k, one in enumerate(arrays):
                    one.fill(k % 50 + WORLD.rank + turn)
                call()
                self.synchronize()
                wanted = (WORLD.size - 1) / 2 + turn
                assert all(bool((one == k % 50 + wanted).all()) for k, one in enumerate(arrays)), name

    def ways(self, arrays):
        comm, buckets = self.comm, mpicoll.GradientBuckets(self.comm)

        def blocking():
            for one in arrays:
                comm.Allreduce(MPI.IN_PLACE, one, op=mpicoll.AVG)

        def nonblocking():
            for request in [comm.Iallreduce(MPI.IN_PLACE, one, op=mpicoll.AVG) for one in arrays]:
                request.Wait()

        def bucketed():
            with buckets:
                for one in arrays:
                    buckets.add(one)

        ours = {"one call each": blocking, "one nonblocking call each": nonblocking, "buckets": bucketed}
        return ours | (self.nccl_ways(arrays) if self.nccl else {})

    def nccl_ways(self, arrays, float32=7, average=4):
        stream = self.stream.ptr

        def reduce(pointer, count):
            self.nccl.allReduce(pointer, pointer, count, float32, average, stream)

        def each():
            for one in arrays:
                reduce(one.data.ptr, one.size)

        def group():
            self.groups[0]()
            each()
            self.groups[1]()

        ways = {"NCCL, one call each": each, "NCCL, a group": group}
        try:
            import torch
        except ImportError:
            return ways
        if not torch.cuda.is_available():
            return ways
        tensors = [torch.from_dlpack(one) for one in arrays]
        outside = torch.cuda.ExternalStream(stream)

        def flattened():
            with torch.cuda.stream(outside):
                flat = torch._utils._flatten_dense_tensors(tensors)
                reduce(flat.data_ptr(), flat.numel())
                torch._foreach_copy_(tensors, torch._utils._unflatten_dense_tensors(flat, tensors))

        return ways | {"NCCL, flattened by PyTorch": flattened}

    def small(self, count, nbytes):
        arrays = [self.xp.zeros(nbytes // 4, "f4") for _ in range(count)]
        calls = self.ways(arrays)
        self.check(calls, arrays)
        found = self.medians(calls)
        ratio = found["one call each"] / found["buckets"]
        return {"gradients": count, "nbytes": nbytes, "ms": found, "ratio": ratio}

    def hidden(self, layers, width, rows):
        """A backward pass with an activation and a weight for each layer."""
        xp = self.xp
        x, weight = (xp.full(shape, 1e-3, "f4") for shape in ((rows, width), (width, width)))
        gradients = [xp.zeros((width, width), "f4") for _ in range(layers)]
        buckets = mpicoll.GradientBuckets(self.comm)

        def backward():
            slope = x
            for gradient in gradients:
                xp.matmul(x.T, slope, out=gradient)
                slope = slope @ weight
                yield gradient

        def alone():
            for _ in backward():
                pass

        def reduce(ready):
            with buckets:
                for gradient in ready:
                    buckets.add(gradient)

        calls = {"pass": alone, "buckets": lambda: reduce(gradients), "together": lambda: reduce(backward())}
        self.check({"buckets": calls["buckets"]}, gradients)
        found = self.medians(calls)
        part = (found["pass"] + found["buckets"] - found["together"]) / found["buckets"]
        return {"layers": layers, "width": width, "rows": rows, "ms": found, "hidden": part}


def show(line):
    if WORLD.rank == 0:
        print(line, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--buffers", choices=("numpy", "cupy"), default="numpy")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--iterations", type=int, default=15)
    parser.add_argument("--only", choices=("small", "hidden"))
    options = parser.parse_args()
    results, campaign = Results(options.json if WORLD.rank == 0 else None, Path(sys.argv[0]).name), Campaign(options)
    results.begin(command=shlex.join(sys.argv), ranks=WORLD.size)
    for count, nbytes in SMALL if options.only != "hidden" else ():
        row = campaign.small(count, nbytes)
        results.add("row", table="small", **row)
        show(f"{count} x {format_bytes(nbytes)}: buckets x{row['ratio']:.1f}")
        for name, took in row["ms"].items():
            show(f"    {name:28}{took:9.3f} ms")
    for shape in PASSES[options.buffers] if options.only != "small" else ():
        row = campaign.hidden(*shape)
        results.add("row", table="hidden", **row)
        times = ", ".join(f"{name} {took:.3f}" for name, took in row["ms"].items())
        show(f"{shape[0]} layers of {shape[1]}, {shape[2]} rows: {times} ms; hidden {100 * row['hidden']:.0f} %")
    results.end(verdict="measured")


if __name__ == "__main__":
    main()
