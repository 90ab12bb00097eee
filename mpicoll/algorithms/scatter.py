"""Scatter and Scatterv: the root's blocks go to their ranks."""

from functools import partial

from mpicoll.algorithms import phases, uniform
from mpicoll.algorithms.registry import packaged
from mpicoll.schedule.ir import Copy, Recv, Schedule, Scratch, Send, inp, out, step

scatter = partial(packaged, "scatter")


@scatter(
    cost="α + (p-2)*o + (p-1)/p*n*β",
    reference="folklore",
    forwards=False,
    scratch="0",
    uniform=uniform.AT_ROOT,
)
def linear(rank: int, size: int, root: int) -> Schedule:
    """The root sends everybody its block.

    Bandwidth-optimal in one round; the root handles p-1 messages.  The only one for Scatterv,
    where nobody but the root knows the counts.
    """
    if rank != root:
        return Schedule.of([step(Recv(out(rank), root))], size)
    sends = [Send(inp((root + k) % size), (root + k) % size) for k in range(1, size)]
    return Schedule.of([step(sends, Copy(out(rank), inp(rank)))], size)


@scatter(
    cost="q*α + (p-1)/p*n*β",
    reference="Thakur, Rabenseifner, Gropp 2005",
    scratch="p/2",
    packed="p-2",
    uniform=uniform.TREE,
)
def binomial(rank: int, size: int, root: int) -> Schedule:
    """Blocks go down a binomial tree, each rank receiving those of its subtree as one message.

    ceil(log2 p) rounds: short blocks on many ranks.
    """
    tmp = Scratch()
    ids = phases.subtree(rank, size, root)
    if rank == root:
        held = inp(ids)
    else:
        held = tmp.take(ids) if len(ids) > 1 else out(rank)
    steps = phases.scatter_ranges(rank, size, root, held)
    own = [] if held == out(rank) else [step(Copy(out(rank), held[0]))]
    return Schedule.of(steps + own, size, tmp)


@scatter(
    cost="(p-2+s)*α + (p-1)*o + (p-1)/p*n*β",
    reference="chain; pipelined by blocks",
    scratch="p-2",
    uniform=uniform.CHAIN,
)
def ring(rank: int, size: int, root: int) -> Schedule:
    """Blocks pass along a chain from the root, the farthest first; each rank keeps the last.

    Every rank talks to two neighbours only; the root sends one message at a time.
    """
    tmp = Scratch()
    rel = phases.relative(rank, size, root)
    ahead = [phases.absolute(q, size, root) for q in reversed(range(rel + 1, size))]
    if rel == 0:
        sends = [step(Send(inp(q), (rank + 1) % size)) for q in ahead]
        return Schedule.of([*sends, step(Copy(out(rank), inp(rank)))], size)
    steps = []
    pending = step()
    for q in ahead:
        cells = tmp.take(q)
        steps.append(step(Recv(cells, (rank - 1) % size), pending.messages))
        pending = step(Send(cells, (rank + 1) % size))
    return Schedule.of([*steps, step(Recv(out(rank), (rank - 1) % size), pending.messages)], size, tmp)
