"""Networks: links, and the route of a message between two ranks.

Every rank has two links of its own, its ports: one that it sends by, one that it receives by.  A switch of 2 ranks
has the links "0 out", "0 in", "1 out", "1 in"; the route from 0 to 1 is "0 out" and "1 in".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from mpicoll.schedule.topology import Topology, laid_out

#: latency in seconds, and the numbers of the links that a message takes
Route = tuple[float, tuple[int, ...]]


@dataclass(frozen=True)
class Link:
    """A link, in one direction; bandwidth in bytes per second."""

    name: str
    bandwidth: float


@dataclass(frozen=True)
class Network:
    """Links and routes between ranks.

    Attributes:
        links: all links; rank r sends by link 2*r and receives by link 2*r+1, its ports.
        route: (source, target) -> latency in seconds and links; the first is the source's port, the last the target's.
        host: of each rank.
        most: bytes per second of one message at most.
        racks: of the hosts; None for one.
    """

    links: Sequence[Link]
    route: Callable[[int, int], Route]
    host: Sequence[int] = field(default=())
    most: float = math.inf
    racks: Topology | None = None

    @property
    def topology(self) -> Topology:
        """Which ranks are on one host, and which hosts in one rack."""
        return Topology.of(self.host, self.racks)


def switch(ranks: int, *, alpha: float, bandwidth: float, ports: int = 1) -> Network:
    """Return a switch that is never the bottleneck: only the ranks' ports are.

    Args:
        ranks: number of ranks.
        alpha: seconds of a message without its bytes.
        bandwidth: bytes per second of one message.
        ports: messages that a rank can send, and receive, at this rate at once.
    """
    return Network(_ports(ranks, bandwidth * ports), lambda a, b: (alpha, (2 * a, 2 * b + 1)), [0] * ranks, bandwidth)


def hosts(
    ranks: int, *, per_host: int, alpha: float, bandwidth: float, net_alpha: float, net_bandwidth: float, nics: int = 1
) -> Network:
    """Return hosts, each a switch, whose ranks share network cards.

    Args:
        ranks: number of ranks; the last host may have fewer than the others.
        per_host: ranks of a host.
        alpha: seconds of a message inside a host, without its bytes.
        bandwidth: bytes per second of a rank's port inside a host.
        net_alpha: seconds of a message between hosts, without its bytes.
        net_bandwidth: bytes per second of a network card, each way.
        nics: network cards of a host; local rank i uses card i * nics // per_host.
    """
    cards = range(-(-ranks // per_host) * nics)
    links = _ports(ranks, bandwidth)
    first = len(links)
    links += [Link(f"host {c // nics} card {c % nics} {way}", net_bandwidth) for c in cards for way in ("out", "in")]

    def card(rank: int) -> int:
        return first + 2 * (rank // per_host * nics + rank % per_host * nics // per_host)

    def route(a: int, b: int) -> Route:
        if a // per_host == b // per_host:
            return alpha, (2 * a, 2 * b + 1)
        return net_alpha, (2 * a, card(a), card(b) + 1, 2 * b + 1)

    return Network(links, route, [rank // per_host for rank in range(ranks)])


def two_ways(host: Sequence[int], *, alpha: float, bandwidth: float) -> Network:
    """Return ranks that send one message inside their host and one to other hosts at a time, and receive as many.

    Args:
        host: of each rank.
        alpha: seconds of a message without its bytes.
        bandwidth: bytes per second of one message.
    """
    ranks = len(host)
    links = _ports(ranks, 2 * bandwidth)
    links += [Link(f"{link.name} {way}", bandwidth) for way in ("inside", "between") for link in links[: 2 * ranks]]

    def route(a: int, b: int) -> Route:
        first = 2 * ranks if host[a] == host[b] else 4 * ranks
        return alpha, (2 * a, first + 2 * a, first + 2 * b + 1, 2 * b + 1)

    return Network(links, route, host, bandwidth)


def placed(
    ranks: int,
    *,
    layout: str,
    alpha: float,
    bandwidth: float,
    net_alpha: float,
    net_bandwidth: float,
    rank_bandwidth: float = math.inf,
    rack_bandwidth: float = math.inf,
) -> Network:
    """Return hosts with any ranks, each a switch with one card; in racks, each with one link to the others.

    Args:
        ranks: number of ranks.
        layout: number of hosts, or the ranks of each, as "2" or "0-3,4-7" or "0+2,1+3"; racks behind a "/".
        alpha: seconds of a message inside a host, without its bytes.
        bandwidth: bytes per second of a rank's port inside a host.
        net_alpha: seconds of a message between hosts, without its bytes.
        net_bandwidth: bytes per second of a host's card, each way.
        rank_bandwidth: bytes per second that one rank can send between hosts, or receive.
        rack_bandwidth: bytes per second of a rack's link, each way.

    Raises:
        ValueError: there is a bandwidth of racks, and no rack.
    """
    topology = laid_out(layout, ranks)
    if rack_bandwidth < math.inf and topology.racks is None:
        raise ValueError(f"rack_bandwidth: layout {layout} has no racks; {layout}/2 has two")
    links = _ports(ranks, bandwidth)
    own = len(links)
    links += [Link(f"{rank} far {way}", rank_bandwidth) for rank in range(ranks) for way in ("out", "in")]
    levels: list[tuple[int, Sequence[int]]] = []  # first link, and whose links each rank's messages take
    for number, groups in enumerate(topology.levels):
        what, speed = ("rack", rack_bandwidth) if number else ("host", net_bandwidth)
        levels.append((len(links), groups))
        links += [Link(f"{what} {group} {way}", speed) for group in range(max(groups) + 1) for way in ("out", "in")]

    def route(a: int, b: int) -> Route:
        crossed = [(first + 2 * of[a], first + 2 * of[b] + 1) for first, of in levels if of[a] != of[b]]
        if not crossed:
            return alpha, (2 * a, 2 * b + 1)
        out, in_ = zip(*crossed, strict=True)
        return net_alpha, (2 * a, own + 2 * a, *out, *reversed(in_), own + 2 * b + 1, 2 * b + 1)

    return Network(links, route, topology.host_of or (0,) * ranks, racks=topology.racks)


def fat_tree(
    ranks: int, *, per_leaf: int, alpha: float, bandwidth: float, uplinks: int = 0, hop: float = 0.0
) -> Network:
    """Return switches with the ranks at them (leaves), and uplinks from each to the switches above.

    Args:
        ranks: number of ranks.
        per_leaf: ranks of a leaf.
        alpha: seconds of a message inside a leaf without its bytes.
        bandwidth: bytes per second of a rank's port and of an uplink, each way.
        uplinks: of a leaf; as many as ranks if 0, fewer make it oversubscribed.
        hop: seconds more of a message between leaves.
    """
    links = _ports(ranks, bandwidth)
    first = len(links)
    leaves, wide = range(-(-ranks // per_leaf)), (uplinks or per_leaf) * bandwidth
    links += [Link(f"leaf {leaf} {way}", wide) for leaf in leaves for way in ("up", "down")]

    def route(a: int, b: int) -> Route:
        one, other = a // per_leaf, b // per_leaf
        if one == other:
            return alpha, (2 * a, 2 * b + 1)
        return alpha + hop, (2 * a, first + 2 * one, first + 2 * other + 1, 2 * b + 1)

    return Network(links, route, [rank // per_leaf for rank in range(ranks)], bandwidth)


def torus(ranks: int, *, alpha: float, bandwidth: float, shape: Sequence[int] = (), hop: float = 0.0) -> Network:
    """Return a torus; with one dimension it is a ring.

    A message goes the short way round in each dimension, one dimension after the other.  A rank can use all its links
    at once.

    Args:
        ranks: number of ranks.
        alpha: seconds of a message to a neighbour without its bytes.
        bandwidth: bytes per second of a link between neighbours, each way.
        shape: ranks in each dimension, whose product is the number of ranks; a ring if there is none.
        hop: seconds of each further link.
    """
    shape = tuple(shape) or (ranks,)
    if math.prod(shape) != ranks:
        raise ValueError(f"a torus of {'x'.join(map(str, shape))} has {math.prod(shape)} ranks, not {ranks}")
    dims = range(len(shape))
    links = _ports(ranks, 2 * len(shape) * bandwidth)
    first = len(links)
    links += [Link(f"{r}>{_moved(r, d, way, shape)}", bandwidth) for r in range(ranks) for d in dims for way in (1, -1)]

    def route(a: int, b: int) -> Route:
        taken, here = [], a
        for dim, away in enumerate(_away(a, b, shape)):
            for _ in range(abs(away)):
                taken.append(first + 2 * (here * len(shape) + dim) + (away < 0))
                here = _moved(here, dim, 1 if away > 0 else -1, shape)
        return alpha + hop * (len(taken) - 1), (2 * a, *taken, 2 * b + 1)

    return Network(links, route, [0] * ranks, bandwidth)


def mesh(
    ranks: int, *, alpha: float, bandwidth: float, pairs: Mapping[str, int], other_alpha: float, other_bandwidth: float
) -> Network:
    """Return ranks of which some pairs have links of their own; all others share a slower way.

    Args:
        ranks: number of ranks, at most those that the pairs name.
        alpha: seconds of a message by such a link without its bytes.
        bandwidth: bytes per second of one link, each way.
        pairs: "0-1" -> links side by side between ranks 0 and 1.
        other_alpha: seconds of a message between other pairs.
        other_bandwidth: bytes per second that a rank sends, and receives, by the slower way.
    """
    sides = {tuple(map(int, pair.split("-"))): count for pair, count in pairs.items()}
    most = max(map(max, sides)) + 1
    if ranks > most:
        raise ValueError(f"this machine has {most} ranks, not {ranks}")
    links = _ports(ranks, bandwidth * sum(sides.values()))
    links += [Link(f"{rank} slow {way}", other_bandwidth) for rank in range(ranks) for way in ("out", "in")]
    own: dict[tuple[int, int], int] = {}
    for (one, other), count in sides.items():
        for pair in ((one, other), (other, one)):
            if max(pair) < ranks:
                own[pair] = len(links)
                links.append(Link(f"{pair[0]}>{pair[1]} x{count}", bandwidth * count))

    def route(a: int, b: int) -> Route:
        if (a, b) in own:
            return alpha, (2 * a, own[a, b], 2 * b + 1)
        return other_alpha, (2 * a, 2 * (ranks + a), 2 * (ranks + b) + 1, 2 * b + 1)

    return Network(links, route, [0] * ranks)


def _ports(ranks: int, bandwidth: float) -> list[Link]:
    return [Link(f"{rank} {way}", bandwidth) for rank in range(ranks) for way in ("out", "in")]


def _strides(shape: Sequence[int]) -> list[int]:
    return [math.prod(shape[dim + 1 :]) for dim in range(len(shape))]


def _moved(rank: int, dim: int, way: int, shape: Sequence[int]) -> int:
    """Return the neighbour of a rank in one dimension.

    Args:
        rank: whose neighbour it is.
        dim: the dimension.
        way: 1 or -1.
        shape: ranks in each dimension.
    """
    stride = _strides(shape)[dim]
    place = rank // stride % shape[dim]
    return rank + ((place + way) % shape[dim] - place) * stride


def _away(a: int, b: int, shape: Sequence[int]) -> list[int]:
    """Return how many links to take from a to b in each dimension, below 0 for the other way round."""
    found = []
    for many, stride in zip(shape, _strides(shape), strict=True):
        steps = (b // stride - a // stride) % many
        found.append(steps if 2 * steps <= many else steps - many)
    return found


#: kinds of networks by the names that machines give
KINDS: dict[str, Callable[..., Network]] = {
    "switch": switch,
    "hosts": hosts,
    "placed": placed,
    "fat_tree": fat_tree,
    "torus": torus,
    "mesh": mesh,
}
