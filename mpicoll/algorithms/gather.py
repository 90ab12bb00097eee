"""Gather and Gatherv: every rank's block goes to the root."""

from functools import partial

from mpicoll.algorithms import phases, uniform
from mpicoll.algorithms.registry import packaged
from mpicoll.schedule.ir import Copy, Recv, Schedule, Scratch, Send, inp, out, step

gather = partial(packaged, "gather")


@gather(
    cost="α + (p-2)*o + (p-1)/p*n*β",
    reference="folklore",
    forwards=False,
    scratch="0",
    uniform=uniform.AT_ROOT,
)
def linear(rank: int, size: int, root: int) -> Schedule:
    """Everybody sends its block to the root.

    Bandwidth-optimal in one round; the root handles p-1 messages.  The only one for Gatherv,
    where nobody but the root knows the counts.
    """
    if rank != root:
        return Schedule.of([step(Send(inp(rank), root))], size)
    receives = [Recv(out((root + k) % size), (root + k) % size) for k in range(1, size)]
    return Schedule.of([step(receives, Copy(out(rank), inp(rank)))], size)


@gather(
    cost="q*α + (p-1)/p*n*β",
    reference="Thakur, Rabenseifner, Gropp 2005",
    scratch="p/2",
    packed="p-2",
    uniform=uniform.TREE,
)
def binomial(rank: int, size: int, root: int) -> Schedule:
    """Blocks go up a binomial tree, each rank sending those of its subtree as one message.

    ceil(log2 p) rounds: short blocks on many ranks.
    """
    tmp = Scratch()
    ids = phases.subtree(rank, size, root)
    if rank == root:
        held = out(ids)
    else:
        held = tmp.take(ids) if len(ids) > 1 else inp(rank)
    own = [] if held == inp(rank) else [step(Copy(held[0], inp(rank)))]
    return Schedule.of(own + phases.gather_ranges(rank, size, root, held), size, tmp)


@gather(
    cost="(p-2+s)*α + (p-1)*o + (p-1)/p*n*β",
    reference="chain; pipelined by blocks",
    scratch="p-2",
    uniform=uniform.CHAIN,
)
def ring(rank: int, size: int, root: int) -> Schedule:
    """Blocks pass along a chain to the root, a rank's own first, then those after it.

    Every rank talks to two neighbours only; the root receives one message at a time.
    """
    tmp = Scratch()
    rel = phases.relative(rank, size, root)
    behind = [phases.absolute(q, size, root) for q in range(rel + 1, size)]
    cells = [out(q) if rel == 0 else tmp.take(q) for q in behind]
    sends = [inp(rank), *cells] if rel else []
    steps = [step(Copy(out(rank), inp(rank)) if rel == 0 else ())]
    for k in range(max(len(cells), len(sends))):
        receive = Recv(cells[k], (rank + 1) % size) if k < len(cells) else ()
        steps.append(step(receive, Send(sends[k], (rank - 1) % size) if k < len(sends) else ()))
    return Schedule.of(steps, size, tmp)
