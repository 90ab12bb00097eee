"""Mixture of experts: tokens travel to the experts that a gate has chosen, and back, in uneven numbers.

The problem.  A layer of many experts (networks) has more weights than a device holds, but each token needs two of
them.  So each of p ranks holds some experts, and tokens go to them.  How many go where is known only when the gate
has looked at the tokens, and differs for each pair of ranks:

                  to rank 0   1   2   3
    from rank 0           80  31  12   5         counts, which are not known before
         rank 1           77  30  16   5         each rank knows its row, and needs its column:
         rank 2           83  25  14   6         Alltoall of the counts
         rank 3           79  28  13   8         then Alltoallv of the tokens themselves

    dispatch:  sort by expert   ->  Alltoallv  ->  experts compute
    combine:   back to order    <-  Alltoallv  <-  with the counts of sending and receiving exchanged

Collectives.  Alltoall for the counts, Alltoallv twice for the tokens.

Cost.  A rank has n bytes of tokens, each for k experts.  It sends those that are not for its own: (p-1)/p k n bytes, if
the gate is fair.  As many results go back, so a layer costs twice that, whatever the number of experts.  If the gate is
not fair, the rank with the loved experts receives more than others, and all wait for it.  Libraries that want equal
counts fill up to the most (padding), or drop tokens (capacity).

What to look at.  The table of counts; bytes with uneven counts, against those with padding.
"""

from __future__ import annotations

import mpicoll
import numpy as np
from mpi4py import MPI

from _common import Array, Module, arguments, array_module, readable, say, timed

#: experts of a rank, and experts that each token goes to
LOCAL, CHOSEN = 2, 2


def gate(xp: Module, tokens: Array, chooser: Array) -> tuple[Array, Array]:
    """Return (the chosen experts of each token, their weights), both (tokens, CHOSEN)."""
    liked = tokens @ chooser
    experts = xp.argsort(-liked, axis=1)[:, :CHOSEN]
    weights = xp.exp(xp.take_along_axis(liked, experts, axis=1))
    return experts, weights / weights.sum(axis=1, keepdims=True)


def run_expert(xp: Module, tokens: Array, weights: Array) -> Array:
    """Return what an expert makes of tokens."""
    return xp.tanh(tokens @ weights)


def layer(
    comm: mpicoll.Communicator, xp: Module, tokens: Array, chooser: Array, own: Array
) -> tuple[Array, list[int], list[int]]:
    """Run this rank's tokens through their experts.

    Args:
        comm: the ranks.
        xp: NumPy or CuPy.
        tokens: this rank's, (tokens, width).
        chooser: the gate's weights, equal on all ranks.
        own: the weights of this rank's experts.

    Returns:
        (What comes out of the layer, tokens sent to each rank, tokens received from each.)
    """
    experts, weights = gate(xp, tokens, chooser)
    order = xp.argsort(experts.ravel())  # by expert, and so by rank
    counts = xp.bincount(experts.ravel(), minlength=LOCAL * comm.size)
    counts = np.asarray(counts.tolist()).reshape(comm.size, LOCAL)  # on the host: Alltoallv must know them
    others = mpicoll.alltoall(counts, comm=comm)  # row q: tokens from rank q for each expert here
    there, here = counts.sum(axis=1).tolist(), others.sum(axis=1).tolist()

    arrived = exchanged(comm, xp, tokens[order // CHOSEN], there, here)
    labels = xp.asarray(np.repeat(np.tile(np.arange(LOCAL), comm.size), others.ravel()))
    for expert in range(LOCAL):
        arrived[labels == expert] = run_expert(xp, arrived[labels == expert], own[expert])
    back = xp.empty((len(order), tokens.shape[1]))
    back[order] = exchanged(comm, xp, arrived, here, there)
    return (back.reshape(len(tokens), CHOSEN, -1) * weights[:, :, None]).sum(axis=1), there, here


def exchanged(comm: mpicoll.Communicator, xp: Module, rows: Array, there: list[int], here: list[int]) -> Array:
    """Return the rows that arrive.

    Args:
        comm: the ranks.
        xp: NumPy or CuPy.
        rows: to be sent, in the order of ranks.
        there: number of rows for each rank.
        here: number of rows from each rank.
    """
    width = rows.shape[1]
    received = xp.empty((sum(here), width))
    comm.Alltoallv([rows, [n * width for n in there]], [received, [n * width for n in here]])
    return received


def one_by_one(xp: Module, tokens: Array, chooser: Array, weights: Array) -> Array:
    """Return what comes out of the layer on one process, which has all experts: one token after the other."""
    experts, shares = gate(xp, tokens, chooser)
    out = xp.zeros_like(tokens)
    for token, several in enumerate(experts.tolist()):
        for k, expert in enumerate(several):
            out[token] += shares[token, k] * run_expert(xp, tokens[token], weights[expert])
    return out


def main() -> None:
    """Run tokens through a layer of experts, and compare with each token going through its own on one process."""
    comm = mpicoll.Communicator(MPI.COMM_WORLD)
    chosen = arguments(__doc__, tokens=512, width=128, skew=1.5)
    xp, rank, size = array_module(chosen.buffers, comm), comm.rank, comm.size
    random = np.random.default_rng(1)
    weights = xp.asarray(random.normal(0, chosen.width**-0.5, (LOCAL * size, chosen.width, chosen.width)))
    chooser = xp.asarray(random.normal(size=(chosen.width, LOCAL * size)) * chosen.width**-0.5)
    tokens = xp.asarray(random.normal(size=(size, chosen.tokens, chosen.width))[rank])
    tokens[:, 0] = 1
    chooser[0] = xp.linspace(chosen.skew, 0, LOCAL * size)  # the first experts are loved most

    own = weights[LOCAL * rank : LOCAL * (rank + 1)]
    (found, there, here), milliseconds = timed(comm, xp, layer, comm, xp, tokens, chooser, own)
    assert xp.allclose(found, one_by_one(xp, tokens, chooser, weights)), "a token did not go through its experts"

    table, row = np.array(comm.allgather(there)), chosen.width * tokens.itemsize
    sent, received = [readable((sum(counts) - counts[rank]) * row) for counts in (there, here)]
    padded = readable((size - 1) * int(table.max()) * row)
    work = table.sum(axis=0)
    say(
        comm,
        f"Mixture of experts, p = {size}: {LOCAL} experts a rank, {chosen.tokens} tokens a rank, each to {CHOSEN}",
        *(f"  from rank {source} to each: {counts}" for source, counts in enumerate(table.tolist())),
        f"  rank 0 sends {sent} and receives {received}; with padding, each rank {padded} both ways",
        f"  the busiest rank has {work.max() / work.mean():.2f} times the mean of the work",
        f"  {milliseconds:.1f} ms; each token equal to itself through its experts on one process",
    )


if __name__ == "__main__":
    main()
