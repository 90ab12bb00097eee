"""A call in a simulation: an algorithm, its ranks and bytes, on a machine."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from mpicoll.algorithms.card import Algorithm
from mpicoll.schedule.planner import compile_program
from mpicoll.simulate.actions import Sizes, of_messages, of_program, of_schedule
from mpicoll.simulate.engine import simulate
from mpicoll.simulate.machine import Machine
from mpicoll.simulate.result import Run


def simulate_call(
    card: Algorithm, machine: Machine, ranks: int, nbytes: float, *, root: int = 0, segments: int = 1
) -> Run:
    """Return the run of all ranks' schedules: the steps as written, or in segments as the planner orders them.

    Args:
        card: the algorithm.
        machine: what it runs on.
        ranks: number of ranks.
        nbytes: bytes of the full vector, as in plans; a barrier has none, and no local work.
        root: the root, where the collective has one.
        segments: slices of every block.

    Raises:
        ValueError: the machine cannot have so many ranks.
    """
    network = machine.of_ranks(ranks)
    block = nbytes / card.vector_blocks(ranks) / segments
    sizes = Sizes(0.0) if card.row.idempotent else Sizes(block, machine.gamma, machine.launch)
    with _without_collector():
        schedules = card.schedules(ranks, root, network.topology)
        if segments == 1:
            actions = [of_schedule(s, sizes) for s in schedules]
        else:
            actions = [of_program(compile_program(s, segments, 0, card.row.shared), sizes) for s in schedules]
        return simulate(actions, network, machine.extra, machine.call)


def simulate_messages(messages: list[tuple[int, int]], machine: Machine, ranks: int, nbytes: float) -> Run:
    """Return the run of messages that all start at once.

    Args:
        messages: (source, target) of each.
        machine: what they run on.
        ranks: number of ranks.
        nbytes: bytes of each.
    """
    actions = of_messages([(source, target, nbytes) for source, target in messages], ranks)
    return simulate(actions, machine.of_ranks(ranks), machine.extra)


@contextmanager
def _without_collector() -> Iterator[None]:
    """Keep Python from looking for garbage: schedules are millions of objects, and none is garbage."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
