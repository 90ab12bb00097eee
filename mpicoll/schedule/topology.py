"""The topology of a communicator: which of its ranks are on one host.

    Topology.of(("a", "a", "b", "b"))   2 hosts: 0-1, 2-3
    Topology.of(("a", "a"))             one host: FLAT

A setting may force one, `hosts=2` or `0-3,4-7`, to try and to test what several hosts would do.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise
from random import Random

from mpicoll.ranges import whole_numbers
from mpicoll.schedule.ir import ranges

#: values of the setting for which nothing is forced, and for which all ranks count as on one host
AUTO, ONE_HOST = "auto", "flat"


@dataclass(frozen=True)
class Topology:
    """The host of each rank.

    Attributes:
        host_of: number of each rank's host, counted from 0 in the order of their first ranks; () for one host.
    """

    host_of: tuple[int, ...] = ()
    _hash: int = field(default=0, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Compute the hash once: it is part of every key, and as long as there are ranks."""
        object.__setattr__(self, "_hash", hash(self.host_of))

    def __hash__(self) -> int:
        return self._hash

    @staticmethod
    def of(names: Sequence[Hashable]) -> Topology:
        """Return the topology of ranks whose hosts have these names; the same object for equal ones."""
        numbers: dict[Hashable, int] = {}
        found = tuple([numbers.setdefault(name, len(numbers)) for name in names])
        return _known(found) if len(numbers) > 1 else FLAT

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
    def stretches(self) -> Topology:
        """The topology in which each stretch of ranks that follow each other on one host counts as a host.

        Of ranks 0-1+4-5, 2-3 these are 0-1, 2-3, 4-5: whatever the hosts are, they are in the order of ranks.
        """
        return Topology.of(tuple(accumulate((a != b for a, b in pairwise(self.host_of)), initial=0)))

    def __str__(self) -> str:
        if not self.host_of:
            return "one host"
        return f"{self.hosts} hosts: {', '.join(ranges(group).replace(',', '+') for group in self.groups)}"


@lru_cache(maxsize=256)
def _known(host_of: tuple[int, ...]) -> Topology:
    return Topology(host_of)


FLAT = Topology()
#: ranks up to which all numbers of hosts are tried
MOST_TRIED = 8


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
    return FLAT if text in (AUTO, ONE_HOST) else Topology.of(host_of_ranks(text.removeprefix("hosts="), size))


@lru_cache(maxsize=64)
def host_of_ranks(text: str, size: int) -> tuple[int, ...]:
    """Return the host of each rank, from a number of hosts or the ranks of each: "2", "0-3,4-7" or "0+2,1+3".

    Raises:
        ValueError: the text is neither, or some rank is on no host or on two.
    """
    if text.isdecimal() and int(text):
        edges = [size * k // int(text) for k in range(int(text) + 1)]
        groups = [set(range(a, b)) for a, b in pairwise(edges)]
    else:
        groups = [set(whole_numbers(part.replace("+", ","))) for part in text.split(",")]
    found = [[host for host, ranks in enumerate(groups) if rank in ranks] for rank in range(size)]
    if any(len(hosts) != 1 for hosts in found):
        raise ValueError(f"hosts {text}: each of the ranks 0 to {size - 1} is on one host, as in 2, 0-3,4-7 or 0+2,1+3")
    return tuple(hosts[0] for hosts in found)
