"""Pairs of ranks that are alike: by the link that the machine reports, and by the bandwidth that was measured.

In the puzzle GPU 0 copies to GPU 1 at 89 GB/s, to GPU 4 at 45 GB/s and to GPU 2 at 7.5 GB/s: three clusters.  The first
two fit four and two NVLinks of 25 GB/s, the last one fits PCI Express.  Each cluster has a sentence that compares it
with the fastest one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from mpicoll.bench.measure.statistics import Statistics
from mpicoll.bench.puzzles.chains import Pair
from mpicoll.bench.puzzles.link import Link

#: bandwidths are of one cluster where the next one is not larger by more than this part, or by their spreads
GAP = 0.25
#: a factor explains another one if they do not differ by more than this factor
NEAR = 1.3
#: pairs that a sentence names
NAMED = 8


@dataclass(frozen=True)
class Cluster:
    """Pairs with one link and alike bandwidth, in GB/s.

    Attributes:
        link: of all the pairs.
        figures: bandwidth of each.
    """

    link: Link
    figures: Mapping[Pair, float]

    @property
    def middle(self) -> float:
        """The pairs' median bandwidth."""
        return median(self.figures.values())

    @property
    def least(self) -> float:
        """The slowest pair's bandwidth."""
        return min(self.figures.values())

    @property
    def most(self) -> float:
        """The fastest pair's bandwidth."""
        return max(self.figures.values())

    @property
    def pairs(self) -> str:
        """The pairs in words."""
        return named(self.figures)


def named(pairs: Mapping[Pair, float]) -> str:
    """Return pairs in words: "0-1, 2>3" are 0 and 1 in both directions, and 2 to 3."""
    words = []
    for a, b in sorted(pairs):
        if (b, a) not in pairs:
            words.append(f"{a}>{b}")
        elif a < b:
            words.append(f"{a}-{b}")
    more = f" and {len(words) - NAMED} more" if len(words) > NAMED else ""
    return ", ".join(words[:NAMED]) + more


def clusters(figures: Mapping[Pair, Statistics], links: Mapping[Pair, Link]) -> list[Cluster]:
    """Return the clusters, the fastest first.

    Args:
        figures: bandwidth of each pair.
        links: of these pairs, and maybe of others.
    """
    found = []
    for link in dict.fromkeys(links[pair] for pair in figures):
        ordered = sorted((pair for pair in figures if links[pair] == link), key=lambda pair: figures[pair].median)
        together: dict[Pair, float] = {}
        last = None
        for pair in ordered:
            if last and apart(last, figures[pair]):
                found.append(Cluster(link, together))
                together = {}
            last = figures[pair]
            together[pair] = last.median
        found.append(Cluster(link, together))
    return sorted(found, key=lambda cluster: -cluster.middle)


def apart(low: Statistics, high: Statistics) -> bool:
    """Tell whether two bandwidths, the lower one first, are of different clusters."""
    return high.median > low.median * (1 + GAP) and high.median - high.spread > low.median + low.spread


def sentences(found: list[Cluster]) -> list[str]:
    """Return what explains the differences: a sentence for each cluster, one where there is only one."""
    first, *others = found
    if not others:
        return [_all_alike(first)]
    return [
        f"{first.pairs}: {_speed(first)} over {first.link.words}{_achieved(first)}: the fastest.",
        *(f"{one.pairs}: {_speed(one)} over {one.link.words}{_achieved(one)}. {_reason(first, one)}" for one in others),
    ]


def _all_alike(one: Cluster) -> str:
    """Return the sentence on the only cluster."""
    over = f"{_speed(one)} over {one.link.words}{_achieved(one)}"
    if len(one.figures) == 1:
        return f"{one.pairs} is the only pair: {over}."
    within = math.ceil(100 * (one.most / one.least - 1))
    if within <= 100 * GAP:
        return f"All {len(one.figures)} pairs are equal within {within} %: {over}."
    return f"All {len(one.figures)} pairs have one link and differ by {within} %, no step above the spread: {over}."


def _speed(one: Cluster) -> str:
    spread = f" ({one.least:.3g} to {one.most:.3g})" if len(one.figures) > 1 else ""
    return f"{one.middle:.3g} GB/s{spread}"


def _achieved(one: Cluster) -> str:
    share = one.link.share(one.middle)
    return f", {share} of its {one.link.limit} GB/s" if share else ""


def _reason(first: Cluster, one: Cluster) -> str:
    """Return why a cluster is slower than the first one, as far as the links tell."""
    ratio = first.middle / one.middle
    slower = f"{ratio:.1f} times slower than {first.pairs}"
    if one.link == first.link:
        return f"{slower}, but the machine reports the same link: cores, memory or load differ."
    if ratio < 1 + GAP:
        return f"As fast as {first.pairs}, though the link is another."
    if one.link.theoretical is None or first.link.theoretical is None:
        return f"{slower}: its link is another, whose bandwidth is not reported."
    expected = first.link.theoretical / one.link.theoretical
    by = f"by the links it would be {expected:.1f} times"
    if max(ratio / expected, expected / ratio) <= NEAR:
        return f"{slower}; {by}: the link explains it."
    if ratio > expected:
        return f"{slower}; {by}: the link explains a part only."
    return f"{slower}; {by}: the fastest link is not filled."
