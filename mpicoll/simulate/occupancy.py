"""Which messages hold which links, until when, and how much of them."""

from __future__ import annotations

from collections.abc import Sequence

from mpicoll.simulate.network import Network

#: part of its own rate with which a message begins at least
LEAST = 0.5
#: times that differ by less than this part of them are one
SAME = 1e-12


class Occupancy:
    """The links' holders; those whose time is over are forgotten when somebody asks for room.

    A link of 8 GB/s that carries a message of 1 GB/s until second 5 has room for seven eighths of a message until then.
    """

    def __init__(self, network: Network) -> None:
        self.most = network.most
        self.bandwidth = [link.bandwidth for link in network.links]
        self._holders: list[list[tuple[float, float, int]]] = [[] for _ in network.links]  # (until, part, message)

    def rate(self, links: Sequence[int], now: float) -> tuple[float, int]:
        """Return (bytes per second that a message gets now, -1), or (0, a link that has no room for it).

        Args:
            links: that it takes.
            now: the second.
        """
        alone = rate = self.most
        full = links[0]
        for link in links:
            bandwidth = left = self.bandwidth[link]
            if self._holders[link]:
                room = self._room(link, now)
                left = bandwidth if room == 1.0 else bandwidth * room if room else 0.0
            if bandwidth < alone:
                alone = bandwidth
            if left < rate:
                rate, full = left, link
        return (rate, -1) if rate >= alone * LEAST and rate else (0.0, full)

    def hold(self, links: Sequence[int], rate: float, until: float, message: int) -> None:
        """Let a message hold its links.

        Args:
            links: that it takes.
            rate: its bytes per second.
            until: the second at which it leaves them.
            message: its number.
        """
        for link in links:
            bandwidth = self.bandwidth[link]
            self._holders[link].append((until, 1.0 if rate == bandwidth else rate / bandwidth, message))

    def next_free(self, link: int) -> tuple[float, int]:
        """Return (the second at which the first holder leaves a link, that message)."""
        until, _, message = min(self._holders[link])
        return until, message

    def _room(self, link: int, now: float) -> float:
        """Return the part of a link that is free now."""
        ended, holders = now + now * SAME, self._holders[link]
        if len(holders) == 1 and holders[0][0] <= ended:
            holders.clear()
        else:
            holders = self._holders[link] = [holder for holder in holders if holder[0] > ended]
        if not holders:
            return 1.0
        return max(1.0 - sum(part for _, part, _ in holders), 0.0)
