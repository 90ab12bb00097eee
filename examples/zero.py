"""ZeRO: each rank keeps the optimizer's state, and with stage 3 the weights, of its own part only.

The problem.  In data parallel training each rank holds the whole model: for each weight four numbers, which are
the weight, its gradient and Adam's two averages.  All ranks hold the same ones, so most of that memory is a copy.
ZeRO (DeepSpeed; FSDP in PyTorch) gives each of p ranks a part.  It takes the allreduce of the gradients apart:

    allreduce   =   reduce-scatter                   +   allgather
                    rank r gets the mean of part r        all ranks get all parts
                                          |
                                          Adam works here, on 1/p of the weights

    stage 2     rank r keeps all weights, and of the other three numbers part r
    stage 3     rank r keeps part r of the weights, too: a layer is gathered before its forward pass, dropped,
                gathered again before its backward pass, and dropped

Collectives.  Reduce_scatter_block with mpicoll.AVG, and Allgather.

Cost.  In each of them a rank sends (p-1)/p n bytes, where n is the bytes of the weights.  Plain training needs an
allreduce, which is 2 (p-1)/p n.  Stage 2 sends just as much, stage 3 half as much again.

What to look at.  The bytes that a rank holds fall with p, and the weights are those of Adam on one process.
"""

from __future__ import annotations

from collections.abc import Callable

import mpicoll
import numpy as np
from mpi4py import MPI

from _common import Array, Module, arguments, array_module, readable, say, sent_bytes, timed

RATE, KEEP, KEEP_SQUARES, TINY = 1e-2, 0.9, 0.999, 1e-8


def pass_both_ways(
    xp: Module,
    depth: int,
    weights: Callable[[int], Array],
    reduce: Callable[[int, Array], None],
    x: Array,
    y: Array,
) -> None:
    """Run a network of tanh layers forward and backward.

    Args:
        xp: NumPy or CuPy.
        depth: number of layers.
        weights: returns the weights of a layer; called for each layer forward, then backward.
        reduce: takes the gradient of a layer.
        x: a batch of inputs.
        y: what should come out; the loss is the mean square error.
    """
    passed = [x]
    for k in range(depth):
        passed.append(xp.tanh(passed[-1] @ weights(k)))
    delta = 2 / y.size * (passed[-1] - y)
    for k in reversed(range(depth)):
        delta = delta * (1 - passed[k + 1] ** 2)
        reduce(k, passed[k].T @ delta)
        delta = delta @ weights(k).T


class Adam:
    """Adam for any part of the weights: it works element by element, and that is why ZeRO works."""

    def __init__(self, xp: Module, weights: Array) -> None:
        self.xp, self.weights, self.steps = xp, weights, 0
        self.gradient, self.mean, self.square = (xp.zeros_like(weights) for _ in range(3))

    def update(self) -> None:
        """Change the weights by the gradient."""
        self.steps += 1
        self.mean += (1 - KEEP) * (self.gradient - self.mean)
        self.square += (1 - KEEP_SQUARES) * (self.gradient**2 - self.square)
        mean, square = self.mean / (1 - KEEP**self.steps), self.square / (1 - KEEP_SQUARES**self.steps)
        self.weights -= RATE * mean / (self.xp.sqrt(square) + TINY)


class Zero:
    """The layers of a network, of each of which this rank keeps some rows."""

    def __init__(self, comm: mpicoll.Communicator, xp: Module, layers: list[Array], stage: int) -> None:
        self.comm, self.xp, self.stage, self.bytes_sent = comm, xp, stage, 0
        self.parts = [Adam(xp, xp.split(layer, comm.size)[comm.rank].copy()) for layer in layers]
        self.wholes: dict[int, Array] = {}

    def gathered(self, k: int) -> Array:
        """Return all rows of a layer; they are kept until the next update with stage 2, and not with stage 3."""
        if k in self.wholes:
            return self.wholes[k]
        part = self.parts[k].weights
        whole = self.xp.empty((self.comm.size * len(part), part.shape[1]))
        self.comm.Allgather(part, whole)
        self.bytes_sent += sent_bytes(self.comm.Get_plan("Allgather", part, whole))
        if self.stage == 2:
            self.wholes[k] = whole
        return whole

    def reduce(self, k: int, gradient: Array) -> None:
        """Receive this rank's rows of the mean of all ranks' gradients."""
        part = self.parts[k].gradient
        self.comm.Reduce_scatter_block(gradient, part, op=mpicoll.AVG)
        self.bytes_sent += sent_bytes(self.comm.Get_plan("Reduce_scatter_block", gradient, part))

    def train(self, x: Array, y: Array, steps: int) -> None:
        """Do some steps on this rank's part of the batch."""
        for _ in range(steps):
            pass_both_ways(self.xp, len(self.parts), self.gathered, self.reduce, x, y)
            for part in self.parts:
                part.update()
            self.wholes.clear()

    def bytes_held(self) -> int:
        """Return the bytes of weights, gradients and averages that this rank keeps during a step."""
        part = int(self.parts[0].weights.nbytes)
        whole = part * self.comm.size * (len(self.parts) if self.stage == 2 else 1)  # stage 3: one layer at a time
        return 4 * part * len(self.parts) + whole


def plain(xp: Module, layers: list[Array], x: Array, y: Array, steps: int) -> list[Array]:
    """Return the weights after some steps on one process, which holds everything."""
    adams = [Adam(xp, layer.copy()) for layer in layers]
    for _ in range(steps):
        pass_both_ways(xp, len(adams), lambda k: adams[k].weights, lambda k, g: setattr(adams[k], "gradient", g), x, y)
        for adam in adams:
            adam.update()
    return [adam.weights for adam in adams]


def main() -> None:
    """Train with stages 2 and 3, and compare with one process."""
    comm = mpicoll.Communicator(MPI.COMM_WORLD)
    chosen = arguments(__doc__, width=240, depth=4, batch=32, steps=5)
    xp, size = array_module(chosen.buffers, comm), comm.size
    width = -(-chosen.width // size) * size  # so that the ranks divide it
    random = np.random.default_rng(1)
    layers = [xp.asarray(random.normal(0, width**-0.5, (width, width))) for _ in range(chosen.depth)]
    x, y = (xp.asarray(random.normal(size=(size * chosen.batch, width))) for _ in range(2))
    mine = slice(comm.rank * chosen.batch, (comm.rank + 1) * chosen.batch)
    wanted = plain(xp, layers, x, y, chosen.steps)

    nbytes = sum(layer.nbytes for layer in layers)
    hold, send = readable(4 * nbytes), readable(2 * (size - 1) / size * nbytes)
    say(
        comm,
        f"ZeRO, p = {size}: {chosen.depth} layers of {width} x {width} doubles, {chosen.steps} steps",
        f"  plain    a rank would hold {hold}, and send {send} a step",
    )
    for stage in (2, 3):
        zero = Zero(comm, xp, layers, stage)
        _, milliseconds = timed(comm, xp, zero.train, x[mine], y[mine], chosen.steps)
        sent = f"sends {readable(zero.bytes_sent / chosen.steps)} a step; {milliseconds / chosen.steps:.1f} ms a step"
        say(comm, f"  stage {stage}  a rank holds {readable(zero.bytes_held())}, and {sent}")
        for k, weights in enumerate(wanted):
            assert xp.allclose(zero.gathered(k), weights, rtol=1e-9, atol=1e-9), f"layer {k} is not that of one process"
    say(comm, "  the weights are those of Adam on one process")


if __name__ == "__main__":
    main()
