"""Phases of powers of two: ranks fold to one, and partners 1, 2, 4, ... away exchange."""

from __future__ import annotations

from collections.abc import Callable

from mpicoll.schedule.ir import Copy, Recv, Reduce, Ref, Scratch, Send, Step, step
from mpicoll.schedule.patterns import Fold, fold, halves


def fold_in(
    folded: Fold, source: Ref, target: Ref, tmp: Scratch, name: Callable[[int], int] = int
) -> tuple[list[Step], Ref]:
    """Return (steps in which extra ranks hand their part to their proxies, cells that then hold a member's part)."""
    if folded.partner is None:
        return [], source
    if folded.index is None:
        return [step(Send(source, name(folded.partner)))], source
    received = tmp.take(source.cells)
    return [step(Recv(received, name(folded.partner)), Reduce(target, (source, received)))], target


def fold_out(folded: Fold, cells: Ref, name: Callable[[int], int] = int) -> list[Step]:
    """Proxies hand the result back to their extra ranks."""
    if folded.partner is None:
        return []
    other = name(folded.partner)
    return [step(Recv(cells, other) if folded.index is None else Send(cells, other))]


def doubling_allreduce(rank: int, size: int, source: Ref, target: Ref, tmp: Scratch) -> list[Step]:
    """Exchange everything with partners 1, 2, 4, ... away, lower rank's operand first."""
    if size == 1:
        return [step(Copy(target, source))]
    folded = fold(rank, size)
    steps, held = fold_in(folded, source, target, tmp)
    if folded.index is not None:
        for k in range(folded.bits):
            partner = folded.member(folded.index ^ 1 << k)
            received = tmp.take(source.cells)
            pair = (held, received) if rank < partner else (received, held)
            steps.append(step(Send(held, partner), Recv(received, partner), Reduce(target, pair)))
            held = target
    return steps + fold_out(folded, target)


def halving_reduce_scatter(
    folded: Fold, source: Ref, target: Ref, tmp: Scratch, name: Callable[[int], int] = int
) -> list[Step]:
    """Exchange half of what a member still holds with partners 1, 2, 4, ... away (Rabenseifner).

    Neighbours combine first, so rank order is kept.  `source` and `target` have 2**bits blocks;
    `name` turns a member into the rank to send to.
    """
    assert folded.index is not None
    held = source
    steps = []
    for k in range(folded.bits):
        other = folded.index ^ 1 << k
        partner = name(folded.member(other))
        keeps, gives = halves(folded.index, folded.bits)[k + 1], halves(other, folded.bits)[k + 1]
        received = tmp.take(keeps)
        kept = _part(held, keeps)
        pair = (kept, received) if folded.index < other else (received, kept)
        result = _part(target, keeps)
        steps.append(step(Send(_part(held, gives), partner), Recv(received, partner), Reduce(result, pair)))
        held = target
    return steps


def doubling_allgather(folded: Fold, cells: Ref, name: Callable[[int], int] = int) -> list[Step]:
    """Exchange what members hold after halving, in the opposite order of rounds."""
    assert folded.index is not None
    steps = []
    for k in reversed(range(folded.bits)):
        other = folded.index ^ 1 << k
        mine, theirs = halves(folded.index, folded.bits)[k + 1], halves(other, folded.bits)[k + 1]
        partner = name(folded.member(other))
        steps.append(step(Send(_part(cells, mine), partner), Recv(_part(cells, theirs), partner)))
    return steps


def halves_gather(folded: Fold, cells: Ref, name: Callable[[int], int]) -> list[Step]:
    """Collect at member 0 what members hold after halving."""
    assert folded.index is not None
    steps: list[Step] = []
    for k in reversed(range(folded.bits)):
        other = folded.index ^ 1 << k
        partner = name(folded.member(other))
        if folded.index >> k & 1:
            return [*steps, step(Send(_part(cells, halves(folded.index, folded.bits)[k + 1]), partner))]
        steps.append(step(Recv(_part(cells, halves(other, folded.bits)[k + 1]), partner)))
    return steps


def _part(cells: Ref, blocks: range) -> Ref:
    return cells[blocks.start : blocks.stop]
