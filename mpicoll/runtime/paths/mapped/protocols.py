"""The protocol of a call on the path mapped, and the mapping that it uses: equal on all ranks."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

from mpicoll.algorithms import registry
from mpicoll.dispatch.plan import Plan, schedule_of
from mpicoll.errors import UnsupportedError
from mpicoll.runtime.paths.mapped.inbox_layout import PLACES
from mpicoll.runtime.paths.mapped.inboxes import Peers
from mpicoll.runtime.paths.mapped.source import LINES, SLICES, Protocol
from mpicoll.schedule.ir import Schedule, Send
from mpicoll.schedule.topology import Topology
from mpicoll.settings import format_bytes

#: bytes of the longest block that travels in the protocol `lines`, where the GPUs are linked by NVLink
LINES_LIMIT = 4 << 20


def piece_for(plan: Plan, peers: Peers) -> Peers:
    """Return the mapping for a call: the larger one where it has more tiles than the first one has slots."""
    larger = peers.larger
    return larger if isinstance(larger, Peers) and wants_more(plan, peers) else peers


def wants_more(plan: Plan, peers: Peers) -> bool:
    """Tell whether a call could use more slots than a mapping has: equal on all ranks, from facts that all know."""
    facts = plan.key.facts
    schedules = all_schedules(plan)
    protocol, most, block = way_of(plan, schedules, peers)
    slots = _slots(protocol, most, peers)
    tiles = protocol.slots if facts.nbytes is None else -(-block // protocol.tile)
    return slots < min(tiles, protocol.slots)


def all_schedules(plan: Plan) -> tuple[Schedule, ...]:
    """Return the schedules of all ranks."""
    facts = plan.key.facts
    return _schedules(facts.collective, plan.algorithm, facts.size, plan.key.root, facts.topology, registry.revision())


@lru_cache(maxsize=1024)
def _schedules(
    collective: str, algorithm: str, size: int, root: int, topology: Topology, revision: int
) -> tuple[Schedule, ...]:
    card = registry.get(collective, algorithm)
    return tuple(schedule_of(card, rank, size, root, card.seen(topology)) for rank in range(size))


def protocol_for(plan: Plan, schedules: tuple[Schedule, ...], peers: Peers) -> tuple[Protocol, int]:
    """Return (protocol, slots of a wave), the same on all ranks."""
    facts = plan.key.facts
    protocol, most, _ = way_of(plan, schedules, peers)
    slots = _slots(protocol, most, peers)
    if not slots or (most > PLACES and protocol.name == "slices"):
        raise UnsupportedError(
            f"{facts.collective}: algorithm {plan.algorithm!r} sends {most} blocks from rank to rank, too many for "
            f"the path {plan.path} with mapped_bytes={format_bytes(peers.layout.nbytes)}; usable: path direct or staged"
        )
    return protocol, slots


def way_of(plan: Plan, schedules: tuple[Schedule, ...], peers: Peers) -> tuple[Protocol, int, int]:
    """Return (protocol, most cells from rank to rank, bytes of a block), the same on all ranks."""
    most, facts = most_sent(schedules), plan.key.facts
    card = registry.get(facts.collective, plan.algorithm)
    block = (facts.nbytes or 0) // card.vector_blocks(facts.size)
    return LINES if peers.linked and (block <= LINES_LIMIT or most > PLACES) else SLICES, most, block


def _slots(protocol: Protocol, most: int, peers: Peers) -> int:
    return min(protocol.slots, peers.layout.inbox_bytes(protocol.name) // (most * protocol.place))


@lru_cache(maxsize=1024)
def most_sent(schedules: tuple[Schedule, ...]) -> int:
    """Return the most cells that a rank sends to another."""
    return max((n for schedule in schedules for n in cells_sent(schedule).values()), default=1)


def cells_sent(schedule: Schedule) -> Counter[int]:
    """Return the number of cells that a rank sends to each peer."""
    sent: Counter[int] = Counter()
    for message in (m for one in schedule.steps for m in one.messages if isinstance(m, Send)):
        sent[message.peer] += len(message.source)
    return sent
