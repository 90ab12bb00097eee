"""Placement: which ranks should share a host?  The groups that send most.

The problem.  A link inside a host (NVLink) is many times as fast as one between hosts (InfiniBand).  Large models are
trained by two of these ways at once, so that each rank is in two groups:

    tensor    the T ranks of a group share each layer: rank t has some columns of A, some rows of B, and an allreduce
              adds the parts of  tanh(x A) B.  In each layer one of the activations, one of their gradients
    data      D groups have the same weights and other tokens; an allreduce of the gradients, once in a step
    pipeline  or: D groups have other layers; activations go to the next group, their gradients come back

                     host 0       host 1                       host 0       host 1
                   [ 0    1 ]   [ 2    3 ]                   ( 0    1 )   ( 2    3 )        [ ] tensor group
    good             (0 and 2), (1 and 3)          bad         [0 and 2], [1 and 3]         ( ) data group

Only the numbers of the ranks differ, so a job that is started in another order is slower, with the same result.

Collective.  Allreduce in both groups, made by Split.

Cost.  Of n bytes of activations a rank sends 2 (T-1)/T n in each of 2 allreduces a layer, and must wait for each.  Of
its part of the weights it sends 2 (D-1)/D, once, and can do so while it computes the rest.  On 2 hosts of 2 the tensor
groups send more if each has more than 2 x width tokens (try --tokens 256: equal).

What to look at.  Bytes that leave a host.  They are counted in the schedules that mpicoll would choose for NumPy arrays
(`mpicoll.plan`).  The time is predicted step by step: what the busiest rank takes inside, or the busiest host across.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product

import mpicoll
import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from _common import Array, Module, arguments, array_module, readable, say, sent, timed

#: the first half of the ranks is on the first host
HOSTS = 2
Pair = tuple[Array, Array]
#: (from, to, bytes) of messages that are sent at the same time
Messages = list[tuple[int, int, float]]


@dataclass(frozen=True)
class Model:
    """Layers tanh(x A) B with A of width x 4 width; all groups' tokens; bytes of a number."""

    layers: int
    width: int
    tokens: int
    itemsize: int


def mesh(per_host: int, inside: bool) -> NDArray[np.int64]:
    """Return the ranks as a matrix: its rows are tensor groups, inside a host or across all; its columns the others."""
    ranks = np.arange(HOSTS * per_host)
    return ranks.reshape(HOSTS, per_host) if inside else ranks.reshape(per_host, HOSTS).T


def allreduce(groups: NDArray[np.int64], nbytes: int) -> list[Messages]:
    """Return the messages of an allreduce in all groups at once, step by step; each row is a group."""
    size = groups.shape[1]
    plans = [mpicoll.plan("allreduce", size=size, nbytes=nbytes, rank=rank) for rank in range(size)]
    steps: list[Messages] = [[] for _ in range(max(len(plan.schedule.steps) for plan in plans))]
    for group, (rank, plan) in product(groups.tolist(), enumerate(plans)):
        for number, messages in enumerate(sent(plan)):
            steps[number] += [(group[rank], group[peer], share) for peer, share in messages]
    return steps


def communication(model: Model, per_host: int, inside: bool, other: str) -> list[Messages]:
    """Return the messages of a step of training, one after the other but for those sent at the same time.

    Args:
        model: what is trained.
        per_host: ranks of a host, and of a tensor group.
        inside: tensor groups are inside hosts.
        other: what the other groups are for: "data" or "pipeline".
    """
    tensor = mesh(per_host, inside)
    activations = model.tokens // HOSTS * model.width * model.itemsize
    steps = 2 * model.layers * allreduce(tensor, activations)
    if other == "data":
        return steps + 2 * model.layers * allreduce(tensor.T, 4 * model.width**2 // per_host * model.itemsize)
    down = [(group[0], group[1], float(HOSTS * activations)) for group in tensor.T.tolist()]
    return [*steps, down, [(target, source, nbytes) for source, target, nbytes in down]]


def loads(messages: Messages, per_host: int) -> dict[tuple[str, int], float]:
    """Return the bytes on each link: ("far", host) is the one that leaves a host, ("near", rank) a rank's inside."""
    links: dict[tuple[str, int], float] = defaultdict(float)
    for source, target, nbytes in messages:
        host = source // per_host
        links[("near", source) if target // per_host == host else ("far", host)] += nbytes
    return links


def predict(steps: list[Messages], per_host: int, machine: argparse.Namespace) -> tuple[float, float]:
    """Return (bytes that leave a host, milliseconds); the machine has microseconds near and far, GB/s fast and slow."""
    leaving, milliseconds = 0.0, 0.0
    for links in (loads(messages, per_host) for messages in steps):
        leaving += links.get(("far", 0), 0.0)
        times = {"near": (machine.near, machine.fast), "far": (machine.far, machine.slow)}
        each = (times[kind][0] / 1e3 + nbytes / times[kind][1] / 1e6 for (kind, _), nbytes in links.items())
        milliseconds += max(each, default=0.0)  # a step without messages takes no time here
    return leaving, milliseconds


def gradients(xp: Module, layers: list[Pair], x: Array, y: Array, add: Callable[[Array], Array]) -> list[Pair]:
    """Return the gradients of a network's weights A and B, or of the parts that this rank has.

    Args:
        xp: NumPy or CuPy.
        layers: (columns of A, the same rows of B) of each layer.
        x: tokens.
        y: what should come out; the loss is half the sum of squares.
        add: returns the sum over a tensor group.
    """
    passed = []
    for a, b in layers:
        passed.append((x, xp.tanh(x @ a)))
        x = add(passed[-1][1] @ b)
    found, delta = [], x - y
    for (a, b), (before, inner) in zip(reversed(layers), reversed(passed), strict=True):
        below = (delta @ b.T) * (1 - inner**2)
        found.append((before.T @ below, inner.T @ delta))
        delta = add(below @ a.T)
    return found[::-1]


def run(comm: mpicoll.Communicator, xp: Module, model: Model, inside: bool) -> float:
    """Return the milliseconds of a step on this job's ranks, whose result is compared with that of one process."""
    row, column = np.argwhere(mesh(comm.size // HOSTS, inside) == comm.rank)[0].tolist()
    tensor, data = comm.Split(row), comm.Split(column)
    random, hidden = np.random.default_rng(1), 4 * model.width
    shapes = (model.width, hidden), (hidden, model.width)
    layers = [tuple(xp.asarray(random.normal(0, hidden**-0.5, s)) for s in shapes) for _ in range(model.layers)]
    x, y = (xp.asarray(random.normal(size=(model.tokens, model.width))) for _ in range(2))
    columns, rows = share(hidden, tensor), share(model.tokens, data)
    parts = [(a[:, columns], b[columns]) for a, b in layers]

    def step() -> list[Pair]:
        found = gradients(xp, parts, x[rows], y[rows], partial(mpicoll.allreduce, comm=tensor))
        return [(mpicoll.allreduce(a, comm=data), mpicoll.allreduce(b, comm=data)) for a, b in found]

    step()  # a first call has more to do
    found, milliseconds = timed(comm, xp, step)
    for (a, b), wanted in zip(found, gradients(xp, layers, x, y, lambda whole: whole), strict=True):
        assert xp.allclose(a, wanted[0][:, columns]), "a gradient of A is not that of one process"
        assert xp.allclose(b, wanted[1][columns]), "a gradient of B is not that of one process"
    tensor.Free()
    data.Free()
    return milliseconds


def share(extent: int, comm: MPI.Intracomm) -> slice:
    """Return this rank's part of an axis."""
    return slice(comm.rank * extent // comm.size, (comm.rank + 1) * extent // comm.size)


def main() -> None:
    """Predict good and bad placement, then run both, if there are enough ranks."""
    comm = mpicoll.Communicator(MPI.COMM_WORLD)
    chosen = arguments(__doc__, near=2.0, far=10.0, fast=300.0, slow=50.0, layers=2, width=64, tokens=1024)
    xp, enough = array_module(chosen.buffers, comm), comm.size >= 2 * HOSTS and comm.size % HOSTS == 0
    per_host = comm.size // HOSTS if enough else 2
    small, large = Model(chosen.layers, chosen.width, chosen.tokens, 8), Model(32, 4096, 32768, 2)
    say(
        comm,
        f"Placement, {HOSTS} hosts of {per_host} ranks; inside a host {chosen.near} us and {chosen.fast} GB/s, "
        f"across {chosen.far} us and {chosen.slow} GB/s",
    )
    for model, others in ((large, ("data", "pipeline")), (small, ("data",))):
        say(comm, f"  {model}; a step of training:")
        for other, inside in product(others, (True, False)):
            leaving, milliseconds = predict(communication(model, per_host, inside, other), per_host, chosen)
            places = ("inside", "across") if inside else ("across", "inside")
            words = f"    tensor {places[0]}, {other:<8} {places[1]}   a host sends {readable(leaving):>10}"
            words += f", messages predicted {milliseconds:8.3f} ms"
            if model is small and enough:
                words += f", step measured {run(comm, xp, model, inside):8.3f} ms"
            say(comm, words)
    if enough:
        say(comm, "  the gradients are those of one process")
    else:
        say(comm, f"  to run it start an even number of ranks, at least {2 * HOSTS}; not {comm.size}")


if __name__ == "__main__":
    main()
