"""Parts of a simulation's critical path."""

from __future__ import annotations

from dataclasses import dataclass

from mpicoll.simulate.result import LocalWork, Message, Run


@dataclass(frozen=True)
class PathShares:
    """Seconds of the critical path; the four add up to the whole.

    Attributes:
        call: until the ranks begin.
        moving: bytes on their way, at the rates that the messages had.
        latency: messages without their bytes.
        working: reductions and copies.
        messages: how many there are.
        works: how many there are.
    """

    call: float
    moving: float
    latency: float
    working: float
    messages: int
    works: int


def shares(run: Run) -> PathShares:
    """Return what the critical path is made of."""
    path = run.critical_path()
    works = [part for part in path if isinstance(part, LocalWork)]
    messages = [part for part in path if isinstance(part, Message)]
    moving = sum(part.freed - part.start - run.extra for part in messages)
    working = sum(work.end - work.start for work in works)
    latency = run.seconds - run.begun - moving - working
    return PathShares(run.begun, moving, latency, working, len(messages), len(works))


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
