"""Bundles: what a host has for a rank of another one goes there in one message."""

from __future__ import annotations

from mpicoll.algorithms.on_hosts.hierarchy import on_hosts
from mpicoll.algorithms.on_hosts.stage import Stage
from mpicoll.schedule.ir import Copy, Message, Recv, Ref, Schedule, Send, inp, joined, out, step


@on_hosts(
    "alltoall",
    name="bundles",
    cost="2*(α + (p-2)*o) + 2*(p-1)/p*n*β + λ + n*γ",
    scratch="4*p",
)
def bundles(stage: Stage) -> Schedule:
    """Ranks of a host exchange what each of them sends to other hosts; bundles of the host's blocks go there.

    A rank sends H-1 messages to other hosts, instead of one to each of their ranks: short blocks.
    """
    rank, size, local = stage.rank, stage.size, stage.local
    far = [one for one in stage.columns(rank) if one not in local]  # whom this rank serves for its host
    served = {one: [to for to in stage.columns(one) if to not in local] for one in local}
    near = [one for one in local if one != rank]
    inside: list[Message] = [Send(inp([rank * size + one]), one) for one in near]
    inside += [Recv(out([one * size + rank]), one) for one in near]
    stage.steps.append(step(inside, Copy(out([rank * size + rank]), inp([rank * size + rank]))))
    held = {one: stage.tmp.take([one * size + to for to in far]) if far else Ref("scratch", ()) for one in local}
    messages: list[Message] = [Send(inp([rank * size + to for to in served[one]]), one) for one in near if served[one]]
    messages += [Recv(held[one], one) for one in near if far]
    own = [Copy(held[rank], inp([rank * size + to for to in far]))] if far else []
    stage.steps.append(step(messages, own))
    outside: list[Message] = [Send(joined(held[one][k] for one in local), to) for k, to in enumerate(far)]
    for group in stage.groups:
        if rank not in group:
            sender = stage.stands_for(rank, group)
            outside.append(Recv(out([one * size + rank for one in group]), sender))
    with stage.outside():
        stage.steps.append(step(outside))
    return stage.done(size * size)
