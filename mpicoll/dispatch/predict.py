"""Predictions: the time of an algorithm by its cost formula, corrected by what was measured near it.

A formula has the shape of an algorithm's time, and few parameters for all algorithms.  Where a table has times of an
algorithm, a prediction is the formula's, times what the measured times were of the formula's there: the mean in
logarithms between two measured sizes, the last one beyond them.  A formula that says 80 us where 100 were measured, at
64 KiB, and 300 where 300 were, at 1 MiB, predicts 1.12 times its own time at 256 KiB.
"""

from __future__ import annotations

import math
from bisect import bisect
from functools import lru_cache

from mpicoll.algorithms.card import Algorithm
from mpicoll.analysis.cost import CostModel, pipelined
from mpicoll.analysis.host_traffic import host_traffic
from mpicoll.analysis.segments import SEGMENTS, block_bytes, pieces
from mpicoll.dispatch.facts import Facts
from mpicoll.dispatch.limits import LANES
from mpicoll.dispatch.measured import Curve
from mpicoll.dispatch.paths import PATHS
from mpicoll.dispatch.rules import MOST_SEGMENTS
from mpicoll.dispatch.tuning import Tuning

#: no tables: the cost model alone
UNTUNED = Tuning()
#: seconds that no time is below, so that there are logarithms
LEAST = 1e-9
#: ranks up to which traffic between hosts is counted: it takes the schedules of all of them
MOST_COUNTED = 64
#: times that a segment may be shorter between hosts, where messages take longer, than inside one
FAR = 4


def best_segments(card: Algorithm, facts: Facts, path: str, tuning: Tuning = UNTUNED) -> tuple[int, float]:
    """Return (segments for which an algorithm takes the least time, that time in seconds).

    Where a tuning table has measured the algorithm, they are the segments and the time that follow from that.
    """
    size, nbytes, row, model = facts.size, facts.nbytes or 0, PATHS[path], tuning.model(path)
    curve = tuning.curve(facts.collective, size, facts.memory, facts.gpus, card.name, path)
    if facts.segment_bytes and row.takes_segments and pipelined(card.cost):
        found = min(max(-(-block_bytes(card, size, nbytes) // facts.segment_bytes), 1), MOST_SEGMENTS)
    elif curve and row.takes_segments:
        found = curve.segments(nbytes)
    elif row.takes_segments and _is_counted(facts):
        found = _pieces_between_hosts(card, facts, path, tuning)
    else:
        found = pieces(card, model, size, nbytes, row.smallest_segment, row.wave)
    return found if row.takes_segments else 1, _seconds(card, facts, path, found, tuning, curve)


def _is_counted(facts: Facts) -> bool:
    """Tell whether traffic between hosts is counted."""
    return bool(facts.topology.host_of) and facts.size <= MOST_COUNTED


def _pieces_between_hosts(card: Algorithm, facts: Facts, path: str, tuning: Tuning) -> int:
    """Return the segments with which an algorithm takes the least time."""
    traffic, nbytes, row = host_traffic(card, facts.topology, facts.root), facts.nbytes or 0, PATHS[path]
    if not (pipelined(card.cost) or traffic.serial > traffic.vectors or traffic.turns > 1):
        return 1
    message = traffic.rank_vectors * nbytes / max(traffic.messages, 1)  # of the busiest rank, in the mean
    far = message // (row.smallest_segment // FAR)
    near = block_bytes(card, facts.size, nbytes) // row.smallest_segment if pipelined(card.cost) else 0
    # one more waits until those before have had all turns, but in a chain, in which each rank has one
    most = MOST_SEGMENTS if traffic.turns <= 1 or pipelined(card.cost) else LANES
    able = (s for s in SEGMENTS if s <= min(max(far, near, 1), most))
    return min(able, key=lambda s: _seconds(card, facts, path, s, tuning, None))


def predicted(card: Algorithm, facts: Facts, path: str, segments: int, tuning: Tuning = UNTUNED) -> float:
    """Return the time of an algorithm in seconds.

    Args:
        card: the algorithm.
        facts: the call.
        path: its name; one that takes whole blocks cuts them by itself.
        segments: number of segments.
        tuning: the tables in force.
    """
    model = tuning.model(path)
    cut = pieces_on(path, card, model, facts.size, facts.nbytes or 0, segments)
    curve = tuning.curve(facts.collective, facts.size, facts.memory, facts.gpus, card.name, path)
    return _seconds(card, facts, path, cut, tuning, curve)


def _seconds(card: Algorithm, facts: Facts, path: str, cut: int, tuning: Tuning, curve: Curve | None) -> float:
    """Return the time by the formula, corrected by what was measured, else with that of the traffic between hosts.

    Args:
        card: the algorithm.
        facts: the call.
        path: its name.
        cut: number of pieces of a block.
        tuning: the tables in force.
        curve: what was measured of the algorithm, None for nothing.
    """
    nbytes, model = facts.nbytes or 0, tuning.model(path)
    if curve:  # times that were measured have the traffic in them
        seconds = model.seconds(card.cost, facts.size, nbytes, cut)
        return seconds * math.exp(_between(_corrections(curve, card, path, model), math.log(nbytes + 1)))
    seconds = model.seconds(card.cost, card.level_size(facts.size, facts.topology), nbytes, cut)
    if _is_counted(facts):
        apart = cut if PATHS[path].takes_segments else 1
        seconds += tuning.link.seconds(host_traffic(card, facts.topology, facts.root), nbytes, apart)
        if card.by_hosts or not pipelined(card.cost):  # without segments: one more is a message more on every way
            seconds += (cut - 1) * model.alpha
    return seconds


@lru_cache(maxsize=4096)
def _corrections(curve: Curve, card: Algorithm, path: str, model: CostModel) -> list[tuple[float, float]]:
    """Return (logarithm of a message size, logarithm of measured over predicted time) for what was measured."""
    found = []
    for nbytes, (segments, seconds) in sorted(curve.points.items()):
        cut = pieces_on(path, card, model, curve.size, nbytes, segments)
        formula = model.seconds(card.cost, curve.size, nbytes, cut)
        found.append((math.log(nbytes + 1), math.log(max(seconds, LEAST) / max(formula, LEAST))))
    return found


def bend(curve: Curve, card: Algorithm, path: str, model: CostModel, nbytes: int) -> float:
    """Return how far a measured time is from what those of the sizes around it predict: 0.1 where it is 10 % off.

    Args:
        curve: what was measured of the algorithm.
        card: the algorithm.
        path: its name.
        model: of the path.
        nbytes: message size in bytes; the first and the last one have no sizes around them and no bend.
    """
    points = _corrections(curve, card, path, model)
    place = sorted(curve.points).index(nbytes)
    if place in (0, len(points) - 1):
        return 0.0
    x, y = points[place]
    return abs(y - _between([points[place - 1], points[place + 1]], x))


def _between(points: list[tuple[float, float]], x: float) -> float:
    """Return the value at x on the line through points, that of the first or last one beyond them."""
    place = bisect(points, (x, math.inf))
    if place in (0, len(points)):
        return points[min(place, len(points) - 1)][1]
    (x0, y0), (x1, y1) = points[place - 1 : place + 1]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)


def pieces_on(path: str, card: Algorithm, model: CostModel, p: int, n: int, segments: int) -> int:
    """Return into how many pieces a block is cut: the segments, or as many as a path of whole blocks makes by itself.

    Args:
        path: its name.
        card: the algorithm.
        model: of the path.
        p: number of ranks.
        n: bytes of the full vector.
        segments: number of segments.
    """
    row = PATHS[path]
    return segments if row.takes_segments else pieces(card, model, p, n, 0, row.wave)


def waves(card: Algorithm, facts: Facts, path: str) -> int:
    """Return into how many pieces a path that takes whole blocks cuts one by itself."""
    return max(block_bytes(card, facts.size, facts.nbytes or 0) // PATHS[path].wave, 1)
