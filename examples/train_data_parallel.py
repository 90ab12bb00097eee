"""Data-parallel training: each rank has a share of the batch, and averages its gradients with the others'.

    mpirun -n 4 python examples/train_data_parallel.py
    mpirun -n 4 python examples/train_data_parallel.py --buffers cupy --timeline timeline.svg

A network of dense layers learns to tell two spirals apart.  While the backward pass computes the gradients of a layer,
those of the layers behind it travel, in buckets:

    rank 0   [backward 4][backward 3][backward 2][backward 1]
                                [bucket 0]  [bucket 1]  [bucket 2]

The loss must be that of training on one rank with the whole batch; then a step is measured in its parts, and drawn.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # ranks share the cores

import mpicoll
import numpy as np
from _timeline import Seen, Spans, draw
from mpi4py import MPI

#: a NumPy or CuPy array, or the module of either
Array = Any
Module = Any


def spirals(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (points in the plane, which of two spirals each is on), the same on all ranks."""
    random = np.random.default_rng(7)
    label = np.arange(count) % 2
    turn = 2 * np.pi * np.sqrt(random.random(count))
    angle = turn + np.pi * label
    points = turn[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1) / 3 + random.normal(0, 0.05, (count, 2))
    return points.astype("f4"), label


class Dense:
    """A layer: tanh(x @ weight + bias), the last one without tanh.  Gradients stay in the same arrays."""

    def __init__(self, xp: Module, weight: np.ndarray, is_last: bool) -> None:
        self.xp, self.is_last = xp, is_last
        self.values = [xp.asarray(weight), xp.zeros(weight.shape[1], "f4")]
        self.gradients = [xp.zeros_like(one) for one in self.values]
        self.moments = [xp.zeros_like(one) for one in self.values]

    def forward(self, x: Array) -> Array:
        self.x, y = x, x @ self.values[0] + self.values[1]
        self.y = y if self.is_last else self.xp.tanh(y)
        return self.y

    def backward(self, slope: Array) -> Array:
        """Take the loss's gradient by what comes out, compute those by the values, return that by what goes in."""
        if not self.is_last:
            slope = slope * (1 - self.y * self.y)
        self.xp.matmul(self.x.T, slope, out=self.gradients[0])
        self.xp.sum(slope, axis=0, out=self.gradients[1])
        return slope @ self.values[0].T

    def descend(self, rate: float) -> None:
        for value, gradient, moment in zip(self.values, self.gradients, self.moments, strict=True):
            moment *= 0.9
            moment += gradient
            value -= rate * moment


class Network:
    """Dense layers, and the cross entropy of what they say of each point."""

    def __init__(self, xp: Module, width: int, depth: int) -> None:
        random, widths = np.random.default_rng(1), [2, *[width] * depth, 2]
        weights = [random.normal(0, a**-0.5, (a, b)).astype("f4") for a, b in pairwise(widths)]
        self.layers = [Dense(xp, weight, k == depth) for k, weight in enumerate(weights)]
        self.xp = xp

    def forward(self, x: Array, label: Array) -> tuple[Array, Array]:
        """Return (mean loss of these points, its gradient by what the last layer says)."""
        for layer in self.layers:
            x = layer.forward(x)
        chance = self.xp.exp(x - x.max(axis=1, keepdims=True))
        chance /= chance.sum(axis=1, keepdims=True)
        rows = self.xp.arange(len(label))
        loss = -self.xp.log(chance[rows, label]).mean()
        chance[rows, label] -= 1
        return loss, chance / np.float32(len(label))

    def backward(self, slope: Array) -> Iterator[Dense]:
        """Yield each layer as soon as its gradients are there: the last one first."""
        for layer in reversed(self.layers):
            slope = layer.backward(slope)
            yield layer


class Training:
    """A network on some ranks, each with an equal share of the points."""

    def __init__(self, comm: mpicoll.Communicator, xp: Module, options: argparse.Namespace) -> None:
        self.comm, self.xp, self.rate = comm, xp, options.rate
        self.network = Network(xp, options.width, options.depth)
        self.points, self.label = (xp.asarray(one[comm.rank :: comm.size]) for one in spirals(options.batch))
        self.buckets = mpicoll.GradientBuckets(comm, bucket_bytes=options.bucket)

    def step(self) -> Array:
        """Return this rank's loss; the gradients of all ranks are averaged."""
        loss, slope = self.network.forward(self.points, self.label)
        with self.buckets:
            for layer in self.network.backward(slope):
                for gradient in layer.gradients:
                    self.buckets.add(gradient)
        return loss

    def losses(self, steps: int) -> np.ndarray:
        """Train, and return the loss of each step."""
        mine = self.xp.zeros(steps, "f8")
        for k in range(steps):
            mine[k] = self.step()
            for layer in self.network.layers:
                layer.descend(self.rate)
        mean = mpicoll.allreduce(mine, mpicoll.AVG, comm=self.comm)
        return np.asarray(mean if self.xp is np else mean.get())

    def parts(self) -> dict[str, Callable[[], object]]:
        """Return the parts of a step, to be timed."""
        gradients = [one for layer in reversed(self.network.layers) for one in layer.gradients]

        def compute() -> None:
            for _ in self.network.backward(self.network.forward(self.points, self.label)[1]):
                pass

        def communicate() -> None:
            with self.buckets:
                for one in gradients:
                    self.buckets.add(one)

        def one_call_each() -> None:
            for one in gradients:
                self.comm.Allreduce(MPI.IN_PLACE, one, op=mpicoll.AVG)

        return {"compute": compute, "buckets": communicate, "one call each": one_call_each, "together": self.step}


def finish(xp: Module) -> None:
    """Return when the device has done all work; NumPy's is done at once."""
    if xp is not np:
        xp.cuda.get_current_stream().synchronize()


def milliseconds(comm: MPI.Intracomm, xp: Module, work: Callable[[], object], repeats: int = 15) -> float:
    """Return the median time of some work; of each repeat that of the slowest rank counts."""
    times = []
    for _ in range(repeats + 3):
        finish(xp)
        comm.Barrier()
        begin = time.perf_counter()
        work()
        finish(xp)
        times.append(comm.allreduce(time.perf_counter() - begin, MPI.MAX))
    return 1e3 * float(statistics.median(times[3:]))


def seen_step(training: Training, comm: Seen) -> dict[str, Spans]:
    """Make a step, and return the rows of its timeline."""
    finish(training.xp)
    comm.Barrier()
    comm.begin(training.xp)
    mark, layers, computed = comm.clock.mark, len(training.network.layers), []
    begin = mark()
    _, slope = training.network.forward(training.points, training.label)
    computed.append(("forward", begin, mark()))
    with training.buckets:
        begin = mark()
        for k, layer in enumerate(training.network.backward(slope)):
            computed.append((f"backward {layers - k}", begin, mark()))
            for gradient in layer.gradients:
                training.buckets.add(gradient)
            comm.look()
            begin = mark()
    return {"computation": comm.clock.spans(computed), "communication": comm.spans()}


def seen_steps(training: Training, comm: Seen, options: argparse.Namespace) -> dict[str, Spans]:
    """Return the timeline of the last of some steps: by then buckets are made, and calls are remembered."""
    training.buckets = mpicoll.GradientBuckets(comm, bucket_bytes=options.bucket)
    return [seen_step(training, comm) for _ in range(5)][-1]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--buffers", choices=("numpy", "cupy"), default="numpy", help="where arrays live")
    parser.add_argument("--timeline", type=Path, help="file of the drawing (.svg, .png); needs mpicoll[plots]")
    numbers = {"steps": 60, "width": 256, "depth": 4, "batch": 512, "bucket": 256 << 10, "rate": 0.03}
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", type=type(default), default=default, help=f"default {default}")
    return parser.parse_args()


def main() -> None:
    options, comm = arguments(), mpicoll.Communicator(MPI.COMM_WORLD)
    xp: Module = np
    if options.buffers == "cupy":
        import cupy

        xp = cupy
        host = comm.Split_type(MPI.COMM_TYPE_SHARED)
        xp.cuda.Device(host.rank % xp.cuda.runtime.getDeviceCount()).use()
    options.batch = max(options.batch // comm.size, 1) * comm.size
    training = Training(comm, xp, options)
    losses = training.losses(options.steps)
    alone = Training(mpicoll.Communicator(MPI.COMM_SELF), xp, options).losses(options.steps) if not comm.rank else None
    np.testing.assert_allclose(losses, comm.bcast(alone), rtol=1e-3)
    times = {name: milliseconds(comm, xp, work) for name, work in training.parts().items()}
    hidden = times["compute"] + times["buckets"] - times["together"]
    if comm.rank == 0:
        print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f} in {options.steps} steps on {comm.size} ranks, as on one")
        print("a step:", ", ".join(f"{name} {value:.2f} ms" for name, value in times.items()))
        print(f"hidden behind the computation: {100 * max(hidden, 0) / times['buckets']:.0f} % of the communication")
        print(f"buckets: {times['one call each'] / times['buckets']:.1f} times as fast as one call each")
    if options.timeline:
        rows = seen_steps(training, Seen(MPI.COMM_WORLD), options)
        if comm.rank == 0:
            draw(rows, f"A training step of rank 0 of {comm.size}, {options.buffers}", options.timeline)


if __name__ == "__main__":
    main()
