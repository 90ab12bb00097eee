"""An algorithm's card: its function, what it declares, and what it needs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar

from mpicoll.algorithms import space
from mpicoll.schedule.collectives import COLLECTIVES, Collective
from mpicoll.schedule.ir import Schedule
from mpicoll.schedule.patterns import power_of_two as is_power_of_two
from mpicoll.schedule.topology import FLAT, Topology

#: sizes for which a user's algorithm is verified when it is registered
SIZES_AT_REGISTRATION = range(1, 18)
#: most ranks for which an algorithm is proven when it is first used
MOST_PROVEN = 64
#: for sizes that are not proven
REMEDY = "declare in uniform=... why they follow from smaller sizes"
#: collectives whose v-variants tell a rank only the counts of its own blocks
LOCAL_COUNTS = ("gather", "scatter", "alltoall")


@dataclass(frozen=True, eq=False)  # a function that is registered again is another algorithm
class Algorithm:
    """An algorithm's card.

    Attributes:
        name: the literature's name.
        collective: the row of the table that it performs.
        function: (rank, size) or (rank, size, root) -> Schedule, pure.
        cost: its time as an expression; see `mpicoll.analysis.cost`.
        reference: where it comes from.
        forwards: ranks pass on other ranks' blocks, so that all must know all counts;
            such algorithms cannot serve Gatherv, Scatterv and Alltoallv.
        power_of_two: only for numbers of ranks that are powers of two.
        even: only for even numbers of ranks.
        min_size: smallest number of ranks.
        ordered: operands are combined in rank order for every root.
        left_fold: they are combined one after the other, so that the bits depend on nothing but their order.
        uniform: why the schedules of all sizes are right if those proven are; "" if nothing says so.
        blocks: number of blocks of the vector, as an expression (see `mpicoll.algorithms.expression`);
            "" where the collective fixes it, or to ask rank 0's schedule.
        scratch: most blocks of scratch of a rank, at least, as an expression; messages whose cells do not
            follow each other are packed and count; "" to count in the schedules of all ranks.
        packed: the same where blocks are cut into segments, so that messages of several blocks are
            packed; "" for as many.
        verified: it is proven before it serves.
        by_hosts: its schedules depend on which ranks are on one host; nobody but the caller chooses it for one host.
            See `mpicoll.algorithms.on_hosts.hierarchy`.
        inner_collectives: those whose algorithms can be chosen, as in striped(allgather=ring).
    """

    name: str
    collective: str
    function: Callable[..., Schedule]
    cost: str
    reference: str
    forwards: bool = True
    power_of_two: bool = False
    even: bool = False
    min_size: int = 1
    ordered: bool = False
    left_fold: bool = False
    uniform: str = ""
    blocks: str = ""
    scratch: str = ""
    packed: str = ""
    verified: bool = True
    by_hosts: ClassVar[bool] = False

    @property
    def row(self) -> Collective:
        """The collective's row of the table."""
        return COLLECTIVES[self.collective]

    @cached_property
    def idea(self) -> str:
        """The docstring: what it does and when it wins."""
        return inspect.cleandoc(self.function.__doc__ or "")

    def schedule(self, rank: int, size: int, root: int = 0, topology: Topology = FLAT) -> Schedule:
        """Return one rank's schedule."""
        return self.function(rank, size, root) if self.row.rooted else self.function(rank, size)

    def schedules(self, size: int, root: int = 0, topology: Topology = FLAT) -> list[Schedule]:
        """Return all ranks' schedules."""
        return [self.schedule(rank, size, root, topology) for rank in range(size)]

    def seen(self, topology: Topology) -> Topology:
        """Return the topology as its schedules see it: where they do not depend on it, all ranks are on one host."""
        return FLAT

    def level_size(self, size: int, topology: Topology) -> int:
        """Return the number of ranks with which its cost is evaluated: of the largest host, where it is `by_hosts`."""
        return max(map(len, self.seen(topology).groups), default=size)

    @property
    def inner_collectives(self) -> tuple[str, ...]:
        """The collectives of which it is made and whose algorithms can be chosen."""
        return ()

    @property
    def made_of(self) -> str:
        """Its inner collectives with their algorithms, in words; "" where it has none."""
        return ""

    def composed(self, inner: Mapping[str, str]) -> Algorithm:
        """Return it with other inner algorithms.

        Args:
            inner: inner collective -> name of its algorithm.
        """
        return self

    @property
    def nested(self) -> bool:
        """An inner algorithm is one for several hosts itself."""
        return False

    def levels(self, size: int, topology: Topology) -> Iterator[tuple[Algorithm, int, Topology]]:
        """Yield each inner algorithm with each number of ranks on which it runs, and where these are."""
        yield from ()

    def vector_blocks(self, size: int) -> int:
        """Return the number of blocks that make up a message size (see dispatch.plan)."""
        return size if self.collective == "alltoall" else _blocks(self, size)

    def scratch_blocks(self, size: int, segmented: bool, topology: Topology = FLAT) -> int:
        """Return the most blocks of scratch of a rank.

        Args:
            size: number of ranks.
            segmented: blocks are cut into segments.
            topology: which ranks are on one host.
        """
        if not self.scratch:
            needed = _counted(self, size, self.seen(topology))
            return needed.packed if segmented else needed.scratch
        return space.declared(*self.scratch_declaration(segmented), size)

    def declared_space(self, quote: str = "") -> str:
        """Return the numbers of blocks that it declares, in words, each between two quotes."""
        fixed = "" if self.row.free else "p*p" if self.collective == "alltoall" else "p"
        blocks, scratch, packed = (
            f"{quote}{text}{quote}" if text else "not declared"
            for text in (self.blocks or fixed, self.scratch, self.packed)
        )
        return f"{blocks}; scratch: at most {scratch}" + (f", in segments {packed}" if self.packed else "")

    def scratch_declaration(self, segmented: bool) -> tuple[str, str]:
        """Return (name, expression) of the card's declaration of its scratch."""
        return ("packed", self.packed) if segmented and self.packed else ("scratch", self.scratch)

    @property
    def provable(self) -> bool:
        """Tell whether every size must be proven by itself, when it is first used."""
        return self.verified and not self.uniform

    @property
    def proof(self) -> str:
        """The sizes at which it is proven right, in words."""
        if not self.verified:
            return "not verified"
        return "uniform" if self.uniform else "at first use"

    def restrictions(self) -> list[str]:
        """Return its needs in words."""
        needs = self.needs_of_size()
        if self.row.reducing and not self.ordered:
            needs.append("a commutative operator")
        if self.forwards and self.collective in LOCAL_COUNTS:
            needs.append("counts that all ranks know")
        return needs

    def needs_of_size(self) -> list[str]:
        """Return its needs of the number of ranks in words."""
        needs = []
        if self.power_of_two:
            needs.append("a power-of-two number of ranks")
        if self.even:
            needs.append("an even number of ranks")
        if self.min_size > 1:
            needs.append(f"at least {self.min_size} ranks")
        if self.provable:
            needs.append(f"at most {MOST_PROVEN} ranks")
        return needs

    def refuses(
        self,
        size: int,
        *,
        commutative: bool = True,
        counts_known: bool = True,
        left_fold: bool = False,
        topology: Topology | None = None,
    ) -> str | None:
        """Return the reason why it cannot serve, None if it can.

        Args:
            size: number of ranks.
            commutative: the operator is, or there is none.
            counts_known: all ranks know all ranks' counts.
            left_fold: ranks must be combined from left to right.
            topology: which ranks are on one host, None to ask nothing about it.
        """
        if self.power_of_two and not is_power_of_two(size):
            return f"needs a power-of-two number of ranks, got {size}"
        if self.even and size % 2 and size > 1:
            return f"needs an even number of ranks, got {size}"
        if size < self.min_size:
            return f"needs at least {self.min_size} ranks, got {size}"
        if size > MOST_PROVEN and self.provable:
            return f"is proven for at most {MOST_PROVEN} ranks, got {size}; {REMEDY}"
        if self.row.reducing and not commutative and not self.ordered:
            return "needs a commutative operator"
        if self.row.reducing and left_fold and not self.left_fold:
            return "does not combine ranks from left to right, as reproducible='ranks' demands"
        if self.forwards and not counts_known:
            return "passes on other ranks' blocks, whose counts not all ranks know in this call"
        return None if topology is None else self._inner_refusal(size, topology)

    def _inner_refusal(self, size: int, topology: Topology) -> str | None:
        """Return the reason why an inner algorithm cannot serve on the very hosts, None if all can."""
        for inner, ranks, hosts in self.levels(size, topology):
            if why := inner.refuses(ranks, topology=hosts):
                return f"is made of {inner.collective} {inner.name!r} on {ranks} ranks, which {why}"
        return None


@lru_cache(maxsize=4096)
def _blocks(card: Algorithm, size: int) -> int:
    """Return the number of blocks of the vector: as the collective fixes, as declared, or as rank 0 cuts it."""
    if not card.row.free:
        return card.row.blocks(size)
    return space.declared("blocks", card.blocks, size) if card.blocks else card.schedule(0, size).blocks


@lru_cache(maxsize=1024)
def _counted(card: Algorithm, size: int, topology: Topology) -> space.Space:
    """Return the space that an algorithm without declaration needs, from the schedules of all ranks."""
    roots = {0, 1, *(rank for group in topology.groups for rank in group[:2])} if card.row.rooted and size > 1 else {0}
    return space.counted(card.row, [s for root in roots for s in card.schedules(size, root, topology)])
