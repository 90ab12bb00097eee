"""The topology of a communicator: which of its ranks are on one host, and which hosts are in one rack.

    Topology.of(("a", "a", "b", "b"))   2 hosts: 0-1, 2-3
    Topology.of(("a", "a"))             one host: FLAT

A setting may force one, `hosts=2` or `0-3,4-7`, to try and to test what several hosts would do.  It alone says what is
in one rack: `hosts=4/2` are 4 hosts in 2 racks, `hosts=8/4/2` has racks of racks.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import accumulate, groupby, pairwise
from random import Random

from mpicoll.ranges import whole_numbers
from mpicoll.schedule.ir import ranges

#: values of the setting for which nothing is forced, and for which all ranks count as on one host
AUTO, ONE_HOST = "auto", "flat"


@dataclass(frozen=True)
class Topology:
    """The host of each rank, and the rack of each host.

    Attributes:
        host_of: number of each rank's host, counted from 0 in the order of their first ranks; () for one host.
        racks: the same of hosts and their racks: a topology whose ranks are the hosts; None for one rack.
    """

    host_of: tuple[int, ...] = ()
    racks: Topology | None = None
    _hash: int = field(default=0, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Compute the hash once: it is part of every key, and as long as there are ranks."""
        object.__setattr__(self, "_hash", hash((self.host_of, self.racks)))

    def __hash__(self) -> int:
        return self._hash

    @staticmethod
    def of(names: Sequence[Hashable], racks: Topology | None = None) -> Topology:
        """Return the topology of ranks whose hosts have these names; the same object for equal ones.

        Args:
            names: of each rank's host.
            racks: of the hosts, in the order of their first ranks; None for one rack.
        """
        numbers: dict[Hashable, int] = {}
        found = tuple([numbers.setdefault(name, len(numbers)) for name in names])
        return _known(found, racks if racks and racks.host_of else None) if len(numbers) > 1 else FLAT

    def part(self, ranks: Sequence[int]) -> Topology:
        """Return the topology of some of its ranks, in that order."""
        hosts = [self.host_of[rank] for rank in ranks] if self.host_of else []
        return Topology.of(hosts, self.racks and self.racks.part(list(dict.fromkeys(hosts))))

    @property
    def hosts(self) -> int:
        """Number of hosts."""
        return max(self.host_of, default=0) + 1

    @cached_property
    def groups(self) -> list[list[int]]:
        """Ranks of each host; none where all are on one."""
        found: list[list[int]] = [[] for _ in range(self.hosts)] if self.host_of else []
        for rank, host in enumerate(self.host_of):
            found[host].append(rank)
        return found

    @cached_property
    def levels(self) -> list[tuple[int, ...]]:
        """The host of each rank, its rack, and so on; none where all ranks are on one host."""
        above = self.racks.levels if self.racks else []
        return [self.host_of, *(tuple(level[host] for host in self.host_of) for level in above)] if self.host_of else []

    @cached_property
    def stretches(self) -> Topology:
        """The topology in which each stretch of ranks that follow each other on one host counts as a host.

        Of ranks 0-1+4-5, 2-3 these are 0-1, 2-3, 4-5: whatever the hosts are, they are in the order of ranks.  Each is
        in the rack of its host.
        """
        numbers = tuple(accumulate((a != b for a, b in pairwise(self.host_of)), initial=0))
        return Topology.of(numbers, self.racks and self.racks.part([host for host, _ in groupby(self.host_of)]))

    def __str__(self) -> str:
        if not self.host_of:
            return "one host"
        groups = ", ".join(ranges(group).replace(",", "+") for group in self.groups)
        in_racks = f" in {self.racks}".replace("hosts", "racks") if self.racks else ""
        return f"{self.hosts} hosts: {groups}{in_racks}"


@lru_cache(maxsize=256)
def _known(host_of: tuple[int, ...], racks: Topology | None) -> Topology:
    return Topology(host_of, racks)


FLAT = Topology()
#: ranks up to which all numbers of hosts are tried
MOST_TRIED = 8


def tried_in_racks(size: int) -> Iterator[Topology]:
    """Yield topologies of some number of ranks for a proof of what has more than two levels: 3 to 6 hosts in racks."""
    chance = Random(size)
    for hosts in range(3, min(6, size) + 1):
        block = [rank * hosts // size for rank in range(size)]
        racks = list(tried(hosts))
        yield from (Topology.of(names, chance.choice(racks)) for names in (block, chance.sample(block, size)))
        yield Topology.of([rank % hosts for rank in range(size)], Topology.of([0, *[1] * (hosts - 1)]))


def tried(size: int) -> Iterator[Topology]:
    """Yield topologies of some number of ranks for a proof: hosts in blocks, in turns and at random, and uneven ones.

    Up to 8 ranks there are 2, 3 and 4 hosts, else one of these numbers.
    """
    chance = Random(size)
    for hosts in range(2, min(4, size) + 1) if size <= MOST_TRIED else (2 + size % 3,):
        block = [rank * hosts // size for rank in range(size)]
        yield Topology.of(block)
        yield Topology.of([rank % hosts for rank in range(size)])
        yield Topology.of(chance.sample(block, size))
    if size > 2:
        yield Topology.of([min(rank, 1) for rank in range(size)])
        yield Topology.of([int(8 * rank >= 5 * size) for rank in range(size)])


def forced(text: str, size: int) -> Topology:
    """Return the topology that a value of the setting gives to so many ranks; FLAT for `auto` and `flat`."""
    return FLAT if text in (AUTO, ONE_HOST) else laid_out(text.removeprefix("hosts="), size)


@lru_cache(maxsize=64)
def laid_out(text: str, size: int, whole: str = "host", part: str = "rank") -> Topology:
    """Return the topology of a text: hosts as "2", "0-3,4-7" or "0+2,1+3", and racks of hosts behind a "/".

    Args:
        text: see above.
        size: number of ranks.
        whole: what is counted as a host, for errors.
        part: what is counted as a rank.

    Raises:
        ValueError: the text is neither, or some rank is on no host or on two, or some host in no rack or in two.
    """
    first, _, rest = text.partition("/")
    found = Topology.of(_whole_of_parts(first, size, whole, part))
    return Topology.of(found.host_of, laid_out(rest, found.hosts, "rack", whole)) if rest else found


def _whole_of_parts(text: str, size: int, whole: str, part: str) -> tuple[int, ...]:
    """Return the host of each rank; arguments as in `laid_out`."""
    if text.isdecimal() and int(text):
        edges = [size * k // int(text) for k in range(int(text) + 1)]
        groups = [set(range(a, b)) for a, b in pairwise(edges)]
    else:
        groups = [set(whole_numbers(one.replace("+", ","))) for one in text.split(",")]
    found: list[list[int]] = [[] for _ in range(size)]
    for host, ranks in enumerate(groups):
        for rank in (rank for rank in ranks if rank < size):
            found[rank].append(host)
    if any(len(hosts) != 1 for hosts in found):
        each = f"each of the {part}s 0 to {size - 1} is {'in' if whole == 'rack' else 'on'} one {whole}"
        raise ValueError(f"{whole}s {text}: {each}, as in 2, 0-3,4-7 or 0+2,1+3")
    return tuple(hosts[0] for hosts in found)
