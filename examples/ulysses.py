"""Ulysses: attention over a sequence that is spread over the ranks, by two all-to-alls.

The problem.  Long sequences do not fit on one device.  So each of p ranks has a part of the tokens, which is all
that most of a transformer needs: its other layers treat each token by itself.  Attention does not: each token looks
at all others.  But it treats each head by itself.  So (DeepSpeed-Ulysses) the ranks exchange tokens for heads:

               heads                                heads
             0 1 2 3                              0 1 2 3
    tokens   a a a a   rank 0    all-to-all       a b c d
    tokens   b b b b   rank 1    --------->       a b c d        rank 0 has head 0 of all tokens, and so on
    tokens   c c c c   rank 2    <---------       a b c d
    tokens   d d d d   rank 3    all-to-all       a b c d

Collective.  Alltoall: once for queries, keys and values together, once for the result.

Cost.  Of n bytes of one tensor over all ranks, a rank has n/p and sends (p-1)/p of them; four tensors take
4 (p-1)/p n/p.  It falls with p: twice the ranks can have twice the tokens at the same cost.  To gather keys and
values on each rank instead costs 2 (p-1)/p n, which does not fall.

Limit.  p must divide the number of heads.

What to look at.  Bytes sent, against those of gathering keys and values.
"""

from __future__ import annotations

import mpicoll
import numpy as np
from mpi4py import MPI

from _common import Array, Module, arguments, array_module, readable, say, sent_bytes, timed


def attention(xp: Module, query: Array, key: Array, value: Array) -> Array:
    """Return softmax(query key^T / sqrt(d)) value for each head; arrays are (tokens, heads, d)."""
    query, key, value = (x.transpose(1, 0, 2) for x in (query, key, value))
    scores = query @ key.transpose(0, 2, 1) / query.shape[-1] ** 0.5
    weights = xp.exp(scores - scores.max(axis=-1, keepdims=True))
    return (weights / weights.sum(axis=-1, keepdims=True) @ value).transpose(1, 0, 2)


def heads_for_tokens(comm: mpicoll.Communicator, x: Array) -> Array:
    """Return some heads of all tokens, given all heads of some tokens; x is (tokens, heads, ...)."""
    tokens, heads, *rest = x.shape
    parts = x.reshape(tokens, comm.size, heads // comm.size, *rest).swapaxes(0, 1)  # part q: the heads of rank q
    received = mpicoll.alltoall(parts, comm=comm)  # part q: the tokens of rank q
    return received.reshape(tokens * comm.size, heads // comm.size, *rest)


def tokens_for_heads(comm: mpicoll.Communicator, x: Array) -> Array:
    """Return all heads of some tokens, given some heads of all tokens: the way back."""
    tokens, heads, *rest = x.shape
    parts = x.reshape(comm.size, tokens // comm.size, heads, *rest)  # part q: the tokens of rank q
    received = mpicoll.alltoall(parts, comm=comm).swapaxes(0, 1)  # part q: the heads of rank q
    return received.reshape(tokens // comm.size, heads * comm.size, *rest)


def ulysses(comm: mpicoll.Communicator, xp: Module, query: Array, key: Array, value: Array) -> Array:
    """Return the attention of this rank's tokens to all tokens."""
    together = xp.stack((query, key, value), axis=-1)  # one exchange of three tensors instead of three
    query, key, value = xp.moveaxis(heads_for_tokens(comm, together), -1, 0)
    return tokens_for_heads(comm, attention(xp, query, key, value))


def main() -> None:
    """Attend to all tokens with the tokens spread over ranks, and compare with one process."""
    comm = mpicoll.Communicator(MPI.COMM_WORLD)
    chosen = arguments(__doc__, tokens=480, heads=12, d=32)
    xp, rank, size = array_module(chosen.buffers, comm), comm.rank, comm.size
    if chosen.heads % size or chosen.tokens % size:
        say(comm, f"Ulysses: {size} ranks do not divide {chosen.heads} heads and {chosen.tokens} tokens; see --help")
        return
    random = np.random.default_rng(1)
    whole = [xp.asarray(random.normal(size=(chosen.tokens, chosen.heads, chosen.d))) for _ in range(3)]
    mine = slice(rank * chosen.tokens // size, (rank + 1) * chosen.tokens // size)
    parts = [x[mine] for x in whole]

    found, milliseconds = timed(comm, xp, ulysses, comm, xp, *parts)
    assert xp.allclose(found, attention(xp, *whole)[mine]), "the attention is not that of one process"

    three, one = (xp.empty((size, k * parts[0].size // size)) for k in (3, 1))
    sent = sum(sent_bytes(comm.Get_plan("Alltoall", x, xp.empty_like(x))) for x in (three, one))
    gathered = 2 * (size - 1) * parts[0].nbytes
    scores = chosen.heads * chosen.tokens**2 * whole[0].itemsize
    say(
        comm,
        f"Ulysses, p = {size}: {chosen.tokens} tokens, {chosen.heads} heads of {chosen.d} doubles",
        f"  a rank sends {readable(sent)}; gathering keys and values: {readable(gathered)}",
        f"  the scores of a rank take {readable(scores / size)}; those of all heads: {readable(scores)}",
        f"  {milliseconds:.1f} ms; equal to the attention of one process",
    )


if __name__ == "__main__":
    main()
