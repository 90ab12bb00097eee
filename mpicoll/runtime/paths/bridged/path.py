"""The path bridged: a kernel inside each host, messages between hosts, and a kernel again."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

from mpicoll.algorithms import registry
from mpicoll.algorithms.card import Algorithm
from mpicoll.dispatch.plan import COUNTS_UNKNOWN, Plan, schedule_of
from mpicoll.runtime.arguments.operands import Operands
from mpicoll.runtime.context.context import Context
from mpicoll.runtime.context.slot import Slot
from mpicoll.runtime.cuda import kernels
from mpicoll.runtime.cuda.streams import mark
from mpicoll.runtime.paths.base import Path
from mpicoll.runtime.paths.bridged.bridge import bridge_of
from mpicoll.runtime.paths.mapped import watchdog
from mpicoll.runtime.paths.mapped.inbox_layout import PLACES
from mpicoll.runtime.paths.mapped.inboxes import Peers, connect
from mpicoll.runtime.paths.mapped.kernel import is_even, kept, made_kernel
from mpicoll.runtime.paths.mapped.path import MappedPath, add_launch
from mpicoll.runtime.program.bound import LAUNCH, ORDER, SYNC, Bound
from mpicoll.runtime.program.layout import Shape
from mpicoll.runtime.program.local_work import Action
from mpicoll.runtime.progress.exchange import Routine
from mpicoll.schedule.collectives import COLLECTIVES
from mpicoll.schedule.phases import Phases
from mpicoll.schedule.topology import Topology
from mpicoll.settings import settings


class BridgedPath(Path):
    """Kernels inside hosts, whose ranks map each other's memory, and messages between hosts.

    Calls take their turn in one order, as the kernels of a host's ranks must.
    """

    name = "bridged"
    ordered = True

    def unoffered(self, context: Context, operands: Operands) -> str:
        """Return why a call cannot be kernels and messages, "" if it can."""
        found = context.attached.get(self.name, f"path={settings.path!r} is set")
        if isinstance(found, str):
            return found
        if not found.linked and context.topology.hosts > PLACES:
            return f"the GPUs are not linked by NVLink, and there are more than {PLACES} hosts"
        name, op = operands.row.name, operands.op
        if name not in COLLECTIVES or not any(card.by_hosts for card in registry.known(name)):
            return f"{name} has no algorithm for several hosts"
        if operands.method in COUNTS_UNKNOWN:
            return "not all ranks know all counts"
        if op is not None and settings.reproducible:
            return "the setting reproducible takes algorithms of one host"
        if op is not None and not kernels.serves(op, operands.dtype):
            return "the operator is a Python function without a CUDA expression"
        return "" if op is None or op.commutative else "operands must keep their order"

    def is_prepared(self, context: Context) -> bool:
        """Tell whether the memory of each host's ranks is mapped, cannot be, or is not wanted."""
        return self.name in context.attached or settings.path not in (None, self.name)

    def prepare(self, context: Context, device: int) -> Routine[None]:
        """Map the memory of each host's ranks among themselves, if it can be."""
        groups, most = context.topology.groups, settings.mapped_bytes
        if max(map(len, groups), default=1) == 1 or not most:
            why = "mapped_bytes is 0" if groups and not most else "each host has one rank"
            context.attached[self.name] = why if groups else "all ranks are on one host"
            return
        shared = bool(settings.mapped_shared)
        context.attached[self.name] = yield from connect(context.comm, device, most, shared, groups=groups)

    def home(self, context: Context) -> int:
        """Return the device of the inboxes, -1 if there are none."""
        peers = context.attached.get(self.name)
        return int(peers.device) if isinstance(peers, Peers) else -1

    def side(self, context: Context, operands: Operands, slot: Slot) -> Any:
        """Return the stream of all calls that do not block."""
        return _peers(context).side

    def bind(
        self,
        bound: Bound,
        plan: Plan,
        operands: Operands,
        context: Context,
        stream: int,
        slot: Slot,
        then: list[Action],
    ) -> None:
        """Append both kernels and the messages between them; arguments as in `Path.bind`."""
        peers, phases = _peers(context), phases_of(plan, context.rank)
        shape = Shape.of(operands, context.rank, context.size)
        limit, op = settings.timeout, operands.op
        look = watchdog.look_of(context, peers, limit) if limit > 0 else None
        bridge = bridge_of(phases, shape, operands, stream, slot, context, look)
        what = plan, shape, operands.aliased, operands.dtype, id(op), is_even(operands), operands.device, limit
        fence = slot.fence(operands.device)
        bound.add(SYNC, lambda: fence.drain(stream), poll=lambda: fence.is_drained(stream))
        for place, schedules in enumerate((phases.before, phases.after)):
            if schedules:
                make = partial(made_kernel, plan, operands, schedules, bridge.layout, peers, stored=True)
                kernel = kept(peers.kernels, (place, *what), make)
                add_launch(bound, kernel, bridge.bases, peers, context, stream)
            if not place:
                bridge.bind(bound, operands)
        bound.add(LAUNCH, *then)
        bound.add(ORDER, lambda: fence.leave(stream))
        bound.last_start = len(bound.actions) - 1
        bound.mark = lambda: mark(stream)

    def handed_over(self, bound: Bound, handover: Any, context: Context) -> Bound:
        """Return a program in order with the caller's stream; arguments as in `Path.handed_over`."""
        return bound if bound.requests else MappedPath().handed_over(bound, handover, context)


def _peers(context: Context) -> Peers:
    """Return the mapping of the memory of this host's ranks, which there is where this path is taken."""
    peers = context.attached[BridgedPath.name]
    assert isinstance(peers, Peers)
    return peers


def phases_of(plan: Plan, rank: int) -> Phases:
    """Return the phases of a rank's host."""
    facts = plan.key.facts
    card = registry.get(facts.collective, plan.algorithm)
    return _phases(card, facts.topology, plan.key.root, rank)


@lru_cache(maxsize=256)
def _phases(card: Algorithm, topology: Topology, root: int, rank: int) -> Phases:
    group = next(ranks for ranks in topology.groups if rank in ranks)
    size = len(topology.host_of)
    found = Phases.of([schedule_of(card, one, size, root, topology) for one in group], group, rank)
    assert found is not None, f"{card.name} has no phases"
    return found
