"""Hierarchies: algorithms for several hosts, made of other algorithms inside hosts and between them.

Each has inner algorithms of its own, and a caller may choose others: `striped(allgather=ring)` is a card like any, with
its own cost, schedules and proof.  A user's own algorithm may be one of them.  A hierarchy between hosts is one of
racks: `striped(allgather=striped)` has three levels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from mpicoll.algorithms import registry
from mpicoll.algorithms.card import Algorithm
from mpicoll.algorithms.naming import written
from mpicoll.algorithms.on_hosts.stage import Stage
from mpicoll.algorithms.registry import packaged
from mpicoll.schedule.ir import Schedule
from mpicoll.schedule.topology import FLAT, Topology


@dataclass(frozen=True)
class Inner:
    """An inner collective of a hierarchy, and its algorithm.

    Attributes:
        collective: its name.
        algorithm: that of its algorithm.
        between: it runs between hosts, else inside each.
        of_more: the algorithm's name on more than two hosts, "" for the same.
    """

    collective: str
    algorithm: str
    between: bool = False
    of_more: str = ""

    def __str__(self) -> str:
        more = f" ({self.of_more} on more than two)" if self.of_more else ""
        return f"{'between hosts ' if self.between else ''}{self.collective} {self.algorithm}{more}"

    def on(self, hosts: int) -> str:
        """Return the name of its algorithm on a number of hosts."""
        return self.of_more if self.of_more and hosts > 2 else self.algorithm


#: an inner collective inside hosts, and one between them
inside, between = Inner, partial(Inner, between=True)


@dataclass(frozen=True, eq=False)
class Hierarchy(Algorithm):
    """The card of an algorithm for several hosts; its function takes a stage, and the root behind it.

    Attributes:
        inner: its inner collectives; a caller chooses one algorithm for two of one collective, at two levels.
        by_stretches: stretches of ranks of a host that follow each other are its hosts, so that ranks are in order.
    """

    inner: tuple[Inner, ...] = ()
    by_stretches: bool = False
    by_hosts: ClassVar[bool] = True

    def schedule(self, rank: int, size: int, root: int = 0, topology: Topology = FLAT) -> Schedule:
        """Return one rank's schedule."""
        hosts = self.seen(topology)
        chosen = {(one.collective, one.between): one.on(hosts.hosts) for one in self.inner}
        stage = Stage(rank, size, hosts, chosen, self.vector_blocks(size))
        return self.function(stage, root) if self.row.rooted else self.function(stage)

    def seen(self, topology: Topology) -> Topology:
        """Return the topology as its schedules see it."""
        return topology.stretches if self.by_stretches else topology

    @property
    def inner_collectives(self) -> tuple[str, ...]:
        """The collectives of which it is made and whose algorithms can be chosen."""
        return tuple(dict.fromkeys(one.collective for one in self.inner))

    @property
    def made_of(self) -> str:
        """Its inner collectives with their algorithms, in words."""
        return ", ".join(map(str, self.inner))

    def composed(self, inner: Mapping[str, str]) -> Algorithm:
        """Return it with other inner algorithms.

        Args:
            inner: inner collective -> name of its algorithm.

        Raises:
            ValueError: there is no such algorithm, or it is one for several hosts where all ranks are on one.
        """
        if not inner:
            return self
        chosen = {what: inner[what] for what in self.inner_collectives if what in inner}
        far = {one.collective for one in self.inner if one.between}
        nested = {what for what, name in chosen.items() if registry.get(what, name).by_hosts}
        if nested - far:
            what = f"inner {min(nested - far)} {chosen[min(nested - far)]!r}"
            raise ValueError(f"{self.collective}: {what} is one for several hosts, and that runs inside each")
        near = {what: name for what, name in chosen.items() if what not in nested}
        levels = ((one, (chosen if one.between else near).get(one.collective)) for one in self.inner)
        changed = [replace(one, algorithm=name, of_more="") if name else one for one, name in levels]
        cards = [registry.get(what, name) for what, name in chosen.items()]
        return replace(
            self,
            name=written(self.name, chosen),
            cost=self._cost_with(near),
            ordered=self.ordered and all(card.ordered or not card.row.reducing for card in cards),
            blocks="p" if any(card.row.free and card.blocks != "1" for card in cards) else self.blocks,
            scratch="",  # counted on the very hosts
            verified=all(card.verified for card in cards),
            inner=tuple(changed),
        )

    def _cost_with(self, chosen: Mapping[str, str]) -> str:
        """Return its cost with other algorithms inside hosts; what is sent between them is counted apart."""
        cost = self.cost
        for one in self.inner:
            if one.between or one.collective not in chosen:
                continue
            new = registry.get(one.collective, chosen[one.collective]).cost
            if not new:
                return ""
            if chosen[one.collective] != one.algorithm:
                cost += f" + ({new}) - ({registry.get(one.collective, one.algorithm).cost})"
        return cost

    @property
    def nested(self) -> bool:
        """An inner algorithm is one for several hosts itself."""
        return any(registry.get(one.collective, one.algorithm).by_hosts for one in self.inner)

    def levels(self, size: int, topology: Topology) -> Iterator[tuple[Algorithm, int, Topology]]:
        """Yield each inner algorithm with each number of ranks on which it runs, and where these are."""
        hosts = self.seen(topology)
        counts = {len(group) for group in hosts.groups} or {size}
        for one in self.inner:
            card = registry.get(one.collective, one.on(hosts.hosts))
            if one.between:
                yield card, hosts.hosts, hosts.racks or FLAT
            else:
                yield from ((card, ranks, FLAT) for ranks in sorted(counts))

    def needs_of_size(self) -> list[str]:
        """Return its needs of the number of ranks in words."""
        cards = dict.fromkeys(registry.get(one.collective, one.algorithm) for one in self.inner)
        needs = [f"{need} for its {card.collective}" for card in cards for need in card.needs_of_size()]
        return [*super().needs_of_size(), *needs]


#: registers an algorithm for several hosts
on_hosts = partial(
    packaged,
    reference="Karonis et al. 2000; two levels",
    uniform="Its phases are algorithms that are right on any ranks; each topology is proven when it is first used.",
    kind=Hierarchy,
)
