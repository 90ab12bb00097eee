"""What the critical path of a simulation is made of."""

from __future__ import annotations

from dataclasses import dataclass

from mpicoll.simulate.network import Network
from mpicoll.simulate.result import LocalWork, Message, Run


@dataclass(frozen=True)
class PathShares:
    """Seconds of the critical path.

    Attributes:
        moving: bytes on their way.
        latency: messages without their bytes.
        working: reductions and copies.
        messages: how many there are.
        works: how many there are.
    """

    moving: float
    latency: float
    working: float
    messages: int
    works: int


def shares(run: Run) -> PathShares:
    """Return what the critical path is made of; the three times add up to the whole."""
    path = run.critical_path()
    moving = sum(_moving(run.network, part) for part in path)
    works = [part for part in path if isinstance(part, LocalWork)]
    working = sum(work.end - work.start for work in works)
    return PathShares(moving, run.seconds - moving - working, working, len(path) - len(works), len(works))


def _moving(network: Network, part: Message | LocalWork) -> float:
    """Return the seconds of a part in which its bytes move."""
    if isinstance(part, LocalWork):
        return 0.0
    _, links = network.route(part.source, part.target)
    rate = min(network.most, *(network.links[link].bandwidth for link in links))
    return part.nbytes / rate


def busiest(run: Run) -> tuple[str, float, float]:
    """Return (name, bytes, part of the time in use) of the link that is in use for longest."""
    used = [nbytes / link.bandwidth for link, nbytes in zip(run.network.links, run.link_bytes, strict=True)]
    place = max(range(len(used)), key=used.__getitem__)
    whole = run.seconds or 1.0
    return run.network.links[place].name, run.link_bytes[place], used[place] / whole


def between_hosts(run: Run) -> float:
    """Return the bytes of all messages between ranks of different hosts."""
    host = run.network.host
    pairs = zip(run.source, run.target, run.nbytes, strict=True)
    return sum(nbytes for source, target, nbytes in pairs if host[source] != host[target])
