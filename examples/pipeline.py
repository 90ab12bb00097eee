"""Pipeline parallel training: each rank has some layers, and micro-batches flow through the ranks.

The problem.  A model that is too large for one device is cut between layers, one stage on each of p ranks.  Rank r
sends what its layers return to rank r+1, which sends the gradient of it back.  With one batch, one rank at a time would
work.  So the batch is cut into m micro-batches, whose gradients are added:

    rank 0   F0 F1 F2 F3 .. .. .. .. B0 B1 B2 B3         Fk: forward, Bk: backward of micro-batch k
    rank 1   .. F0 F1 F2 F3 .. .. B0 B1 B2 B3 ..         all forward, then all backward (GPipe)
    rank 2   .. .. F0 F1 F2 F3 B0 B1 B2 B3 .. ..

    rank 0   F0 F1 F2 .. .. B0 F3 B1 .. B2 .. B3
    rank 1   .. F0 F1 .. B0 F2 B1 F3 B2 .. B3 ..         one forward, one backward (1F1B)
    rank 2   .. .. F0 B0 F1 B1 F2 B2 F3 B3 .. ..

Messages, no collective.  Each rank receives just before it computes, and does not wait for what it sends: two ranks
that send to each other and wait would wait for ever.

Cost.  A rank sends a micro-batch's activations down and their gradients up, whatever the number of weights: the least
of all ways to cut a model, and so the one for slow links.  Both orders waste (p-1)/(m+p-1) of the time, the bubble.
But rank r keeps the activations of m micro-batches in the first, of at most p-r in the second.

What to look at.  Micro-batches kept; bytes sent, against the gradients that data parallel training would send.
"""

from __future__ import annotations

import mpicoll
import numpy as np
from mpi4py import MPI
from mpicoll.schedule import offsets, split

from _common import Array, Module, arguments, array_module, readable, say, timed


def order(ahead: int, micro: int) -> list[tuple[str, int]]:
    """Return what a rank does, in order: ("forward" or "backward", micro-batch).

    Args:
        ahead: micro-batches that go forward before the first one goes backward.
        micro: number of micro-batches.
    """
    turns: list[tuple[str, int]] = []
    for turn in range(micro + ahead - 1):
        if turn < micro:
            turns.append(("forward", turn))
        if turn >= ahead - 1:
            turns.append(("backward", turn - ahead + 1))
    return turns


class Stage:
    """Some layers of a network of tanh layers, with their gradients and the activations that are kept."""

    def __init__(self, xp: Module, weights: list[Array]) -> None:
        self.xp, self.weights, self.most = xp, weights, 0
        self.gradients = [xp.zeros_like(w) for w in weights]
        self.kept: dict[int, list[Array]] = {}

    def forward(self, k: int, x: Array) -> Array:
        """Return what the layers make of micro-batch k."""
        passed = [x]
        for w in self.weights:
            passed.append(self.xp.tanh(passed[-1] @ w))
        self.kept[k] = passed
        self.most = max(self.most, len(self.kept))
        return passed[-1]

    def backward(self, k: int, delta: Array) -> Array:
        """Add to the gradients, and return the gradient of what came in, given that of what went out."""
        passed = self.kept.pop(k)
        for layer in reversed(range(len(self.weights))):
            delta = delta * (1 - passed[layer + 1] ** 2)
            self.gradients[layer] += passed[layer].T @ delta
            delta = delta @ self.weights[layer].T
        return delta


class Pipeline:
    """This rank's stage between its neighbours."""

    def __init__(self, comm: mpicoll.Communicator, xp: Module, stage: Stage) -> None:
        self.comm, self.xp, self.stage, self.bytes_sent = comm, xp, stage, 0
        self.first, self.last = comm.rank == 0, comm.rank == comm.size - 1
        self.requests: list[MPI.Request] = []

    def receive(self, k: int, like: Array, source: int) -> Array:
        """Return what a neighbour sends of micro-batch k."""
        received = self.xp.empty_like(like)
        self.comm.Recv(received, source, tag=k)
        return received

    def send(self, k: int, x: Array, peer: int) -> None:
        """Start sending something of micro-batch k; the request holds the array."""
        self.requests.append(self.comm.Isend(x, peer, tag=k))
        self.bytes_sent += x.nbytes

    def train(self, turns: list[tuple[str, int]], x: list[Array], y: list[Array]) -> None:
        """Compute the gradients of this rank's layers.

        Args:
            turns: what to do, in order.
            x: the micro-batches; only the first rank reads their numbers, the others their shape.
            y: what should come out; only the last rank reads it.
        """
        rank, out = self.comm.rank, {}
        for what, k in turns:
            if what == "forward":
                out[k] = self.stage.forward(k, x[k] if self.first else self.receive(k, x[k], rank - 1))
                if not self.last:
                    self.send(k, out.pop(k), rank + 1)
            else:
                delta = 2 / (len(y) * y[k].size) * (out.pop(k) - y[k]) if self.last else self.receive(k, x[k], rank + 1)
                delta = self.stage.backward(k, delta)
                if not self.first:
                    self.send(k, delta, rank - 1)
        for request in self.requests:
            request.Wait()


def main() -> None:
    """Compute a network's gradients by a pipeline, in both orders, and compare with one process."""
    comm = mpicoll.Communicator(MPI.COMM_WORLD)
    chosen = arguments(__doc__, width=192, depth=8, micro=8, rows=16)
    xp, rank, size, micro = array_module(chosen.buffers, comm), comm.rank, comm.size, chosen.micro
    if size > chosen.depth:
        say(comm, f"pipeline: {chosen.depth} layers are too few for {size} ranks; see --help")
        return
    random = np.random.default_rng(1)
    weights = [
        xp.asarray(random.normal(0, chosen.width**-0.5, (chosen.width, chosen.width))) for _ in range(chosen.depth)
    ]
    x, y = (xp.asarray(random.normal(size=(micro, chosen.rows, chosen.width))) for _ in range(2))
    counts = split(chosen.depth, size)
    mine = slice(offsets(counts)[rank], offsets(counts)[rank] + counts[rank])

    whole, width = Stage(xp, weights), chosen.width  # the network on one process, with the whole batch
    delta = 2 / y.size * (whole.forward(0, x.reshape(-1, width)) - y.reshape(-1, width))
    whole.backward(0, delta)

    say(comm, f"Pipeline, p = {size}: {chosen.depth} layers, {micro} micro-batches of {chosen.rows} x {width} doubles")
    for name, ahead in (("all forward first", micro), ("one forward, one backward", min(size - rank, micro))):
        line = Pipeline(comm, xp, Stage(xp, weights[mine]))
        _, milliseconds = timed(comm, xp, line.train, order(ahead, micro), list(x), list(y))
        for found, wanted in zip(line.stage.gradients, whole.gradients[mine], strict=True):
            assert xp.allclose(found, wanted), "a gradient is not that of one process"
        kept = f"rank 0 keeps {line.stage.most} micro-batches and sends {readable(line.bytes_sent)}"
        say(comm, f"  {name}: {kept}; {milliseconds:.1f} ms")
    nbytes = sum(w.nbytes for w in weights)
    say(
        comm,
        f"  weights and gradients: {readable(2 * nbytes / size)} a rank, of {readable(2 * nbytes)}",
        f"  data parallel training: a rank would hold all, and send {readable(2 * (size - 1) / size * nbytes)}",
        f"  bubble: {(size - 1) / (micro + size - 1):.0%} of the time; the gradients are those of one process",
    )


if __name__ == "__main__":
    main()
