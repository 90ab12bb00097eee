"""Traffic between hosts: what an algorithm sends over the network, counted in the schedules of all ranks.

An allreduce by `reduce_scatter_allgather` on 2 hosts of 4 ranks, in a block each, sends the bytes of one vector out of
a host, in 2 rounds; each rank sends a quarter of them.  By `two_shot` it sends those of 4 vectors.

A chain of 4 hosts sends one vector out of each, but no host before it has received: 3 vectors one after the other, and
one and a half if they are cut into 4 segments.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from mpicoll.algorithms.card import Algorithm
from mpicoll.schedule.ir import Recv, Ref, Schedule, Send, block_ids
from mpicoll.schedule.topology import Topology


@dataclass(frozen=True)
class HostTraffic:
    """The traffic of an algorithm between hosts.

    Attributes:
        rounds: most messages between hosts of which each waits for the one before.
        vectors: bytes that leave or enter the busiest host, as a part of the message size.
        rank_vectors: the same of the busiest rank.
        serial: the same of the host that is busiest in each turn, of all turns: a message has its turn after those that
            its sender has sent or received before, and all that led to these.  It is no less than `vectors`.
        rank_serial: that of the ranks.
        incast: what enters a host in a turn times the hosts but one that send it, where that is most, of all turns.
        messages: those between hosts that the busiest rank sends, or receives.
        turns: those in which a host sends, or receives; of the host with most.
    """

    rounds: int = 0
    vectors: float = 0.0
    rank_vectors: float = 0.0
    serial: float = 0.0
    rank_serial: float = 0.0
    incast: float = 0.0
    messages: int = 0
    turns: int = 0


#: part of its time by which a byte takes longer for each other host that sends to the same one: allgathers of 0.5 to
#: 1 MiB on 4 imitated hosts took 1.3 to 1.45 times as long where 3 hosts sent to one at once (docs/measurements.md)
INCAST = 0.15


@dataclass(frozen=True)
class HostLink:
    """A host's link to the others.

    The bytes take as long as those of the host, or as those of the busiest rank: one rank alone may not fill the link.
    What hosts send one after the other takes longer, by the part that segments do not let them do at the same time.
    While a segment is on its way to a host's next turn, others use the link: if their bytes take as long as the delay,
    that takes no time of its own.  On imitated hosts two segments gained nothing, three half of that, four all.

    Attributes:
        alpha: seconds of a round, without its bytes.
        beta: seconds of a byte that leaves or enters a host, while all its ranks send.
        rank_beta: seconds of a byte of a rank that sends alone, 0 where that is not known.
        source: where the numbers come from.
    """

    alpha: float
    beta: float
    rank_beta: float = 0.0
    source: str = ""

    def seconds(self, traffic: HostTraffic, n: int, s: int = 1) -> float:
        """Return the time of an algorithm's traffic in seconds; n is the message size in bytes, s the segments."""
        filled = traffic.vectors * n * self.beta / max(traffic.turns, 1) * max(1 - 2 / s, 0.0)
        hidden = max(min(traffic.turns, traffic.rounds) - 1, 0) if filled >= self.alpha else 0
        of_host = traffic.vectors + (traffic.serial - traffic.vectors) / s
        of_rank = traffic.rank_vectors + (traffic.rank_serial - traffic.rank_vectors) / s
        of_bytes = max(of_host * self.beta, of_rank * self.rank_beta)
        return (traffic.rounds - hidden) * self.alpha + (of_bytes + INCAST * traffic.incast * self.beta) * n

    def __str__(self) -> str:
        rates = [_rate(self.beta, "out of a host")] + [_rate(self.rank_beta, "of a rank alone")] * bool(self.rank_beta)
        alpha = f"{self.alpha * 1e3:.4g} ms" if self.alpha >= 1e-3 else f"{self.alpha * 1e6:.4g} us"
        return f"{alpha} a round, {', '.join(rates)} ({self.source})"


def _rate(beta: float, whose: str) -> str:
    """Return a bandwidth in words, from the seconds of a byte."""
    if not beta:
        return f"no time for bytes {whose}"
    return f"{1e-9 / beta:.4g} GB/s {whose}" if beta <= 1e-9 else f"{1e-6 / beta:.4g} MB/s {whose}"


#: (from where, to where, how much)
Moved = tuple[Hashable, Hashable, float]


class _FarMessage(NamedTuple):
    """A message between hosts: its ranks, its cells, and the schedule that they are of."""

    source: int
    target: int
    cells: Ref
    schedule: Schedule


@lru_cache(maxsize=4096)
def host_traffic(card: Algorithm, topology: Topology, root: int = 0) -> HostTraffic:
    """Return an algorithm's traffic between hosts.

    Args:
        card: the algorithm, which serves so many ranks.
        topology: where they are.
        root: the root, 0 where there is none.
    """
    host_of = topology.host_of
    schedules = card.schedules(len(host_of), root, topology)
    far = list(_between_hosts(schedules, host_of))
    if not far:
        return HostTraffic()
    between_hosts: list[Moved] = [(host_of[one.source], host_of[one.target], len(one.cells)) for one in far]
    between_ranks: list[Moved] = [(one.source, one.target, len(one.cells)) for one in far]
    rounds, turns = _numbers(schedules, host_of, sent=False), _numbers(schedules, host_of, sent=True)
    of_hosts, of_ranks = _by_turn(between_hosts, turns), _by_turn(between_ranks, turns)
    moved = _busiest(between_hosts), _busiest(between_ranks), sum(map(_busiest, of_hosts)), sum(map(_busiest, of_ranks))
    blocks = card.vector_blocks(len(host_of))
    most, of_a_rank, in_turn, of_ranks_in_turn, incast = (n / blocks for n in (*moved, sum(map(_incast, of_hosts))))
    messages = int(_busiest((one.source, one.target, 1) for one in far))
    alone = _turns(between_hosts, turns)
    return HostTraffic(max(rounds), most, of_a_rank, in_turn, of_ranks_in_turn, incast, messages, alone)


def host_bytes(card: Algorithm, topology: Topology, root: int, sizes: Sequence[float]) -> float:
    """Return the bytes that leave or enter the busiest host; arguments as in `host_traffic`.

    Args:
        card: the algorithm.
        topology: where the ranks are.
        root: the root.
        sizes: bytes of each block of the vector, which need not be equal.
    """
    host_of = topology.host_of
    return _busiest(
        (host_of[one.source], host_of[one.target], sum(sizes[i] for i in block_ids(one.cells, one.schedule)))
        for one in _between_hosts(card.schedules(len(host_of), root, topology), host_of)
    )


def _between_hosts(schedules: Sequence[Schedule], host_of: Sequence[int]) -> Iterator[_FarMessage]:
    """Yield each message between hosts, from all ranks' schedules."""
    for rank, schedule in enumerate(schedules):
        for message in (m for one in schedule.steps for m in one.messages if isinstance(m, Send)):
            if host_of[message.peer] != host_of[rank]:
                yield _FarMessage(rank, message.peer, message.source, schedule)


def _busiest(moved: Iterable[Moved]) -> float:
    """Return the most that leaves or enters one place, 0 where nothing is moved."""
    leaving, entering = defaultdict[Hashable, float](float), defaultdict[Hashable, float](float)
    for source, target, much in moved:
        leaving[source] += much
        entering[target] += much
    return max((*leaving.values(), *entering.values()), default=0)


def _by_turn(moved: Sequence[Moved], turns: Sequence[int]) -> list[list[Moved]]:
    """Return what is moved in each turn, given the turn of each."""
    of = defaultdict[int, list[Moved]](list)
    for number, one in zip(turns, moved, strict=True):
        of[number].append(one)
    return list(of.values())


def _turns(moved: Sequence[Moved], turns: Sequence[int]) -> int:
    """Return in how many turns a place sends, or receives, given the turn of each; of the place with most."""
    sent = {((source, "sends"), turn) for (source, _, _), turn in zip(moved, turns, strict=True)}
    received = {((target, "receives"), turn) for (_, target, _), turn in zip(moved, turns, strict=True)}
    return max(Counter(way for way, _ in sent | received).values())


def _incast(moved: Iterable[Moved]) -> float:
    """Return what enters a place, times the places but one that send to it; of the place where that is most."""
    entering = defaultdict[Hashable, dict[Hashable, float]](lambda: defaultdict(float))
    for source, target, much in moved:
        entering[target][source] += much
    return max(((len(parts) - 1) * sum(parts.values()) for parts in entering.values()), default=0)


def _numbers(schedules: Sequence[Schedule], host_of: Sequence[int], *, sent: bool) -> list[int]:
    """Return for each message between hosts how many follow from each other up to it, in the order of `_between_hosts`.

    Each rank does its steps in order.

    Args:
        schedules: of all ranks.
        host_of: of each rank.
        sent: what a rank has sent in its steps before counts, too: it takes the rank's time, but need not arrive.
    """
    known = [0] * len(schedules)  # of the messages that have led to where a rank is
    coming: dict[tuple[int, int], deque[int]] = defaultdict(deque)
    found: list[list[int]] = [[] for _ in schedules]
    ranks = [_steps(r, one, known, coming, host_of, found[r], sent) for r, one in enumerate(schedules)]
    for _ in range(1 + sum(len(one.steps) for one in schedules)):  # in each turn a rank comes to its next step
        ranks = [one for one in ranks if next(one, False)]
        if not ranks:
            break
    return [number for one in found for number in one]


def _steps(
    rank: int,
    schedule: Schedule,
    known: list[int],
    coming: dict[tuple[int, int], deque[int]],
    host_of: Sequence[int],
    found: list[int],
    sent: bool,
) -> Iterator[bool]:
    """Do a rank's steps; yield where a message has not come.

    Args:
        rank: whose steps they are.
        schedule: of the rank.
        known: of each rank, see `_numbers`; changed.
        coming: of each message between two ranks, in order, what its sender knew, one more between hosts; changed.
        host_of: of each rank.
        found: gets the number of each message that it sends to another host.
        sent: as in `_numbers`.
    """
    for one in schedule.steps:
        before = known[rank]
        for message in one.messages:
            if isinstance(message, Send):
                far = host_of[rank] != host_of[message.peer]
                coming[rank, message.peer].append(before + far)
                found += [before + 1] * far
                if sent:
                    known[rank] = max(known[rank], before + far)
        for message in one.messages:
            if isinstance(message, Recv):
                while not coming[message.peer, rank]:
                    yield True
                known[rank] = max(known[rank], coming[message.peer, rank].popleft())
